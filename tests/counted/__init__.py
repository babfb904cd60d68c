# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation that say how many tests passed where, and the runs that see to it that this is so."""
