# SPDX-License-Identifier: Apache-2.0
"""The resctrl client on a mounted resctrl: the simulator's or, with VMQOS_TEST_RESCTRL=kernel, the kernel's own.

On the kernel's own, every group that exists is lost. The expected values are those of a two-socket Cascade Lake.
"""
