# SPDX-License-Identifier: Apache-2.0
"""Random trouble on a simulated machine, and a judge that looks after each single write."""
