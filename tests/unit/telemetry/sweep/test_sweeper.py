# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.sweeper, on plain files; tests/functional/telemetry has those on a resctrl."""

import errno
import fcntl
import os
import shutil
import time

import pytest

from tests.unit.telemetry.tree import ONE, THREE, TWO, Tree, open_files
from vmqos.resctrl import exceptions
from vmqos.telemetry import EVENTS, Missing, Reading, Sweeper
from vmqos.telemetry.sweep.counts import read_all

OCCUPANCY, TOTAL, LOCAL = EVENTS


def test_one_sweep_reads_every_vm_and_the_host(tree, sweeper):
    tree.control("", "1ff")
    own = tree.control(f"vmqos.{ONE}", "600")
    tree.set(own, TOTAL, 700)
    tree.control("vmqos.shared-ways2", "3")
    tree.vm(TWO, "vmqos.shared-ways2", llc_occupancy=4096)
    tree.vm(THREE)
    tree.set(tree.root, OCCUPANCY, 8192)

    before = time.monotonic()
    found = sweeper.sweep()

    assert found.vms.keys() == {ONE, TWO, THREE}
    one, two, three = (found.vms[uuid] for uuid in (ONE, TWO, THREE))
    assert (one.group, one.policy, one.ways, one.allocated_bytes) == (
        f"vmqos.{ONE}",
        "exclusive",
        {0: 2, 1: 2},
        2 * 3145728,
    )
    assert (two.group, two.policy, two.ways) == ("vmqos.shared-ways2", "shared", {0: 2, 1: 2})
    assert (three.group, three.policy, three.ways, three.allocated_bytes) == ("", None, {}, None)
    assert one.totals[TOTAL] == Reading(1400)
    assert two.caches[1][OCCUPANCY] == Reading(4096)
    assert found.host.totals[OCCUPANCY] == Reading(2 * 8192)
    assert (found.host.ways, found.host.ways_free) == ({0: 11, 1: 11}, {0: 9, 1: 9})
    assert found.host.cache_bytes == {0: 17301504, 1: 17301504}
    assert (found.host.closids, found.host.closids_used, found.host.rmids, found.host.rmids_used) == (16, 3, 192, 5)
    assert before <= found.monotonic <= one.read_at <= time.monotonic()
    assert 0 < found.sweep_seconds < time.monotonic() - before + 1


def test_a_word_instead_of_a_number_is_a_reason_and_the_other_caches_stay(tree, sweeper):
    group = tree.vm(ONE, llc_occupancy=4096)
    tree.set(group, OCCUPANCY, "Unavailable", 1)
    vm = sweeper.sweep().vms[ONE]
    assert vm.totals[OCCUPANCY] == Reading(None, Missing.UNAVAILABLE)
    assert vm.caches[0][OCCUPANCY] == Reading(4096)
    assert vm.totals[TOTAL] == Reading(0)


def test_vms_that_come_and_go_are_followed(tree, sweeper):
    assert sweeper.sweep().vms == {}
    group = tree.vm(ONE)
    assert sweeper.sweep().vms.keys() == {ONE}
    tree.remove(group)
    assert sweeper.sweep().vms == {}
    assert not any(ONE in path for path in open_files(tree.root))


def test_a_vm_keeps_its_generation_from_sweep_to_sweep_and_into_another_class(tree, sweeper):
    group = tree.vm(ONE, llc_occupancy=4096)
    tree.control("vmqos.shared-ways2", "3")
    first = sweeper.sweep().vms[ONE]
    group.rename(tree.root / "vmqos.shared-ways2" / "mon_groups" / group.name)
    second = sweeper.sweep().vms[ONE]
    assert (first.policy, second.policy) == (None, "shared")
    assert first.generation == second.generation
    assert second.totals[OCCUPANCY] == Reading(2 * 4096)


def test_a_group_that_was_made_anew_is_another_generation(tree, make_sweeper):
    sweeper = make_sweeper(tree, keep_open=False)
    group = tree.vm(ONE)
    first = sweeper.sweep().vms[ONE].generation
    # Kept for a moment, so that its inode's number is not given to the next one.
    group.rename(tree.root / "old")
    tree.vm(ONE)
    assert sweeper.sweep().vms[ONE].generation not in ("", first)


