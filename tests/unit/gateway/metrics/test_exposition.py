# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.gateway.metrics.exposition, read back by the library's own parser."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from tests.unit.gateway.answers import (
    CACHE,
    EXECUTED,
    HARDWARE,
    HEALTH,
    IN_BYTES,
    KEPT,
    NOTHING_EXECUTED,
    NOTIFICATIONS,
    PLACEMENT,
    TOLD,
    telemetry,
)
from tests.unit.telemetry.values import HOST, snapshot, vm
from vmqos.gateway.metrics import agent_answers, exposition
from vmqos.gateway.metrics.exposition import HostCollector
from vmqos.simulator.hardware.profiles import ENERGY_EVENTS, EXECUTION_EVENTS
from vmqos.telemetry import EVENTS, GroupReading, Missing, Reading, model

WHO = {"uuid": "u", "name": "db-1", "project": "p", "flavor": "gold"}

SCRAPE = Path(__file__).with_name("scrape.txt")


class Scraped:
    """What a scrape said."""

    def __init__(self, text):
        self.text = text
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def of(self, name):
        return {tuple(sorted(one.labels.items())): one.value for one in self.samples if one.name == name}

    def value(self, name, /, **labels):
        return self.of(name).get(tuple(sorted(labels.items())))


def scraper(old_metrics):
    """Scrapes one after the other, of the same collector."""
    now = {}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HostCollector(lambda: now["told"], old_metrics))

    def scrape(found, told=TOLD):
        now["told"] = replace(told, telemetry=telemetry(found) if found is not None else None)
        return Scraped(generate_latest(registry).decode())

    return scrape


@pytest.fixture
def scrape():
    return scraper(old_metrics=True)


@pytest.fixture
def new_scrape():
    return scraper(old_metrics=False)


def at(moment):
    """Have it be this time, in seconds since 1970."""
    return patch.object(exposition.time, "time", lambda: moment)


def test_a_scrape_is_these_lines(scrape):
    """Operators' alerts and dashboards know these names, labels and words."""
    counted = vm((4096, 100, 60), (0, Missing.ERROR, 7), packages={0: {"core_energy": Reading(1.5)}})
    host = replace(HOST, caches=vm((5, 6, Missing.ERROR)).caches)
    waits = {"uuid": "v", "instance_name": "web-1", "state": "pending", "reason_code": "no-ways", "masks": {}}
    told = replace(TOLD, vms=[KEPT, {**IN_BYTES, **waits, "l2_masks": {}}])
    with at(5000):
        found = scrape(snapshot(counted, host=host), told)
    assert found.text == SCRAPE.read_text(encoding="utf-8")


def test_the_words_of_counters_are_those_of_the_agent():
    for name in ("LLC_OCCUPANCY", "MBM_TOTAL", "MBM_LOCAL", "EVENTS"):
        assert getattr(agent_answers, name) == getattr(model, name)
    assert Missing(agent_answers.NOT_MONITORED) is Missing.NOT_MONITORED
    assert Missing(agent_answers.NO_COUNTER) is Missing.NO_COUNTER


def test_a_vms_counters_are_told_by_cache_and_scope(scrape):
    found = scrape(snapshot(vm((4096, 100, 60), (0, 7, 7))))
    assert found.value("vmqos_vm_llc_occupancy_bytes", **WHO, cache="0") == 4096
    assert found.value("vmqos_vm_llc_occupancy_bytes", **WHO, cache="1") == 0
    memory = {scope: found.value("vmqos_vm_memory_bytes_total", **WHO, cache="0", scope=scope) for scope in
              ("total", "local", "remote")}  # fmt: skip
    assert memory == {"total": 100, "local": 60, "remote": 40}
    assert found.of("vmqos_vm_counter_missing") == {}


@pytest.mark.parametrize("missing", [Missing.UNAVAILABLE, Missing.ERROR, Missing.UNASSIGNED, Missing.VANISHED])
def test_a_counter_without_a_value_is_an_absent_sample_and_a_reason(scrape, missing):
    found = scrape(snapshot(vm((4096, missing, 60), (0, 7, 7))))
    assert found.value("vmqos_vm_memory_bytes_total", **WHO, cache="0", scope="total") is None
    assert found.value("vmqos_vm_memory_bytes_total", **WHO, cache="0", scope="remote") is None
    assert found.value("vmqos_vm_memory_bytes_total", **WHO, cache="0", scope="local") == 60
    assert found.value("vmqos_vm_memory_bytes_total", **WHO, cache="1", scope="total") == 7
    assert found.of("vmqos_vm_counter_missing") == {
        tuple(sorted({**WHO, "event": "mbm_total_bytes", "reason": missing.value}.items())): 1
    }


