# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local_api import examples
from tests.unit.local_api.examples import cache, group, vm_group
from vmqos.cli.show import map_rows
from vmqos.cli.show.map_rows import CacheMap, Kind


def one(groups: list[Any], vms: list[Any] | None = None, **changes: Any) -> CacheMap:
    return map_rows.build([cache(0, groups, **{"shareable_bits": "0"} | changes)], vms or [])[0]


def labels(found: CacheMap) -> list[str]:
    return [row.label for row in found.rows]


def test_vms_come_first_then_classes_then_others_then_the_default_group_then_marks() -> None:
    groups = [
        group("", "default", "1c0"),
        group("vmqos.shared-ways2", "class", "c0"),
        group("qemu-1-x-vcpus_0", "foreign", "30"),
        vm_group(examples.WEB, "3", "web"),
    ]
    found = one(groups, shareable_bits="600", reserved="200")
    kinds = [row.kind for row in found.rows]
    assert kinds == [Kind.VM, Kind.CLASS, Kind.FOREIGN, Kind.DEFAULT, Kind.NOBODY, Kind.NOBODY, Kind.IO]
    assert [(row.label, f"{row.mask:x}") for row in found.rows if row.kind is Kind.NOBODY] == [
        ("no group's", "40c"),
        ("reserved", "200"),
    ]


def test_vms_stand_in_the_order_of_their_ways_as_a_staircase() -> None:
    names = {"1": ("c", "aaa"), "2": ("300", "bbb"), "3": ("30", "ccc")}
    groups = [vm_group(uuid, mask, name) for uuid, (mask, name) in names.items()]
    assert labels(one([group("", "default", "4c3"), *groups]))[:3] == ["bbb", "ccc", "aaa"]


def test_a_vm_has_the_same_letter_on_every_cache() -> None:
    first, second = map_rows.build(examples.caches(), examples.vms())
    letters = {row.label: row.symbol for row in first.rows if row.kind is Kind.VM}
    assert letters == {"db-1": "X", "web-1": "W"}
    assert [row.symbol for row in second.rows if row.label == "web-1"] == ["W"]


def test_a_vm_keeps_its_letter_and_colour_when_others_come() -> None:
    groups, vms = [], []
    before: dict[str, tuple[str, int]] = {}
    for number in range(40):
        identity = f"{number:08x}-0f0b-4a55-9c1e-2b6d7a90c3aa"
        # The newest one is the first by its name.
        groups.append(vm_group(identity, "1", f"vm-{99 - number}"))
        vms.append(examples.vm(identity, f"vm-{99 - number}", group=f"vmqos.{identity}", masks={"0": "1"}))
        marks = {row.label: (row.symbol, row.colour) for row in one(groups, vms).rows if row.kind is Kind.VM}
        assert before.items() <= marks.items()
        before = marks
    assert len({symbol for symbol, _ in before.values()}) == 40
    assert {colour for _, colour in before.values()} == set(range(map_rows.COLOURS))


def test_a_class_keeps_its_digit_when_others_come() -> None:
    names = [f"vmqos.shared-ways{number}" for number in range(9, 0, -1)]
    before: dict[str, str] = {}
    for count in range(1, len(names) + 1):
        vms = [examples.vm(str(number), "x", group=name) for number, name in enumerate(names[:count])]
        found = one([group(name, "class", "c0") for name in names[:count]], vms)
        digits = {row.label: row.symbol for row in found.rows if row.kind is Kind.CLASS}
        assert before.items() <= digits.items()
        before = digits
    assert sorted(before.values()) == list("123456789")


def test_vms_of_one_name_are_told_apart() -> None:
    vms = [examples.vm(uuid, "web", group=f"vmqos.{uuid}") for uuid in (examples.WEB, examples.DB)]
    groups = [vm_group(examples.WEB, "3", "web"), vm_group(examples.DB, "c", "web")]
    vms = [vm | {"masks": {"0": "3"}} for vm in vms]
    assert sorted(labels(one(groups, vms))[:2]) == ["web (4f2c1a9e)", "web (7d01e4c2)"]


def test_a_vm_that_has_no_ways_on_a_cache_is_not_drawn_there_but_mentioned() -> None:
    _, second = map_rows.build(examples.caches(), examples.vms())
    assert "db-1" not in labels(second)
    assert second.remarks == ("VMs with ways on other caches only: db-1",)
    assert second.warnings == ()


def test_a_class_says_how_many_vms_share_it() -> None:
    groups = [group("vmqos.shared-ways2", "class", "c0")]
    members = [examples.vm(str(number), "x", group="vmqos.shared-ways2") for number in range(3)]
    assert labels(one(groups, members))[0] == "class ways2, 3 VMs"
    assert labels(one(groups, members[:1]))[0] == "class ways2, 1 VM"


def test_an_exclusive_vm_that_is_not_alone_is_a_warning_that_names_way_and_intruder() -> None:
    intruder = group("qemu-9-x", "foreign", "6")
    found = one([group("", "default", "7f8"), vm_group(examples.WEB, "3", "web"), intruder])
    assert found.warnings == ("web is not alone: qemu-9-x may fill its way 1 too",)
    both = one([vm_group(examples.WEB, "3", "web"), vm_group(examples.DB, "6", "db"), group("", "default", "7f8")])
    assert both.warnings == ("db is not alone: web may fill its way 1 too",)


def test_classes_and_the_default_group_may_share_ways() -> None:
    assert one([group("", "default", "7ff"), group("vmqos.shared-ways2", "class", "c0")]).warnings == ()


