# SPDX-License-Identifier: Apache-2.0
"""Writing to resctrl: control groups, monitoring groups, and tasks."""
