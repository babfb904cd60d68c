# SPDX-License-Identifier: Apache-2.0
"""``mon_sub_L3_YY``: what each sub-NUMA node of a cache counts, where the firmware divides the sockets."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import refused
from tests.conformance.machines import monitoring_of

pytestmark = needs.SUB_NUMA_NODES


def nodes(rdt, cache):
    """The folders of the nodes of a cache: nodes are numbered through the machine."""
    each = rdt.profile.topology.nodes_per_l3
    return [f"mon_sub_L3_{number:02}" for number in range(cache * each, (cache + 1) * each)]


def test_each_node_has_a_folder_within_its_caches(rdt):
    rdt.group("g")
    rdt.group("g/mon_groups/m")
    events = monitoring_of(rdt.profile).events
    for group in ("", "g/", "g/mon_groups/m/"):
        for cache in rdt.cache_ids(3):
            folder = f"{group}mon_data/mon_L3_{cache:02}"
            assert rdt.ls(folder) == sorted([*events, *nodes(rdt, cache)])
            for node in nodes(rdt, cache):
                assert rdt.ls(f"{folder}/{node}") == sorted(events)


def test_a_cache_is_allocated_as_a_whole(rdt):
    assert list(rdt.masks("L3")) == rdt.cache_ids(3)
    assert list(rdt.bandwidths()) == rdt.cache_ids(3)


def test_a_nodes_counter_is_a_number_or_not_there_yet_and_cannot_be_written(rdt):
    rdt.group("g")
    folder = f"g/mon_data/mon_L3_00/{nodes(rdt, 0)[1]}"
    for event in monitoring_of(rdt.profile).events:
        text = rdt.read(f"{folder}/{event}")
        assert text == "Unavailable\n" or text.strip().isdigit()
        assert rdt.permissions(f"{folder}/{event}") == "100444"
        assert rdt.write(f"{folder}/{event}", "0\n") == refused("EACCES")


def test_a_nodes_folder_cannot_be_removed(rdt):
    assert rdt.rmdir(f"mon_data/mon_L3_00/{nodes(rdt, 0)[0]}").errno == "EPERM"


def test_nodes_share_the_rmids_of_their_cache(rdt):
    assert rdt.read("info/L3_MON/num_rmids") == f"{monitoring_of(rdt.profile).num_rmids}\n"
