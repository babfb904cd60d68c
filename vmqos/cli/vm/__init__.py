# SPDX-License-Identifier: Apache-2.0
"""``vmqos vm``: the VMs of this host."""
