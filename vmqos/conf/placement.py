# SPDX-License-Identifier: Apache-2.0
"""The ``[placement]`` section: telling OpenStack what this host can promise."""

from __future__ import annotations

from oslo_config import cfg

from vmqos.conf import keystone

GROUP = cfg.OptGroup(
    "placement",
    title="What OpenStack's Placement is told",
    help="Without credentials, Placement is told nothing. " + keystone.EXPLAINED,
)

OPTIONS = [
    cfg.StrOpt(
        "os_cloud",
        default=None,
        help="The cloud of clouds.yaml whose credentials are used, instead of those that stand here.",
    ),
    cfg.StrOpt(
        "hypervisor_hostname",
        default=None,
        help="The name of this compute node's resource provider, which is its hypervisor hostname in Nova; the name "
        "that libvirt gives the host, if unset, as Nova does.",
    ),
    cfg.FloatOpt(
        "check_interval",
        default=300.0,
        min=1.0,
        help="Seconds between two looks at whether Placement still has what it was told. Changes are told at once.",
    ),
    cfg.StrOpt(
        "provider_yaml",
        default=None,
        help="Instead of talking to Placement, write this file for Nova, in the directory that nova.conf names in "
        "[compute] provider_config_location. The gateway's user has to own the directory. nova-compute reads the file "
        "only when it starts.",
    ),
]