def test_a_changed_mask_is_seen(tree, sweeper):
    tree.control("", "1ff")
    tree.control(f"vmqos.{ONE}", "600")
    assert sweeper.sweep().vms[ONE].ways == {0: 2, 1: 2}
    tree.control("", "0ff")
    tree.control(f"vmqos.{ONE}", "700")
    assert sweeper.sweep().vms[ONE].ways == {0: 3, 1: 3}


def test_a_cache_that_goes_offline_is_gone_from_every_reading(tree, sweeper):
    group = tree.vm(ONE, llc_occupancy=4096)
    assert sweeper.sweep().vms[ONE].totals[OCCUPANCY] == Reading(8192)
    for where in (group, tree.root):
        tree.remove(where / "mon_data" / "mon_L3_01")
    assert sweeper.sweep().vms[ONE].totals[OCCUPANCY] == Reading(4096)
    assert sweeper.sweep().vms[ONE].caches.keys() == {0}


@pytest.mark.parametrize("keep_open", [True, False])
def test_a_cache_that_was_offline_meanwhile_begins_another_generation(tree, make_sweeper, tmp_path_factory, keep_open):
    group = tree.vm(ONE, mbm_total_bytes=1)
    sweeper = make_sweeper(tree, keep_open=keep_open)
    before = sweeper.sweep().vms[ONE]
    for where in (group, tree.root):
        domain = where / "mon_data" / "mon_L3_01"
        # Not removed, lest its inode number is used again at once, which resctrl's never are.
        moved = domain.rename(tmp_path_factory.mktemp("gone") / "domain")
        shutil.copytree(moved, domain)
    tree.set(group, TOTAL, 5000)
    after = sweeper.sweep().vms[ONE]
    assert after.totals[TOTAL] == Reading(10000)
    assert after.generation != before.generation
    assert sweeper.sweep().vms[ONE].generation == after.generation


def test_nothing_is_open_after_close_and_nothing_between_sweeps_where_nothing_is_kept(tree, make_sweeper):
    tree.vm(ONE)
    keeping, other = make_sweeper(tree), make_sweeper(tree, keep_open=False)
    other.sweep()
    assert open_files(tree.root) == []
    keeping.sweep()
    assert len(open_files(tree.root)) == 2 * 6 + 1
    keeping.close()
    assert open_files(tree.root) == []
    assert keeping.sweep().vms.keys() == {ONE}


def test_more_vms_than_files_may_be_open_are_read_all_the_same(tree, make_sweeper, monkeypatch):
    monkeypatch.setattr("vmqos.telemetry.descriptors.raise_limit", lambda: 13)
    for uuid in (ONE, TWO, THREE):
        tree.vm(uuid, llc_occupancy=4096)
    sweeper = make_sweeper(tree)
    for _ in range(2):
        assert {vm.totals[OCCUPANCY] for vm in sweeper.sweep().vms.values()} == {Reading(8192)}
        assert len([path for path in open_files(tree.root) if "mon_data" in path]) == 12


def test_a_reader_that_may_not_read_a_group_says_so_for_that_group(tree, sweeper, monkeypatch):
    real = os.open

    def refuse(path, *arguments, **options):
        if ONE in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    tree.vm(ONE)
    tree.vm(TWO)
    found = sweeper.sweep().vms
    assert found[ONE].totals[TOTAL] == Reading(None, Missing.UNREADABLE)
    assert found[TWO].totals[TOTAL] == Reading(0)