def test_a_vm_that_nobody_counts_says_so_for_each_event(scrape):
    found = scrape(snapshot())
    reasons = {(dict(labels)["event"], dict(labels)["reason"]) for labels in found.of("vmqos_vm_counter_missing")}
    assert reasons == {(event, "not-monitored") for event in ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")}
    assert found.of("vmqos_vm_llc_occupancy_bytes") == {}


@pytest.mark.parametrize("events", [(), ("mbm_total_bytes",)])
def test_a_vm_without_a_group_is_not_called_unmonitored_for_what_the_machine_does_not_count(scrape, events):
    """An alert would be about each VM of such a host for ever, and name RMIDs that the machine does not have."""
    found = scrape(snapshot(host=replace(HOST, events=events)))
    reasons = {dict(labels)["event"]: dict(labels)["reason"] for labels in found.of("vmqos_vm_telemetry_missing")}
    assert reasons == dict.fromkeys(EVENTS, "no-counter") | dict.fromkeys(events, "not-monitored")


def test_the_series_of_a_vm_that_is_gone_disappear(scrape):
    scrape(snapshot(vm((4096, 100, 60))))
    found = scrape(snapshot(), replace(TOLD, vms=[]))
    assert not [sample for sample in found.samples if "uuid" in sample.labels]


def test_a_group_that_outlives_its_vm_makes_no_series(scrape):
    found = scrape(snapshot(vm((4096, 100, 60), uuid="gone")))
    assert not [sample for sample in found.samples if sample.labels.get("uuid") == "gone"]


def test_a_vm_that_comes_out_of_its_class_is_no_burst_of_the_default_group(new_scrape):
    def look(group, moved, hosts):
        counts = {event: Reading(hosts) for event in EVENTS}
        return snapshot(vm((7, moved, moved), group=group), host=replace(HOST, caches={0: counts}))

    new_scrape(look("vmqos.shared-ways2", 10**12, 1000))
    found = new_scrape(look("", 10**12 + 5, 10**12 + 1010))
    assert found.value("vmqos_default_group_memory_traffic_bytes_total", cache="0") == 5


def test_no_counter_of_a_vm_goes_back_when_a_trial_on_it_ends(scrape):
    scrape(snapshot(vm((7, 1000, 600), generation="b+a")))
    found = scrape(snapshot(vm((7, 900, 550), generation="a")))
    assert found.value("vmqos_vm_memory_traffic_bytes_total", uuid="u", cache="0") == 1000
    for scope, moved in (("local", 600), ("remote", 400)):
        by_scope = {"uuid": "u", "cache": "0", "scope": scope}
        assert found.value("vmqos_vm_memory_traffic_by_scope_bytes_total", **by_scope) == moved
    assert found.value("vmqos_vm_memory_bytes_total", **WHO, cache="0", scope="total") == 1000


def test_the_promise_is_told_with_its_state_ways_and_size(scrape):
    found = scrape(snapshot(vm((4096, 100, 60))))
    assert found.value("vmqos_vm_state", **WHO, state="kept", reason="") == 1
    assert found.value("vmqos_vm_cache_ways", **WHO, cache="0") == 2
    assert found.value("vmqos_vm_cache_allocated_bytes", **WHO, cache="0") == 2 << 20


def test_a_state_that_changed_leaves_no_second_series(scrape):
    scrape(snapshot())
    pending = {**KEPT, "state": "pending", "reason_code": "no-ways", "masks": {}}
    found = scrape(snapshot(), replace(TOLD, vms=[pending]))
    assert found.of("vmqos_vm_state") == {tuple(sorted({**WHO, "state": "pending", "reason": "no-ways"}.items())): 1}
    assert found.of("vmqos_vm_cache_ways") == {}


def test_the_hosts_resources_are_told(scrape):
    host = replace(HOST, caches={0: vm((5, 6, Missing.ERROR)).caches[0]})
    found = scrape(snapshot(host=host))
    assert found.value("vmqos_cache_ways", cache="0") == 11
    assert found.value("vmqos_cache_free_ways", cache="0") == 7
    assert found.value("vmqos_cache_largest_free_run_ways", cache="0") == 4
    assert found.value("vmqos_cache_size_bytes", cache="0") == 11 << 20
    assert found.value("vmqos_groups", owner="vm") == 1
    assert (found.value("vmqos_closids"), found.value("vmqos_closids_used")) == (16, 2)
    assert (found.value("vmqos_rmids"), found.value("vmqos_rmids_used")) == (192, 3)
    assert found.value("vmqos_default_group_llc_occupancy_bytes", cache="0") == 5
    assert found.of("vmqos_default_group_memory_bytes_total") == {(("cache", "0"), ("scope", "total")): 0}


def test_the_default_groups_counters_rise_although_vms_in_it_end(scrape):
    places = [{"cache": "0"}, {"cache": "0", "scope": "local"}, {"cache": "0", "scope": "remote"}]
    # The third look is after a VM's end, whose traffic the kernel no longer adds to that of the group.
    for total, local, told in ((1000, 400, (0, 0, 0)), (1500, 500, (500, 100, 400)), (90, 60, (500, 100, 400))):
        found = scrape(snapshot(host=replace(HOST, caches=vm((5, total, local)).caches)))
        new = [
            found.value(
                f"vmqos_default_group_memory_traffic_{'by_scope_' if 'scope' in where else ''}bytes_total", **where
            )
            for where in places
        ]
        old = found.of("vmqos_default_group_memory_bytes_total")
        assert tuple(new) == told
        assert [old[("cache", "0"), ("scope", scope)] for scope in ("total", "local")] == [told[0], told[1]]


def test_the_loop_is_told_as_a_histogram(scrape):
    found = scrape(snapshot())
    name = "vmqos_reconcile_duration_seconds"
    buckets = {dict(labels)["le"]: value for labels, value in found.of(f"{name}_bucket").items()}
    assert buckets == {"0.1": 3, "1": 4, "+Inf": 5}
    assert (found.value(f"{name}_count"), found.value(f"{name}_sum")) == (5, 12.5)
    assert found.value("vmqos_reconcile_errors_total") == 1
    assert found.value("vmqos_agent_info", version="1.2.3") == 1


def test_the_age_of_each_part_is_told_and_how_many_vms_are_not_served(scrape):
    found = scrape(snapshot())
    assert found.value("vmqos_vms_look_age_seconds") == 1.5
    assert found.value("vmqos_pass_age_seconds") == 0.5
    assert found.value("vmqos_sweep_age_seconds") == 2.5
    assert found.value("vmqos_vms_unserved") == 2


def test_a_moment_is_the_same_in_every_scrape_until_the_part_has_done_its_work_again(new_scrape):
    name, found = "vmqos_last_pass_timestamp_seconds", []
    # The age is of some milliseconds before. After the fourth scrape there is a pass, and a second later another one.
    for now, age in ((5000, 0.5), (5015.004, 15.5), (5029.998, 30.497), (5045.3, 45.5), (5046, 0.5), (5046.6, 0.1)):
        with at(now):
            health = {**TOLD.health, "ages": {**TOLD.health["ages"], "pass": age}}
            found.append(new_scrape(snapshot(), replace(TOLD, health=health)).value(name))
    assert found == [4999.5, 4999.5, 4999.5, 4999.5, 5045.5, 5046.5]


def test_without_resctrl_the_states_are_told_and_no_counter_is_0(scrape):
    no_room = {"groups": {}, "closids": 0, "closids_used": 0, "rmids": 0, "rmids_used": 0}
    lost = {**HEALTH["resctrl"], **no_room, "mounted": False, "error": "not mounted"}
    pending = {**KEPT, "state": "pending", "reason_code": "no-resctrl", "masks": {}}
    told = replace(TOLD, health={**HEALTH, "resctrl": lost}, vms=[pending], caches=[])
    found = scrape(None, told)
    assert found.value("vmqos_resctrl_up") == 0
    assert found.value("vmqos_vm_state", **WHO, state="pending", reason="no-resctrl") == 1
    reasons = [dict(labels)["reason"] for labels in found.of("vmqos_vm_counter_missing")]
    assert reasons == 3 * ["no-sweep"], "whether a group counts the VM is not known"
    absent = ("vmqos_closids", "vmqos_rmids", "vmqos_groups", "vmqos_cache_ways", "vmqos_vm_llc_occupancy_bytes")
    for name in (*absent, "vmqos_sweep_seconds"):
        assert found.of(name) == {}, name


@pytest.mark.parametrize(
    ("part", "changes", "up"),
    [
        ("resctrl", {}, 1),
        ("resctrl", {"error": "the lock could not be had"}, 0),
        ("resctrl", {"mounted": None}, 0),
        ("libvirt", {}, 1),
        ("libvirt", {"connected": False}, 0),
        ("libvirt", {"unanswered": {"call": "virConnectListAllDomains", "seconds": 3.0}}, 0),
    ],
)
def test_what_can_not_be_read_is_not_up(scrape, part, changes, up):
    found = scrape(None, replace(TOLD, health={**HEALTH, part: {**HEALTH[part], **changes}}))
    assert found.value(f"vmqos_{part}_up") == up


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"starts_watched": True}, 1), ({"starts_watched": False}, 0), ({"starts_watched": None}, None), ({}, None)],
    ids=["watched", "not watched", "off", "an earlier agent"],
)
def test_whether_starts_are_watched_is_told_where_they_are_to_be(scrape, changes, told):
    libvirt = {key: value for key, value in HEALTH["libvirt"].items() if key != "starts_watched"}
    found = scrape(None, replace(TOLD, health={**HEALTH, "libvirt": {**libvirt, **changes}}))
    assert found.value("vmqos_starts_watched") == told


