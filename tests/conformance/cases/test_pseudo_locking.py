# SPDX-License-Identifier: Apache-2.0
"""Cache pseudo-locking as far as it shows in resctrl's files.

On the machines that can do it, it is tried with the cache that comes first in ``schemata``'s grammar; a region is
locked in one cache only, and the CPUs of that cache cannot have another.
"""

from __future__ import annotations

import os

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.differences import UMOUNT_HANGS_ON_A_LOCKED_REGION
from tests.conformance.layout import HIGH, LOW, apart, every_way, exclusive, give
from tests.conformance.registers import mask

SETUP, LOCKED = "pseudo-locksetup\n", "pseudo-locked\n"
HIDDEN = ("tasks", "cpus", "cpus_list")


@pytest.fixture
def prepared(rdt):
    """A group in ``pseudo-locksetup``; the default group has left it :data:`LOW`."""
    rdt.group("g")
    give(rdt, "", HIGH)
    assert rdt.write("g/mode", SETUP) == done()
    return rdt


@pytest.fixture
def locked(prepared, cache):
    """A group that has locked two ways of the first cache."""
    assert prepared.write("g/schemata", f"{cache.name}:0=3\n") == done()
    return prepared


@needs.NO_PSEUDO_LOCK
def test_most_processors_cannot_do_it(rdt):
    rdt.group("g")
    assert rdt.write("g/mode", SETUP) == invalid("Pseudo-locking not supported")
    assert rdt.read("g/mode") == "shareable\n"


def test_the_default_group_cannot_be_locked(rdt):
    assert rdt.write("mode", SETUP) == invalid("Cannot pseudo-lock default group")


@needs.PSEUDO_LOCK
def test_a_group_in_setup_has_no_masks_yet(prepared, cache):
    assert prepared.read("g/mode") == SETUP
    assert prepared.read("g/schemata") == f"{cache.name}:uninitialized\n"
    zeros = dict.fromkeys(prepared.cache_ids(cache.level), "0")
    assert prepared.lines("g/size") == {cache.name: zeros}


@needs.PSEUDO_LOCK
def test_a_group_in_setup_hides_what_it_cannot_have(prepared):
    for name in HIDDEN:
        assert prepared.permissions(f"g/{name}") == "100000"
        assert prepared.refusal_to_read(f"g/{name}") == "EACCES"
        assert prepared.write(f"g/{name}", "1\n") == refused("EACCES")
    if prepared.profile.monitoring:
        assert prepared.permissions("g/mon_groups") == "40000"
        assert prepared.mkdir("g/mon_groups/m") == invalid("Pseudo-locking in progress")


@needs.PSEUDO_LOCK
def test_permissions_that_root_gives_back_do_not_help(prepared):
    for name in ("cpus", "tasks"):
        assert prepared.do("chmod", f"g/{name}", lambda path: os.chmod(path, 0o644)) == done()
        assert prepared.write("g/mode", SETUP) == done()
        assert prepared.write(f"g/{name}", "1\n") == invalid("Pseudo-locking in progress")
        assert prepared.write("g/mode", SETUP) == done()


@needs.PSEUDO_LOCK
def test_the_way_back_is_shareable(prepared, cache):
    assert prepared.write("g/mode", "shareable\n").errno is None
    assert prepared.read("g/mode") == "shareable\n"
    assert [prepared.permissions(f"g/{name}") for name in HIDDEN] == ["100644"] * 3
    assert prepared.write("g/schemata", f"{cache.name}:0={LOW:x}\n") == done()


@needs.PSEUDO_LOCK
def test_the_way_back_is_exclusive_too_if_nobody_overlaps(rdt):
    apart(rdt)
    assert rdt.write("g/mode", SETUP) == done()
    assert rdt.write("g/mode", "exclusive\n").errno is None
    assert rdt.read("g/mode") == "exclusive\n"


@needs.PSEUDO_LOCK
def test_the_way_back_is_not_exclusive_if_somebody_overlaps(rdt):
    rdt.group("g")
    assert rdt.write("g/mode", SETUP) == done()
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")
    assert rdt.read("g/mode") == SETUP


@needs.PSEUDO_LOCK
def test_an_exclusive_group_can_go_into_setup(rdt):
    exclusive(rdt)
    assert rdt.write("g/mode", SETUP) == done()
    assert rdt.read("g/mode") == SETUP


@needs.PSEUDO_LOCK
def test_a_group_with_tasks_cannot_go_into_setup(rdt, tasks):
    task = tasks.start("task")
    rdt.group("g")
    assert rdt.write("g/tasks", f"{task}\n") == done()
    assert rdt.write("g/mode", SETUP) == invalid("Tasks assigned to resource group")
    assert rdt.write("tasks", f"{task}\n") == done()
    assert rdt.write("g/mode", SETUP) == done()


@needs.PSEUDO_LOCK
def test_a_group_with_cpus_cannot_go_into_setup(rdt):
    rdt.group("g")
    assert rdt.write("g/cpus_list", "1\n").errno is None
    assert rdt.write("g/mode", SETUP) == invalid("CPUs assigned to resource group")


@needs.PSEUDO_LOCK
@needs.MONITORING
def test_a_group_with_monitoring_groups_cannot_go_into_setup(rdt):
    rdt.group("g")
    rdt.group("g/mon_groups/m")
    assert rdt.write("g/mode", SETUP) == invalid("Monitoring in progress")


