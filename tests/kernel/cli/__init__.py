# SPDX-License-Identifier: Apache-2.0
"""Counters of VMs, as the kernel's own resctrl counts them."""