def test_what_was_never_done_is_as_old_as_the_agent(scrape):
    ages = {"vms": 1.5, "pass": None, "counters": None}
    found = scrape(None, replace(TOLD, health={**HEALTH, "ages": ages}))
    names = ("vmqos_vms_look_age_seconds", "vmqos_pass_age_seconds", "vmqos_sweep_age_seconds")
    assert [found.value(name) for name in names] == [1.5, 60, 60]


def test_a_vm_that_nova_does_not_know_has_its_libvirt_name(scrape):
    plain = {**KEPT, "instance_name": "", "project": "", "flavor": ""}
    found = scrape(None, replace(TOLD, vms=[plain]))
    who = {"uuid": "u", "name": "instance-00000001", "project": "", "flavor": ""}
    assert found.value("vmqos_vm_state", **who, state="kept", reason="") == 1


def test_a_cache_of_unknown_size_is_told_without_it(scrape):
    found = scrape(None, replace(TOLD, caches=[{**CACHE, "size_bytes": None, "way_bytes": None}]))
    assert found.value("vmqos_cache_ways", cache="0") == 11
    assert found.value("vmqos_vm_cache_ways", **WHO, cache="0") == 2
    assert found.of("vmqos_cache_size_bytes") == found.of("vmqos_vm_cache_allocated_bytes") == {}