def test_the_lock_of_another_process_delays_a_sweep_and_does_not_prevent_it(tree, sweeper, monkeypatch):
    monkeypatch.setattr("vmqos.telemetry.sweep.sweeper.LOCK_PATIENCE", 0.05)
    tree.vm(ONE)
    holder = os.open(tree.root, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    assert sweeper.sweep().vms.keys() == {ONE}
    os.close(holder)


def test_the_lock_is_free_while_the_counters_are_read(tree, sweeper, monkeypatch):
    tree.vm(ONE)
    locked = []

    def lock():
        descriptor = os.open(tree.root, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        locked.append(True)

    monkeypatch.setattr("vmqos.telemetry.sweep.counts.TURN", 1)
    monkeypatch.setattr("vmqos.telemetry.sweep.sweeper.read_all", lambda *which: read_all(*which[:3], lock))
    sweeper.sweep()
    assert len(locked) == 2 * 2


def test_a_machine_that_only_partitions_has_no_counters(tree, sweeper):
    tree.remove(tree.root / "mon_data")
    tree.remove(tree.root / "mon_groups")
    tree.remove(tree.root / "info" / "L3_MON")
    found = sweeper.sweep()
    assert found.vms == {}
    assert found.host.totals[OCCUPANCY] == Reading(None, Missing.NO_COUNTER)
    assert (found.host.rmids, found.host.events) == (0, ())


def test_a_machine_without_local_bandwidth_says_that_it_has_no_such_counter(tmp_path, make_sweeper):
    tree = Tree(tmp_path, events=(OCCUPANCY, TOTAL))
    tree.vm(ONE, mbm_total_bytes=5)
    vm = make_sweeper(tree).sweep().vms[ONE]
    assert vm.totals == {OCCUPANCY: Reading(0), TOTAL: Reading(10), LOCAL: Reading(None, Missing.NO_COUNTER)}


def test_what_is_not_mounted_is_refused_with_what_mends_it(tmp_path):
    with pytest.raises(exceptions.MountError):
        Sweeper(str(tmp_path)).sweep()


def test_files_are_let_go_when_something_else_is_mounted_there(tree, make_sweeper, monkeypatch):
    tree.vm(ONE)
    sweeper = make_sweeper(tree)
    sweeper.sweep()
    sweeper.let_go_if_unmounted()
    assert open_files(tree.root)
    monkeypatch.setattr("vmqos.telemetry.sweep.sweeper._identity", lambda root: "another")
    sweeper.let_go_if_unmounted()
    assert open_files(tree.root) == []


def remove_while_it_is_read(monkeypatch, group, then):
    """A group is removed when it is read for the first time, and then something else happens."""
    real, old = os.pread, group.with_name("old")

    def pread(descriptor, *others):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(f"{group}/") and not old.exists():
            # Kept for a moment, so that its inode's number is not given to the next one.
            group.rename(old)
            then()
        elif not path.startswith(f"{old}/"):
            return real(descriptor, *others)
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "pread", pread)


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_group_that_goes_while_it_is_read_is_read_as_what_is_there_then(tree, make_sweeper, monkeypatch, made_anew):
    group = tree.vm(ONE, llc_occupancy=4096)
    tree.vm(TWO, llc_occupancy=4096)
    sweeper = make_sweeper(tree)
    first = sweeper.sweep().vms[ONE]
    remove_while_it_is_read(monkeypatch, group, lambda: made_anew and tree.vm(ONE, llc_occupancy=1))
    found = sweeper.sweep().vms
    assert found[TWO].totals[OCCUPANCY] == Reading(2 * 4096)
    if made_anew:
        assert found[ONE].totals[OCCUPANCY] == Reading(2)
        assert found[ONE].generation not in ("", first.generation)
    else:
        assert set(found[ONE].totals.values()) == {Reading(None, Missing.VANISHED)}
        assert set(found[ONE].caches[1].values()) == {Reading(None, Missing.VANISHED)}
        assert found[ONE].generation == ""
        assert sweeper.sweep().vms.keys() == {TWO}


@pytest.mark.parametrize("keep_open", [True, False])
def test_a_vm_in_two_control_groups_is_the_sum_of_both(tree, make_sweeper, keep_open):
    sweeper = make_sweeper(tree, keep_open=keep_open)
    rest = tree.vm(ONE, llc_occupancy=1)
    alone = sweeper.sweep().vms[ONE]
    own = tree.control(f"vmqos.{ONE}", "600")
    tree.set(own, OCCUPANCY, 4096)
    tree.vm(TWO, llc_occupancy=7)
    found = sweeper.sweep()
    both = found.vms[ONE]
    assert found.vms.keys() == {ONE, TWO} and found.vms[TWO].totals[OCCUPANCY] == Reading(14)
    assert (both.group, both.policy) == (own.name, "exclusive")
    assert both.caches[1][OCCUPANCY] == Reading(4097) and both.totals[OCCUPANCY] == Reading(2 * 4097)
    assert sweeper.sweep().vms[ONE].generation == both.generation
    tree.set(rest, OCCUPANCY, "Unavailable", 1)
    part = sweeper.sweep().vms[ONE]
    assert part.caches[0][OCCUPANCY] == Reading(4097)
    assert part.caches[1][OCCUPANCY] == part.totals[OCCUPANCY] == Reading(None, Missing.UNAVAILABLE)
    tree.remove(rest)
    after = sweeper.sweep().vms[ONE]
    assert after.totals[OCCUPANCY] == Reading(2 * 4096)
    assert len({alone.generation, both.generation, after.generation}) == 3
    assert not any("mon_groups" in path and ONE in path for path in open_files(tree.root))


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_vms_second_group_that_goes_while_it_is_read_leaves_no_sum(tree, make_sweeper, monkeypatch, made_anew):
    rest, _ = tree.vm(ONE, llc_occupancy=1), tree.control(f"vmqos.{ONE}", "600")
    sweeper = make_sweeper(tree)
    first = sweeper.sweep().vms[ONE]
    remove_while_it_is_read(monkeypatch, rest, lambda: made_anew and tree.vm(ONE, llc_occupancy=5))
    found = sweeper.sweep().vms[ONE]
    if made_anew:
        assert found.totals[OCCUPANCY] == Reading(10)
    else:
        assert set(found.totals.values()) == {Reading(None, Missing.VANISHED)}
    assert found.generation != first.generation


CYCLES, ENERGY = "unhalted_core_cycles", "core_energy"


COUNTING_PACKAGES = pytest.mark.parametrize("packages", [(0, 1)])


@COUNTING_PACKAGES
def test_what_an_earlier_group_with_the_rmid_had_counted_in_packages_is_no_vms(tree, sweeper):
    group = tree.vm(ONE)
    tree.set_package(group, CYCLES, 10**12, 0)
    tree.set_package(group, ENERGY, "1000.250000", 0)
    before = sweeper.sweep().vms[ONE]
    assert before.packages[0] == {CYCLES: Reading(0), ENERGY: Reading(0)}
    assert before.packages[1][CYCLES] == Reading.none(Missing.UNAVAILABLE)
    assert before.since == pytest.approx(time.time(), abs=60)
    tree.set_package(group, CYCLES, 10**12 + 500, 0)
    tree.set_package(group, CYCLES, 70, 1)
    tree.set_package(group, ENERGY, "1001.750000", 0)
    after = sweeper.sweep().vms[ONE]
    assert (after.packages[0], after.packages[1][CYCLES]) == ({CYCLES: Reading(500), ENERGY: Reading(1.5)}, Reading(70))
    assert (after.totals[CYCLES], after.totals[ENERGY]) == (Reading(570), Reading(1.5))
    assert (after.generation, after.since) == (before.generation, before.since)


@COUNTING_PACKAGES
def test_a_vms_next_group_begins_at_0_again_and_the_hosts_is_as_the_kernel_tells_it(tree, sweeper):
    group = tree.vm(ONE)
    tree.set_package(tree.root, CYCLES, 10**15)
    for counted in (100, 300):
        tree.set_package(group, CYCLES, counted)
        found = sweeper.sweep()
    assert found.vms[ONE].totals[CYCLES] == Reading(400)
    assert found.host.totals[CYCLES] == Reading(2 * 10**15)
    tree.remove(group)
    sweeper.sweep()
    tree.set_package(tree.vm(ONE), CYCLES, 10**9)
    assert sweeper.sweep().vms[ONE].totals[CYCLES] == Reading(0)


@COUNTING_PACKAGES
def test_a_counter_of_a_package_that_fails_at_first_begins_with_its_first_number(tree, sweeper):
    group = tree.vm(ONE)
    found = []
    for text in ("Error", 700, 900, 800):
        tree.set_package(group, CYCLES, text, 0)
        found.append(sweeper.sweep().vms[ONE].packages[0][CYCLES])
    assert found == [Reading.none(Missing.ERROR), Reading(0), Reading(200), Reading(100)]


@COUNTING_PACKAGES
def test_a_vm_in_two_control_groups_is_the_sum_of_what_both_counted_since(tree, sweeper):
    rest, own = tree.vm(ONE), tree.control(f"vmqos.{ONE}", "600")
    for more in (0, 30):
        tree.set_package(rest, CYCLES, 1000 + more, 0)
        tree.set_package(own, CYCLES, 5000 + more, 0, 1)
        found = sweeper.sweep().vms[ONE]
    assert (found.packages[0][CYCLES], found.packages[1][CYCLES]) == (Reading(60), Reading(30))
    assert found.totals[CYCLES] == Reading(90) and found.since is not None


@COUNTING_PACKAGES
def test_what_packages_count_for_a_control_group_is_without_the_vms_in_it(tree, make_sweeper):
    """The kernel adds what it has of the VMs, and that of a VM's RMID from before its group, too."""
    group, idle = tree.vm(ONE), tree.vm(TWO)
    sweeper = make_sweeper(tree, control_groups=True)
    for own, of_vm in ((50, 10**9), (80, 10**9 + 5)):
        tree.set_package(group, CYCLES, of_vm, 0)
        tree.set_package(tree.root, CYCLES, own + of_vm, 0)
        tree.set_package(tree.root, CYCLES, own, 1)
        packages = sweeper.sweep().host.groups[""].packages
        assert [packages[package][CYCLES] for package in (0, 1)] == [Reading(own), Reading(own)]
    tree.remove(group)
    tree.remove(idle)
    tree.set_package(tree.root, CYCLES, 90, 0)
    assert sweeper.sweep().host.groups[""].packages[0][CYCLES] == Reading(90)


def test_nodes_are_read_when_asked_for_and_the_caches_stay_the_sums(tmp_path_factory, make_sweeper):
    tree = Tree(tmp_path_factory.mktemp("snc"), nodes=2)
    group = tree.vm(ONE, llc_occupancy=30)
    for node, held in enumerate((10, 20)):
        (group / f"mon_data/mon_L3_00/mon_sub_L3_0{node}" / OCCUPANCY).write_text(f"{held}\n")
    found = make_sweeper(tree, nodes=True).sweep().vms[ONE]
    assert {node: events[OCCUPANCY] for node, events in found.nodes[0].items()} == {0: Reading(10), 1: Reading(20)}
    assert found.nodes[1].keys() == {2, 3}
    assert found.totals[OCCUPANCY] == Reading(60)
    assert make_sweeper(tree).sweep().vms[ONE].nodes == {}


@pytest.mark.parametrize("keep_open", [True, False])
def test_a_node_that_goes_offline_and_comes_back_takes_no_other_counter_along(
    tmp_path_factory, make_sweeper, keep_open
):
    tree = Tree(tmp_path_factory.mktemp("snc"), nodes=2)
    group, gone = tree.vm(ONE, mbm_total_bytes=30), tmp_path_factory.mktemp("gone")
    sweeper = make_sweeper(tree, nodes=True, keep_open=keep_open)
    first = sweeper.sweep().vms[ONE]
    assert sweeper.sweep().vms[ONE].generation == first.generation
    node = "mon_data/mon_L3_00/mon_sub_L3_01"
    for where in (group, tree.root):
        (where / node).rename(gone / where.name)
    without = sweeper.sweep().vms[ONE]
    assert (without.totals[TOTAL], without.nodes[0].keys()) == (Reading(60), {0})
    assert without.generation != first.generation, "the cache's sums are without what the node had counted"
    for where in (group, tree.root):
        shutil.copytree(gone / where.name, where / node)
    again = sweeper.sweep().vms[ONE]
    assert (again.totals[TOTAL], again.nodes[0].keys()) == (Reading(60), {0, 1})
    assert again.generation not in (first.generation, without.generation)


def test_a_control_group_that_is_no_vms_is_read_when_asked_for_without_the_vms_in_it(tree, make_sweeper):
    own, shared = tree.control(f"vmqos.{ONE}", "600"), tree.control("vmqos.shared-ways2", "3")
    foreign = tree.control("another program's", "c")
    for name, held in (("", 100), (own.name, 2), (shared.name, 10), (foreign.name, 8)):
        tree.set(tree.root / name, OCCUPANCY, held)
    tree.vm(ONE, llc_occupancy=5)
    tree.vm(TWO, shared.name, llc_occupancy=3)
    tree.vm(THREE, llc_occupancy=40)
    sweeper = make_sweeper(tree, control_groups=True)
    found = sweeper.sweep()
    held = {name: group.caches[1][OCCUPANCY].value for name, group in found.host.groups.items()}
    assert held == {"": 100 - 5 - 40, shared.name: 7, foreign.name: 8}
    assert found.vms[ONE].totals[OCCUPANCY] == Reading(14)
    assert sweeper.sweep().host.groups[foreign.name].generation == found.host.groups[foreign.name].generation
    tree.set(tree.root / "mon_groups" / f"vmqos.{THREE}", OCCUPANCY, "Unavailable", 1)
    told = sweeper.sweep().host.groups
    part = told[""].caches
    assert [told[name].caches[1][OCCUPANCY].value for name in (shared.name, foreign.name)] == [7, 8]
    assert (part[0][OCCUPANCY], part[1][OCCUPANCY]) == (Reading(55), Reading.none(Missing.UNAVAILABLE))
    tree.remove(foreign)
    assert sweeper.sweep().host.groups.keys() == {"", shared.name}
    assert make_sweeper(tree).sweep().host.groups == {}


@pytest.mark.parametrize("all_counted_at_first", [True, False])
def test_a_vms_bytes_go_on_when_it_has_its_turn_again_and_the_hosts_do_not_fall_meanwhile(
    tree, sweeper, all_counted_at_first
):
    group, other = tree.vm(ONE, mbm_total_bytes=1000), tree.vm(TWO)
    if not all_counted_at_first:
        tree.set(other, TOTAL, "Unassigned")
    tree.set(tree.root, TOTAL, 5000)
    first = sweeper.sweep()
    # Where turns are under way, an earlier agent may have told more: it begins at 0.
    mine, hosts = (2000, 10000) if all_counted_at_first else (0, 0)
    tree.set(group, TOTAL, "Unassigned")
    tree.set(other, TOTAL, 10)
    tree.set(tree.root, TOTAL, 4010)
    second = sweeper.sweep()
    assert second.vms[ONE].totals[TOTAL] == Reading(None, Missing.UNASSIGNED)
    assert second.vms[TWO].totals[TOTAL] == Reading(20)
    assert second.host.totals[TOTAL] == Reading(hosts + 20)
    tree.set(group, TOTAL, 7)
    tree.set(other, TOTAL, "Unassigned")
    tree.set(tree.root, TOTAL, 4007)
    third = sweeper.sweep()
    assert third.vms[ONE].totals[TOTAL] == Reading(mine + 14)
    assert third.vms[ONE].caches[0][TOTAL] == Reading(mine // 2 + 7)
    assert third.vms[ONE].generation == first.vms[ONE].generation
    assert third.host.totals[TOTAL] == Reading(hosts + 34)
    # What an earlier sweep found is the same whenever the caller looks at it.
    assert first.vms[ONE].totals[TOTAL] == Reading(mine)
    tree.remove(group)
    tree.remove(other)
    tree.set(tree.root, TOTAL, 4000)
    assert sweeper.sweep().host.totals[TOTAL] == Reading(hosts + 20)


def test_what_a_vm_on_trial_left_in_its_class_is_not_carried_to_the_default_group(tree, sweeper):
    tree.control("vmqos.shared-ways2", "3")
    tree.control(f"vmqos.{ONE}", "600")
    left = tree.vm(ONE, "vmqos.shared-ways2", mbm_total_bytes=1000)
    tree.set(tree.root, TOTAL, 30)
    assert sweeper.sweep().host.totals[TOTAL] == Reading(60)
    tree.set(left, TOTAL, "Unassigned")
    assert sweeper.sweep().host.totals[TOTAL] == Reading(60)


def test_a_class_is_told_without_its_vms_while_one_of_them_has_no_counter(tree, make_sweeper):
    tree.control("vmqos.shared-ways2", "3")
    tree.vm(ONE, "vmqos.shared-ways2", mbm_total_bytes="Unassigned")
    tree.vm(TWO, "vmqos.shared-ways2", mbm_total_bytes=30)
    tree.set(tree.root / "vmqos.shared-ways2", TOTAL, 100)
    group = make_sweeper(tree, control_groups=True).sweep().host.groups["vmqos.shared-ways2"]
    assert group.caches[0][TOTAL] == Reading(70)
