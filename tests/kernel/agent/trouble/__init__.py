# SPDX-License-Identifier: Apache-2.0
"""Random trouble in a guest, on the kernel's own resctrl: ``tests/campaign/trouble`` has it on the simulator."""
