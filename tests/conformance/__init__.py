# SPDX-License-Identifier: Apache-2.0
"""What resctrl does, said once and asked twice: of the simulator, and of a kernel in the lab's guest."""
