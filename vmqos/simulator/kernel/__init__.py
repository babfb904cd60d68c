# SPDX-License-Identifier: Apache-2.0
"""How the kernel takes and gives text: its files and directories, numbers, sets of CPUs, messages."""