def test_a_hostile_name_stays_inside_its_label(scrape):
    name = 'x"} 1\nvmqos_closids 999\\'
    found = scrape(snapshot(), replace(TOLD, vms=[{**KEPT, "instance_name": name}]))
    assert found.value("vmqos_closids") == 16
    assert found.value("vmqos_vm_state", **{**WHO, "name": name}, state="kept", reason="") == 1


def test_energy_is_told_where_the_kernel_has_it(scrape):
    found = scrape(snapshot(vm((1, 2, 2), packages={0: {"core_energy": Reading(1.5), "activity": Reading(0.25)}})))
    assert found.value("vmqos_vm_core_energy_joules_total", **WHO, package="0") == 1.5
    assert found.value("vmqos_vm_core_activity_farads_total", uuid="u", package="0") == 0.25


def test_each_event_of_packages_is_a_metric_of_its_own_and_absent_where_nothing_counts_it(new_scrape):
    names = {
        "activity": "vmqos_vm_core_activity_farads_total",
        "unhalted_core_cycles": "vmqos_vm_package_cycles_total",
        "unhalted_ref_cycles": "vmqos_vm_package_reference_cycles_total",
        "stalls_llc_hit": "vmqos_vm_llc_hit_stall_cycles_total",
        "stalls_llc_miss": "vmqos_vm_llc_miss_stall_cycles_total",
        "uops_retired": "vmqos_vm_uops_total",
        "c1_res": "vmqos_vm_c1_residency_cycles_total",
        "c6_res": "vmqos_vm_c6_residency_cycles_total",
    }
    assert {"core_energy", *names} == {*ENERGY_EVENTS, *EXECUTION_EVENTS}
    counts = {event: Reading(number) for number, event in enumerate(names)}
    nothing = dict.fromkeys(names, Reading.none(Missing.UNAVAILABLE))
    found = new_scrape(snapshot(vm((1, 2, 2), packages={0: counts, 1: nothing})))
    for number, name in enumerate(names.values()):
        assert found.of(name) == {(("package", "0"), ("uuid", "u")): number}
    without = new_scrape(snapshot(vm((1, 2, 2))))
    assert not {sample.name for sample in without.samples} & set(names.values())


def test_the_parts_of_sub_numa_nodes_are_metrics_of_their_own_and_the_caches_stay_the_sums(new_scrape):
    parts = {
        node: dict(zip(EVENTS, map(Reading, values), strict=True))
        for node, values in {0: (1000, 60, 50), 1: (3096, 40, 10)}.items()
    }
    found = new_scrape(snapshot(vm((4096, 100, 60), nodes={0: parts})))
    for name, event in (
        ("llc_occupancy_bytes", "llc_occupancy"),
        ("memory_traffic_bytes_total", "mbm_total_bytes"),
        ("local_memory_traffic_bytes_total", "mbm_local_bytes"),
    ):
        assert found.of(f"vmqos_vm_node_{name}") == {
            (("cache", "0"), ("node", str(node)), ("uuid", "u")): readings[event].value
            for node, readings in parts.items()
        }
    assert found.of("vmqos_vm_llc_occupancy_bytes") == {(("cache", "0"), ("uuid", "u")): 4096}
    assert found.of("vmqos_vm_memory_traffic_bytes_total") == {(("cache", "0"), ("uuid", "u")): 100}


