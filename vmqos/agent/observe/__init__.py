# SPDX-License-Identifier: Apache-2.0
"""Which VMs run here, and what their flavors ask for."""
