# SPDX-License-Identifier: Apache-2.0
"""The ``[nova]`` section: asking Nova for flavors that the VMs' descriptions don't have."""

from __future__ import annotations

from oslo_config import cfg

from vmqos.conf import keystone

GROUP = cfg.OptGroup(
    "nova",
    title="Flavors that libvirt does not tell",
    help="Nova before 2025.2 does not write a flavor's extra specs into the VM's description. With credentials, its "
    "API is asked for them; without, such a VM is promised nothing. " + keystone.EXPLAINED,
)

OPTIONS = [
    cfg.StrOpt(
        "os_cloud",
        default=None,
        help="The cloud of clouds.yaml whose credentials are used, instead of those that stand here.",
    ),
]
