# SPDX-License-Identifier: Apache-2.0
"""OpenStack's services as we ask them: the way in, Placement, and Nova. Knows no cache and no libvirt."""