def test_each_control_group_is_told_with_its_owner_and_a_hostile_name_is_made_harmless(new_scrape):
    groups = {
        "": GroupReading("1", vm((4, 100, 60)).caches),
        "theirs\udcff\n": GroupReading("2", vm((Missing.ERROR, 7, 7)).caches),
    }
    found = new_scrape(snapshot(host=replace(HOST, groups=groups)))
    default = {"group": "", "owner": "default", "cache": "0"}
    assert found.of("vmqos_group_llc_occupancy_bytes") == {tuple(sorted(default.items())): 4}
    assert found.of("vmqos_group_memory_traffic_bytes_total") == {
        tuple(sorted(default.items())): 100,
        (("cache", "0"), ("group", "theirs\\udcff\\n"), ("owner", "foreign")): 7,
    }


def test_a_group_never_counts_back_unless_it_is_another_group(new_scrape):
    found = []
    for generation, moved in (("1", 100), ("1", 90), ("1", Missing.ERROR), ("1", 95), ("1", 101), ("2", 5)):
        groups = {"": GroupReading(generation, vm((4, moved, 60)).caches)}
        scraped = new_scrape(snapshot(host=replace(HOST, groups=groups)))
        found.append(scraped.value("vmqos_group_memory_traffic_bytes_total", group="", owner="default", cache="0"))
    assert found == [100, 100, None, 100, 101, 5]


def test_the_energy_of_each_group_is_a_counter_by_package_that_begins_at_0_and_never_goes_back(new_scrape):
    found = []
    for generation, joules in (("1", 5e6), ("1", 5e6 + 2.5), ("1", 5e6 + 2), ("1", None), ("1", 5e6 + 4), ("2", 9e6)):
        counted = {"core_energy": Reading(joules) if joules is not None else Reading.none(Missing.ERROR)}
        nothing = {"core_energy": Reading.none(Missing.UNAVAILABLE)}
        groups = {"": GroupReading(generation, vm((4, 7, 7)).caches, {0: counted, 1: nothing})}
        scraped = new_scrape(snapshot(host=replace(HOST, groups=groups)))
        found.append(scraped.of("vmqos_group_core_energy_joules_total"))
    where = (("group", ""), ("owner", "default"), ("package", "0"))
    assert found == [{where: value} if value is not None else {} for value in (0, 2.5, 2.5, None, 4, 0)]
    assert "# TYPE vmqos_group_core_energy_joules_total counter" in scraped.text


def test_where_packages_count_nothing_no_group_has_energy(new_scrape):
    groups = {"": GroupReading("1", vm((4, 7, 7)).caches)}
    assert "energy" not in new_scrape(snapshot(host=replace(HOST, groups=groups))).text


def test_cycles_of_packages_say_so_and_do_not_meet_the_instructions_of_perf(new_scrape):
    cycles = {**EXECUTED["counts"], "instructions": None, "cache_references": None, "cache_misses": None}
    of_packages = {**EXECUTED, "counts": cycles, "share": None, "source": "aet", "reason_code": "no-perf"}
    found = new_scrape(None, replace(TOLD, hardware={**HARDWARE, "vms": {"u": of_packages}}))
    assert found.of("vmqos_vm_cycles_total") == {(("source", "aet"), ("uuid", "u")): cycles["cycles"]}
    assert found.of("vmqos_vm_instructions_total") == {}
    assert found.of("vmqos_vm_hardware_events_missing") == {(("reason", "no-perf"), ("uuid", "u")): 1}
    earlier = {name: value for name, value in EXECUTED.items() if name != "source"}
    found = new_scrape(None, replace(TOLD, hardware={**HARDWARE, "vms": {"u": earlier}}))
    assert found.value("vmqos_vm_cycles_total", uuid="u", source="perf") == cycles["cycles"]


def test_what_a_vm_executes_is_counted_with_the_share_of_the_counters_that_it_had(new_scrape):
    found = new_scrape(None)
    counts = {name: found.value(f"vmqos_vm_{name}_total", uuid="u", source="perf") for name in EXECUTED["counts"]}
    assert counts == EXECUTED["counts"]
    assert found.value("vmqos_vm_hardware_events_running_ratio", uuid="u") == 0.75
    assert found.value("vmqos_hardware_events_up") == 1
    assert found.of("vmqos_vm_hardware_events_missing") == {}


def test_a_vm_that_is_not_counted_has_no_number_and_a_reason(new_scrape):
    other = {**KEPT, "uuid": "v"}
    hardware = {**HARDWARE, "vms": {"u": EXECUTED, "v": NOTHING_EXECUTED, "gone": EXECUTED}}
    found = new_scrape(None, replace(TOLD, vms=[KEPT, other, {**KEPT, "uuid": "new"}], hardware=hardware))
    assert found.of("vmqos_vm_cycles_total") == {(("source", "perf"), ("uuid", "u")): EXECUTED["counts"]["cycles"]}
    assert found.of("vmqos_vm_hardware_events_missing") == {(("reason", "too-many-tasks"), ("uuid", "v")): 1}
    assert found.of("vmqos_vm_hardware_events_running_ratio") == {(("uuid", "u"),): 0.75}


