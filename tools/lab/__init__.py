# SPDX-License-Identifier: Apache-2.0
"""A host of our own inside the host: a private libvirtd, small VMs, the simulator and the agent.

``tools/demo`` and the functional tests stand on it. It needs root, the standard library and
libvirt-python; everything it makes belongs to one :class:`tools.lab.workspace.Workspace`, and leaves with it.
"""
