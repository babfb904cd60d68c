# SPDX-License-Identifier: Apache-2.0
"""Reading the counters at regular times, and keeping what was read."""
