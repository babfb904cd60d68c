# SPDX-License-Identifier: Apache-2.0
"""Locked regions: ways that the kernel fills once and never evicts, for programs of the host and for VMs."""
