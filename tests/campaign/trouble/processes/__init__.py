# SPDX-License-Identifier: Apache-2.0
"""The same trouble for real processes: the agent and its gateway, a private libvirtd with QEMU, the simulator."""