def test_who_slows_whom_is_told_of_vms_that_run(new_scrape):
    assert new_scrape(None, TOLD).of("vmqos_vm_neighbour_slowdown_ratio") == {}
    found = new_scrape(None, replace(TOLD, vms=[KEPT, {**KEPT, "uuid": "v"}]))
    labels = (("cause", "cache"), ("culprit", "v"), ("uuid", "u"))
    assert found.of("vmqos_vm_neighbour_slowdown_ratio") == {labels: 1.5}
    assert found.of("vmqos_vm_cache_use") == {(("use", "starves"), ("uuid", uuid)): 1 for uuid in ("u", "v")}


def test_a_pair_that_is_over_is_no_metric(new_scrape):
    pairs = [{**pair, "until": 950.0} for pair in TOLD.neighbours["pairs"]]
    told = replace(TOLD, vms=[KEPT, {**KEPT, "uuid": "v"}], neighbours={**TOLD.neighbours, "pairs": pairs})
    assert new_scrape(None, told).of("vmqos_vm_neighbour_slowdown_ratio") == {}


def test_an_earlier_agent_judges_no_neighbours(new_scrape):
    found = new_scrape(None, replace(TOLD, neighbours=None))
    assert not [sample for sample in found.samples if "neighbour" in sample.name or sample.name[-3:] == "use"]


def test_an_earlier_agent_counts_no_hardware_events(new_scrape):
    found = new_scrape(None, replace(TOLD, hardware=None))
    assert not [sample for sample in found.samples if "hardware" in sample.name or "cycles" in sample.name]


def test_what_openstack_was_told_is_a_metric_where_it_is_told_anything(scrape):
    found = scrape(None)
    assert found.value("vmqos_placement_up") == 1
    assert found.value("vmqos_placement_failures_total") == 2
    assert found.value("vmqos_placement_inventory", resource_class="CUSTOM_LLC_WAYS") == 9
    assert (found.value("vmqos_nova_up"), found.value("vmqos_flavors_unknown")) == (0, 3)
    silent = scrape(None, replace(TOLD, health={**HEALTH, "placement": None, "nova": None, "notifications": None}))
    words = "placement", "nova", "notifications"
    assert not [sample for sample in silent.samples if any(word in sample.name for word in words)]


@pytest.mark.parametrize(("changes", "up"), [({}, 0), ({"error": None}, 1)])
def test_how_notifications_are_sent_is_a_metric_where_any_are(scrape, changes, up):
    found = scrape(None, replace(TOLD, health={**HEALTH, "notifications": {**NOTIFICATIONS, **changes}}))
    told = {name: found.value(f"vmqos_gateway_notifications_{name}") for name in ("up", "waiting")}
    told |= {name: found.value(f"vmqos_gateway_notifications_{name}_total") for name in ("sent", "failed", "lost")}
    assert told == {"up": up, "waiting": 6, "sent": 4, "failed": 5, "lost": 7}
    assert found.value("vmqos_gateway_notifications_last_success_timestamp_seconds") == 1000


def test_a_gateway_that_has_sent_nothing_yet_tells_no_time_of_it(scrape):
    found = scrape(None, replace(TOLD, health={**HEALTH, "notifications": {**NOTIFICATIONS, "sent_at": None}}))
    assert not found.of("vmqos_gateway_notifications_last_success_timestamp_seconds")
    assert found.value("vmqos_gateway_notifications_up") == 0


@pytest.mark.parametrize(
    ("changes", "up"), [({}, 1), ({"error": "can't be reached"}, 0), ({"told_at": None, "inventories": {}}, 0)]
)
def test_placement_is_up_where_it_was_told_and_has_it_still(scrape, changes, up):
    told = TOLD.health["placement"] | changes
    found = scrape(None, replace(TOLD, health={**HEALTH, "placement": told}))
    assert found.value("vmqos_placement_up") == up
    assert len(found.of("vmqos_placement_inventory")) == len(told["inventories"])


def test_a_limit_of_bandwidth_is_a_ratio_or_bytes_per_second(scrape):
    who = {**WHO, "cache": "0"}
    found = scrape(None)
    assert found.value("vmqos_vm_memory_bandwidth_limit_ratio", **who) == 0.5
    assert not found.of("vmqos_vm_memory_bandwidth_limit_bytes_per_second")
    found = scrape(None, replace(TOLD, vms=[IN_BYTES]))
    assert found.value("vmqos_vm_memory_bandwidth_limit_bytes_per_second", **who) == 4e9
    assert not found.of("vmqos_vm_memory_bandwidth_limit_ratio")


