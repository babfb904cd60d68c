# SPDX-License-Identifier: Apache-2.0
"""A stock kernel's own resctrl, on an emulated CPU with RDT: see ``doc/source/contributor/kernel.rst``."""
