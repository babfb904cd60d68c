# SPDX-License-Identifier: Apache-2.0
"""Mount options, what a mount shows, and what is left when it is gone."""

from __future__ import annotations

import os

import pytest

from tests.conformance import needs
from tests.conformance.answer import OK, done
from tests.conformance.differences import MBPS_EVENT
from tests.conformance.layout import apart, every_way, exclusive
from tests.conformance.registers import L2_CDP, L3_CDP, mask


def in_root(rdt, *more):
    monitored = ["mon_data", "mon_groups"] if rdt.profile.monitoring else []
    return sorted(["cpus", "cpus_list", "info", "mode", "schemata", "size", "tasks", *monitored, *more])


def test_without_options_the_root_is_the_default_group(bare):
    assert bare.mount() is None
    assert bare.ls() == in_root(bare)
    assert bare.permissions("") == "40555"
    assert bare.status == OK


def test_options_may_be_empty(bare):
    for options in (",", ",,"):
        assert bare.mount(options) is None
        assert bare.ls() == in_root(bare)
        assert bare.umount() is None


def test_an_option_that_there_is_not_is_refused(bare):
    for options in ("foo", "cdp=1", " cdp", "CDP", "debug,foo", "mba_mbps", "debug=0", "debug ", "size=1"):
        assert bare.mount(options) == "EINVAL"
    assert bare.mount() is None


@pytest.mark.parametrize("level, option, register", [(3, "cdp", L3_CDP), (2, "cdpl2", L2_CDP)], ids=["L3", "L2"])
def test_cdp_is_taken_where_the_cache_has_it(bare, level, option, register):
    cache = bare.profile.l3 if level == 3 else bare.profile.l2
    if cache is None or not cache.cdp:
        assert bare.mount(option) == "EINVAL"
        return
    assert bare.mount(option) is None
    assert {f"L{level}CODE", f"L{level}DATA"} < set(bare.ls("info"))
    assert f"L{level}" not in bare.ls("info")
    assert {bare.register(level, number, register) for number in bare.cache_ids(level)} == {1}


def test_all_or_none_of_the_options_is_given(bare):
    both = all(cache and cache.cdp for cache in (bare.profile.l3, bare.profile.l2))
    assert bare.mount("cdp,cdpl2") == (None if both else "EINVAL")
    if both:
        assert {"L3CODE", "L3DATA", "L2CODE", "L2DATA"} < set(bare.ls("info"))
    else:
        assert bare.mount() is None
        assert not [name for name in bare.ls("info") if name.endswith(("CODE", "DATA"))]


@needs.CDP
def test_a_refused_mount_leaves_no_cdp_behind(bare):
    if bare.profile.l2 is None:
        assert bare.mount("cdp,cdpl2") == "EINVAL"
    else:
        assert bare.mount("cdp,foo") == "EINVAL"
    assert bare.register(3, 0, L3_CDP) == 0


def test_mba_mbps_is_taken_where_bandwidth_can_be_watched(bare):
    bandwidth = bare.profile.bandwidth
    can = bandwidth is not None and bandwidth.linear and bare.profile.monitoring is not None
    assert bare.mount("mba_MBps") == (None if can else "EINVAL")
    if can:
        assert bare.ls() == in_root(bare, *(["mba_MBps_event"] if bare.has(MBPS_EVENT) else []))


def test_debug_shows_the_hardwares_numbers(bare):
    assert bare.mount("debug") is None
    assert bare.ls() == in_root(bare, "ctrl_hw_id", *(["mon_hw_id"] if bare.profile.monitoring else []))
    assert bare.read("ctrl_hw_id") == "0\n"
    assert bare.permissions("ctrl_hw_id") == "100444"
    if bare.profile.monitoring:
        assert bare.read("mon_hw_id") == "0\n"


def test_the_same_option_twice_is_once(bare):
    assert bare.mount("debug,debug") is None
    assert "ctrl_hw_id" in bare.ls()


def test_what_is_mounted_cannot_be_mounted_again(rdt):
    assert rdt.mount() == "EBUSY"
    assert rdt.mount("debug") == "EBUSY"
    assert rdt.mount("foo") == "EINVAL"
    assert rdt.ls() == in_root(rdt)


def test_an_open_file_keeps_it_mounted(rdt):
    descriptor = os.open(os.path.join(rdt.root, "tasks"), os.O_RDONLY)
    try:
        assert rdt.umount() == "EBUSY"
        assert rdt.ls() == in_root(rdt)
    finally:
        os.close(descriptor)
    assert rdt.umount() is None


def test_umount_forgets_every_group(rdt):
    rdt.group("g")
    if rdt.profile.monitoring:
        rdt.group("g/mon_groups/m")
        rdt.group("mon_groups/m")
    assert rdt.umount() is None
    assert rdt.mount() is None
    assert rdt.ls() == in_root(rdt)
    if rdt.profile.monitoring:
        assert rdt.ls("mon_groups") == []


def test_umount_gives_every_class_everything(rdt, cache):
    rdt.group("g")
    assert rdt.write("schemata", f"{cache.name}:0=3\n") == done()
    assert rdt.write("g/schemata", f"{cache.name}:1=1\n") == done()
    assert rdt.umount() is None
    assert rdt.register(cache.level, 0, mask(cache.level, 0)) == every_way(cache)
    assert rdt.register(cache.level, 1, mask(cache.level, 1)) == every_way(cache)
    assert rdt.mount() is None
    assert set(rdt.masks(cache.name).values()) == {every_way(cache)}


@needs.CDP
def test_umount_switches_cdp_off(bare):
    assert bare.mount("cdp") is None
    assert bare.umount() is None
    assert {bare.register(3, number, L3_CDP) for number in bare.cache_ids(3)} == {0}


def test_umount_takes_the_tasks_out_of_their_groups(rdt, tasks):
    task = tasks.start("task")
    rdt.group("g")
    assert rdt.write("g/tasks", f"{task}\n") == done()
    assert rdt.umount() is None
    assert rdt.mount() is None
    assert task in rdt.tasks()
    rdt.group("g")
    assert rdt.tasks("g") == set()


def test_umount_gives_every_cpu_back(rdt):
    rdt.group("g")
    assert rdt.write("g/cpus_list", "1\n").errno is None
    assert rdt.umount() is None
    assert rdt.mount() is None
    assert rdt.cpus() == "0-3"
    rdt.group("g")
    assert rdt.cpus("g") == ""


@needs.WAYS_WITHOUT_DEVICES
def test_umount_forgets_the_mode_and_the_status(rdt):
    apart(rdt)
    assert rdt.write("mode", "exclusive\n") == done()
    assert rdt.write("schemata", "nonsense\n").errno == "EINVAL"
    assert rdt.umount() is None
    assert rdt.mount() is None
    assert rdt.status == OK
    assert rdt.read("mode") == "shareable\n"


@needs.WAYS_WITHOUT_DEVICES
def test_umount_forgets_what_was_exclusive(rdt, cache):
    exclusive(rdt)
    assert rdt.umount() is None
    assert rdt.mount() is None
    rdt.group("h")
    assert set(rdt.masks(cache.name, "h").values()) == {every_way(cache)}