def test_what_a_vm_is_called_is_told_once_and_its_other_series_go_on_when_that_changes(new_scrape):
    counted = snapshot(vm((4096, 100, 60), (0, 7, 7), packages={0: {"core_energy": Reading(1.5)}}))
    renamed = {**KEPT, "instance_name": "db-2", "flavor": "silver", "policy": None, "group": "vmqos.shared-2"}
    first, second = new_scrape(counted), new_scrape(counted, replace(TOLD, vms=[renamed]))
    assert first.value("vmqos_vm_info", **WHO, policy="exclusive", group="vmqos.u") == 1
    who = {"uuid": "u", "name": "db-2", "project": "p", "flavor": "silver"}
    assert second.of("vmqos_vm_info") == {tuple(sorted({**who, "policy": "", "group": "vmqos.shared-2"}.items())): 1}
    with_a_name = {one.name for one in first.samples if {"name", "project", "flavor"} & one.labels.keys()}
    assert with_a_name == {"vmqos_vm_info"}
    series = [
        {(one.name, *sorted(one.labels.items())) for one in found.samples if one.name != "vmqos_vm_info"}
        for found in (first, second)
    ]
    assert series[0] == series[1]


def test_a_sum_counts_nothing_twice(new_scrape):
    caches = vm((4096, 100, 60), (0, 7, 5), uuid="u").caches
    new_scrape(snapshot(host=replace(HOST, caches=vm((0, 0, 0), (0, 0, 0)).caches)))
    found = new_scrape(snapshot(vm((4096, 100, 60), (0, 7, 5)), host=replace(HOST, caches=caches)))
    for whose in ("vm", "default_group"):
        traffic = found.of(f"vmqos_{whose}_memory_traffic_bytes_total")
        parts = found.of(f"vmqos_{whose}_memory_traffic_by_scope_bytes_total")
        assert sum(traffic.values()) == sum(parts.values()) == 107
        remote = sum(value for labels, value in parts.items() if ("scope", "remote") in labels)
        assert (len(traffic), len(parts), remote) == (2, 4, 42)


def test_the_whole_is_told_where_its_parts_are_not_counted(new_scrape):
    found = new_scrape(snapshot(vm((4096, 100, Missing.NO_COUNTER))))
    assert found.value("vmqos_vm_memory_traffic_bytes_total", uuid="u", cache="0") == 100
    assert found.of("vmqos_vm_memory_traffic_by_scope_bytes_total") == {}
    assert found.value("vmqos_vm_telemetry_missing", uuid="u", event="mbm_local_bytes", reason="no-counter") == 1


@pytest.mark.parametrize(("state", "kept"), [("kept", 1), ("pending", 0), ("degraded", 0), ("none", None)])
def test_each_state_is_told_and_a_promise_is_kept_or_not_where_there_is_one(new_scrape, state, kept):
    found = new_scrape(None, replace(TOLD, vms=[{**KEPT, "state": state, "reason_code": "no-ways"}]))
    told = {dict(labels)["state"]: value for labels, value in found.of("vmqos_vm_promise_state").items()}
    assert told == {**dict.fromkeys(("kept", "pending", "degraded", "none"), 0), state: 1}
    assert found.value("vmqos_vm_promise_kept", uuid="u") == kept
    assert found.value("vmqos_vm_promise_reason", uuid="u", reason="no-ways") == 1


def test_how_long_a_promise_was_kept_is_counted(new_scrape):
    found = new_scrape(None)
    assert found.of("vmqos_vm_promise_reason") == {}
    assert found.value("vmqos_vm_promise_state_changes_total", uuid="u") == 3
    assert found.value("vmqos_vm_promise_seconds_total", uuid="u") == 90
    assert found.value("vmqos_vm_promise_kept_seconds_total", uuid="u") == 60.5


@pytest.mark.parametrize(
    ("state", "promised", "kept"),
    [("kept", 107, 77.5), ("degraded", 107, 60.5), ("pending", 107, 60.5), ("none", 90, 60.5)],
)
def test_how_long_a_promise_was_kept_goes_on_while_nothing_changes(new_scrape, state, promised, kept):
    found = new_scrape(None, replace(TOLD, vms=[{**KEPT, "state": state}], listing_age=17.0))
    assert found.value("vmqos_vm_promise_seconds_total", uuid="u") == promised
    assert found.value("vmqos_vm_promise_kept_seconds_total", uuid="u") == kept


def test_of_the_same_listing_the_same_metrics_are_told():
    told = [TOLD, replace(TOLD, listing_age=15.0), replace(TOLD, vms=[*TOLD.vms]), replace(TOLD, caches=[*TOLD.caches])]
    answers = iter(told)
    collector = HostCollector(lambda: next(answers))
    first, same, other_vms, other_caches = ({one.name: one for one in collector.collect()} for _ in told)
    kept = {name for name in first if first[name] is same[name]}
    assert kept >= {
        "vmqos_vm_info",
        "vmqos_vm_promise_state",
        "vmqos_vm_tasks",
        "vmqos_vm_cache_ways",
        "vmqos_vm_state",
    }
    assert "vmqos_vm_promise_seconds" not in kept
    for later in (other_vms, other_caches):
        assert not any(first[name] is later[name] for name in first)