@needs.PSEUDO_LOCK
def test_a_region_meets_nobody(rdt, cache):
    rdt.group("g")
    rdt.group("h")
    give(rdt, "", HIGH)
    give(rdt, "h", LOW)
    assert rdt.write("g/mode", SETUP) == done()
    assert rdt.write("g/schemata", f"{cache.name}:0=3\n") == invalid("Overlaps with other group")
    assert rdt.write("g/schemata", f"{cache.name}:0=10\n") == invalid("Overlaps with other group")
    assert rdt.write("h/mode", "exclusive\n") == done()
    assert rdt.write("g/schemata", f"{cache.name}:0=3\n") == invalid("Overlaps with exclusive group")
    assert rdt.read("g/mode") == SETUP


@needs.PSEUDO_LOCK
def test_a_region_is_written_like_a_mask(prepared, cache):
    wide = f"{1 << cache.ways:x}"
    for text, answer in (
        (f"{cache.name}:0=5\n", invalid("The mask 5 has non-consecutive 1-bits")),
        (f"{cache.name}:0=0\n", invalid("Mask out of range")),
        (f"{cache.name}:0={wide}\n", invalid("Mask out of range")),
        (f"{cache.name}:0=zz\n", invalid("Non-hex character in the mask zz")),
        (f"{cache.name}:99=3\n", refused("EINVAL")),
        (f"{cache.name}:0\n", invalid("Missing '=' or non-numeric domain")),
    ):
        assert prepared.write("g/schemata", text) == answer
    assert prepared.read("g/mode") == SETUP
    assert prepared.read("g/schemata") == f"{cache.name}:uninitialized\n"


@needs.PSEUDO_LOCK
def test_a_locked_region_shows_itself(locked, cache):
    assert locked.read("g/mode") == LOCKED
    assert locked.read("g/schemata") == f"{cache.name}:0=3\n"
    one = locked.profile.topology.caches(cache.level)[0]
    assert locked.lines("g/size") == {cache.name: {0: str(one.size // cache.ways * 2)}}
    assert locked.cpus("g") == (f"{min(one.cpus)}-{max(one.cpus)}" if len(one.cpus) > 1 else f"{min(one.cpus)}")
    assert locked.usage(cache.name)[0].endswith("00PP")
    assert not locked.usage(cache.name)[1].endswith("P")


@needs.PSEUDO_LOCK
def test_the_region_was_written_to_the_classs_register(locked, cache):
    assert locked.register(cache.level, 0, mask(cache.level, 1)) == 3


@needs.PSEUDO_LOCK
def test_a_locked_group_can_only_be_removed(locked, cache):
    assert locked.write("g/schemata", f"{cache.name}:0=3\n") == invalid("Resource group is pseudo-locked")
    for mode in ("shareable\n", "exclusive\n", SETUP, "x\n"):
        assert locked.write("g/mode", mode) == invalid("Cannot change pseudo-locked group")
    assert locked.write("g/mode", LOCKED) == done()
    for name in ("cpus", "cpus_list"):
        assert locked.permissions(f"g/{name}") == "100444"
        assert locked.write(f"g/{name}", "1\n") == refused("EACCES")
    assert locked.permissions("g/tasks") == "100000"
    assert locked.rmdir("g").errno is None


@needs.PSEUDO_LOCK
def test_a_write_that_names_two_caches_locks_the_first(prepared, cache):
    *_, last = prepared.cache_ids(cache.level)
    assert prepared.write("g/schemata", f"{cache.name}:{last}=3;0=3\n") == done()
    assert prepared.read("g/schemata") == f"{cache.name}:{last}=3\n"


@needs.PSEUDO_LOCK
def test_nobody_takes_a_locked_way(locked, cache):
    locked.group("h")
    for path in ("schemata", "h/schemata"):
        for wanted in (1, 3, LOW, LOW | HIGH):
            answer = locked.write(path, f"{cache.name}:0={wanted:x}\n")
            assert answer == invalid("CBM overlaps with pseudo-locked region")
        assert locked.write(path, f"{cache.name}:1={LOW:x}\n") == done()


@needs.PSEUDO_LOCK
def test_a_new_group_gets_no_locked_way(locked, cache):
    locked.group("h")
    assert locked.masks(cache.name, "h")[0] == every_way(cache) & ~3


@needs.PSEUDO_LOCK
def test_the_cpus_of_a_locked_cache_take_no_second_region(locked, cache):
    locked.group("h")
    assert locked.write("h/mode", SETUP) == done()
    assert locked.write("h/schemata", f"{cache.name}:0=c\n") == invalid("Pseudo-locked region in hierarchy")
    assert locked.write("h/schemata", f"{cache.name}:1=3\n") == done()
    assert locked.read("h/mode") == LOCKED


@needs.PSEUDO_LOCK
def test_a_locked_groups_class_is_free_for_others(locked, cache):
    for number in range(cache.num_closids - 1):
        locked.group(f"g{number}")
    assert locked.mkdir("more").errno == "ENOSPC"


@needs.PSEUDO_LOCK
def test_removed_the_region_is_unlocked(locked, cache):
    assert locked.rmdir("g").errno is None
    assert locked.usage(cache.name)[0].endswith("0000")
    assert locked.write("schemata", f"{cache.name}:0={LOW | HIGH:x}\n") == done()


@needs.PSEUDO_LOCK
@needs.kernel_without(UMOUNT_HANGS_ON_A_LOCKED_REGION)
def test_umount_unlocks(locked, cache):
    assert locked.umount() is None
    assert locked.mount() is None
    assert "P" not in locked.usage(cache.name)[0]
    assert locked.write("schemata", f"{cache.name}:0={LOW:x}\n") == done()


@needs.PSEUDO_LOCK
def test_a_group_removed_in_setup_gives_its_class_back(prepared, cache):
    assert prepared.rmdir("g").errno is None
    for number in range(cache.num_closids - 1):
        prepared.group(f"g{number}")
    assert prepared.mkdir("more").errno == "ENOSPC"
    assert prepared.masks(cache.name, "g0")[0] == every_way(cache)
