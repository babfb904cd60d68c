# SPDX-License-Identifier: Apache-2.0
"""The options of the filter and the weigher, in nova.conf."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

WEIGHER_GROUP = "filter_scheduler"
"""The section of Nova's own weighers."""

GROUP = "vmqos"

WEIGHER_OPTIONS = [
    cfg.FloatOpt(
        "cache_ways_weight_multiplier",
        default=1.0,
        help="""
How much the free L3 ways of a host count among all its weights, for servers whose flavor asks for exclusive ways.
A positive number spreads such servers over the hosts, a negative one packs them. The key of the same name in the
metadata of a host's aggregate overrides it; of several, the smallest counts.

Used only where [filter_scheduler] weight_classes names nova_plugin.scheduler.weights.CacheWaysWeigher.
""",
    ),
]

OPTIONS = [
    cfg.IntOpt(
        "inventory_lifetime",
        default=10,
        min=0,
        help="""
Seconds for which Placement's answer about the hosts' ways is used again. It is one request for the hosts that the
server fits on. With 0 the filter and the weigher ask for every scheduling request. So it is with what a cell's database
tells of servers that are being moved. Where no host passes by what is older than a second, the filter asks anew.
""",
    ),
    cfg.IntOpt(
        "flavor_lifetime",
        default=300,
        min=1,
        help="""
Seconds for which the promise of a server's flavor, once read from the database, is used again. Only servers that
nova-compute did not describe are read: all of a host until its first update after the scheduler's start, and all of
them where [filter_scheduler] track_instance_changes is off.
""",
    ),
]


def register(conf: Any) -> None:
    """Make the options known to Nova's configuration."""
    conf.register_opts(WEIGHER_OPTIONS, group=WEIGHER_GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[Any]]]:
    """The options for oslo-config-generator."""
    return [(WEIGHER_GROUP, WEIGHER_OPTIONS), (GROUP, OPTIONS)]