def test_an_earlier_agent_does_not_count_them_and_is_told_all_the_same(new_scrape):
    added = ("state_changes", "promised_seconds", "kept_seconds", "outside_at_start", "outside_later")
    earlier = {key: value for key, value in KEPT.items() if key not in added}
    found = new_scrape(None, replace(TOLD, vms=[earlier]))
    assert found.value("vmqos_vm_promise_kept", uuid="u") == 1
    for name in ("state_changes", "seconds", "kept_seconds"):
        assert found.of(f"vmqos_vm_promise_{name}_total") == {}


def test_what_is_not_known_of_the_start_of_a_vm_is_no_number(new_scrape):
    found = new_scrape(None, replace(TOLD, vms=[{**KEPT, "outside_at_start": None, "outside_later": 0.5}]))
    told = found.of("vmqos_vm_outside_cpu_seconds_total")
    assert [(dict(labels)["when"], seconds) for labels, seconds in told.items()] == [("later", 0.5)]


def test_tasks_that_are_not_in_place_are_counted(new_scrape):
    found = new_scrape(None, replace(TOLD, vms=[{**KEPT, "tasks": 5, "tasks_in_place": 3}]))
    assert (found.value("vmqos_vm_tasks", uuid="u"), found.value("vmqos_vm_tasks_out_of_place", uuid="u")) == (5, 2)


def test_a_vm_whose_tasks_were_not_looked_at_has_no_number_of_tasks(new_scrape):
    found = new_scrape(None, replace(TOLD, vms=[{**KEPT, "tasks": 0, "tasks_in_place": 0}]))
    assert found.of("vmqos_vm_tasks") == found.of("vmqos_vm_tasks_out_of_place") == {}


def test_when_each_part_was_last_done_is_told(new_scrape):
    ages = {"vms": 1.5, "pass": 0.5, "counters": None}
    with at(5000):
        found = new_scrape(None, replace(TOLD, health={**HEALTH, "placement": PLACEMENT, "ages": ages}))
    assert found.value("vmqos_last_vms_look_timestamp_seconds") == 4998.5
    assert found.value("vmqos_last_pass_timestamp_seconds") == 4999.5
    assert found.value("vmqos_last_sweep_timestamp_seconds") == 4940, "the agent's start: it was never done"
    assert found.value("vmqos_placement_told_timestamp_seconds") == 1000


def test_without_the_option_no_old_name_is_told_and_with_it_no_new_one_is_missing(scrape, new_scrape):
    counted = vm((4096, 100, 60), (0, Missing.ERROR, 7), packages={0: {"core_energy": Reading(1.5)}})
    found = snapshot(counted, host=replace(HOST, caches=counted.caches))
    both, new = ({one.name for one in scraped(found).samples} for scraped in (scrape, new_scrape))
    assert new < both
    assert both - new == {
        "vmqos_vm_state", "vmqos_vm_memory_bytes_total", "vmqos_vm_counter_missing",
        "vmqos_default_group_memory_bytes_total", "vmqos_sweep_seconds",
        "vmqos_vms_look_age_seconds", "vmqos_pass_age_seconds", "vmqos_sweep_age_seconds",
    }  # fmt: skip


def test_a_vm_on_24_caches_has_at_most_this_many_series(scrape, new_scrape):
    """The reference tells operators these numbers; Genoa has 12 L3 caches a socket."""
    masks = {str(cache): "3" for cache in range(24)}
    on_all = {**KEPT, "masks": masks, "l2_masks": {}, "bandwidth": dict.fromkeys(masks, 50)}
    told = replace(TOLD, vms=[on_all], caches=[{**CACHE, "id": cache} for cache in range(24)])
    found = snapshot(vm(*[(4096, 100, 60)] * 24))
    numbers = [
        len([one for one in scraped(found, told).samples if one.labels.get("uuid") == "u"])
        for scraped in (new_scrape, scrape)
    ]
    assert numbers == [187, 260]


def test_a_vm_that_waits_for_counters_has_the_age_of_its_last_bandwidth_and_no_stale_bytes():
    found = telemetry(snapshot(vm((4096, Missing.UNASSIGNED, Missing.UNASSIGNED)), vm((0, 0, 0), uuid="v")))
    found["vms"]["u"]["measured"] = {"rates": {"total": 1.0, "local": 1.0, "remote": 0.0}, "age_seconds": 23.5}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HostCollector(lambda: replace(TOLD, telemetry=found), True))
    scraped = Scraped(generate_latest(registry).decode())
    assert scraped.of("vmqos_vm_reading_age_seconds") == {(("uuid", "u"),): 23.5}
    assert scraped.of("vmqos_vm_memory_traffic_bytes_total") == {}
    assert scraped.value("vmqos_vm_telemetry_missing", uuid="u", event="mbm_total_bytes", reason="unassigned") == 1
