# SPDX-License-Identifier: Apache-2.0
"""What resctrl's files mean: a mount's groups and what may be written to them."""
