# SPDX-License-Identifier: Apache-2.0
"""The client of the kernel's resctrl filesystem. It knows no VM and no policy.

Specification: ``Documentation/filesystems/resctrl.rst`` of the kernel, formerly
``Documentation/arch/x86/resctrl.rst``.
"""