def test_the_group_of_a_vm_that_is_gone_is_shown_by_its_name() -> None:
    assert labels(one([vm_group(examples.WEB, "3", None)]))[0] == f"gone: vmqos.{examples.WEB}"


def test_names_are_harmless() -> None:
    groups = [
        vm_group(examples.WEB, "3", "\x1b[2J"),
        group("\x1b]0;x\x07", "foreign", "c"),
        group("", "default", "7f0"),
    ]
    for label in labels(one(groups)):
        assert label.isprintable()


def test_more_vms_than_letters_are_still_drawn() -> None:
    groups = [vm_group(f"{number:04}", "1", f"vm{number:04}") for number in range(120)]
    rows = one(groups).rows
    assert sum(row.kind is Kind.VM for row in rows) == 120
    assert all(len(row.symbol) == 1 for row in rows)


def test_a_planned_vm_is_drawn_first_and_only_where_it_gets_ways() -> None:
    first, second = map_rows.build(examples.caches(), examples.vms(), planned={"0": "1c0"})
    assert (first.rows[0].kind, first.rows[0].mask) == (Kind.PLANNED, 0x1C0)
    assert second.rows[0].kind is not Kind.PLANNED
    assert first.warnings == ()


def test_code_and_data_are_lines_of_their_own_where_they_have_other_ways() -> None:
    vm = vm_group(examples.WEB, "3f", "web") | {"code_mask": "3", "data_mask": "3c"}
    default = group("", "default", "7c0", code_mask="7c0", data_mask="7c0")
    found = one([default, vm])
    assert [(row.label, row.symbol, row.mask) for row in found.rows] == [
        ("web, data", "W", 0x3C),
        ("web, code", "W", 0x3),
        ("default group", "=", 0x7C0),
    ]
    assert found.warnings == ()
    intruder = group("pqos", "foreign", "2", code_mask="2", data_mask="2")
    assert one([default, vm, intruder]).warnings == ("web is not alone: pqos may fill its way 1 too",)


def test_a_limit_of_bandwidth_is_told_with_its_unit() -> None:
    groups = [group("", "default", "7fc", bandwidth=None), vm_group(examples.WEB, "3", "web") | {"bandwidth": 1250}]
    assert [row.limit for row in one(groups, bandwidth_unit="MB/s").rows[:2]] == ["1250 MB/s", ""]


def test_a_vm_with_a_limit_and_no_ways_is_a_remark_and_no_intruder() -> None:
    groups = [group("", "default", "7ff"), vm_group(examples.WEB, "7ff", "web") | {"bandwidth": 50}]
    vms = [examples.vm(examples.WEB, "web", group=f"vmqos.{examples.WEB}", masks={}, ways_requested=None)]
    found = one(groups, vms, bandwidth_unit="%")
    assert labels(found) == ["default group"]
    assert (found.warnings, found.remarks) == ((), ("VMs in the default group's ways: web (at most 50 %)",))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("vmqos.lock-table", "lock table"),
        ("somebody", "lock somebody"),
        ("(pseudo-locked by a group that is gone)", "lock group gone"),
    ],
)
def test_locked_ways_are_a_line_of_their_own_kind(name: str, label: str) -> None:
    locked = group(name, "foreign", "3", mode="pseudo-locked")
    found = one([group("", "default", "7fc"), locked])
    assert [(row.kind, row.symbol, row.label) for row in found.rows[:1]] == [(Kind.LOCKED, "x", label)]


def l2(cache_id: int, groups: list[Any], **changes: Any) -> Any:
    small = {"resource": "L2", "shareable_bits": "0", "cpus": f"{2 * cache_id}-{2 * cache_id + 1}", "free_ways": 6}
    return cache(cache_id, groups, 8, **small | {"largest_free_run": 6} | changes)


def test_in_an_l2_those_who_have_nothing_of_their_own_there_are_not_drawn() -> None:
    web, db = f"vmqos.{examples.WEB}", f"vmqos.{examples.DB}"
    vms = [
        examples.vm(examples.WEB, "web", group=web, l2_masks={"0": "f"}),
        examples.vm(examples.DB, "db", group=db, masks={"0": "3"}),
    ]
    plain = group("vmqos.shared-mb50", "class", "f0")
    capped = group("vmqos.shared-ways2-l2ways2", "class", "c0")
    groups = [group("", "default", "f0"), plain, capped, vm_group(examples.DB, "f0", "db")]
    (found,) = map_rows.build([l2(0, [*groups, vm_group(examples.WEB, "f", "web")])], vms)
    assert labels(found) == ["web", "class ways2-l2ways2, 0 VMs", "default group"]
    assert (found.warnings, found.remarks) == ((), ())


def test_many_caches_that_look_the_same_are_one_picture() -> None:
    web = f"vmqos.{examples.WEB}"
    vms = [examples.vm(examples.WEB, "web", group=web, l2_masks={"2": "f"})]
    free = [group("", "default", "ff"), vm_group(examples.WEB, "ff", "web")]
    taken = [group("", "default", "f0"), vm_group(examples.WEB, "f", "web")]
    caches = [l2(number, taken if number == 2 else free) for number in range(64)]
    found = map_rows.build([cache(number, free[:1], cpus="0-7") for number in range(4)] + caches, vms)
    assert [(one.resource, len(one.ids)) for one in found] == [*[("L3", 1)] * 4, ("L2", 63), ("L2", 1)]
    rest, only = found[4:]
    assert (rest.cpus, labels(rest)) == ("0-3,6-127", ["default group"])
    assert (only.ids, only.cpus, labels(only)) == ((2,), "4-5", ["web", "default group"])
