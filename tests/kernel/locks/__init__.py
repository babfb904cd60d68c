# SPDX-License-Identifier: Apache-2.0
"""Memory that a kernel locks into a cache, and who maps it: its devices are no simulator's."""
