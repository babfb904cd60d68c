# SPDX-License-Identifier: Apache-2.0
"""Our units under systemd as process 1, on a kernel with its own resctrl."""
