# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from tests.unit.cli import examples
from tests.unit.cli.examples import cache, group, vm_group
from vmqos.cli import map_rows
from vmqos.cli.map_rows import CacheMap, Kind


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
    assert letters == {"db-1": "A", "web-1": "B"}
    assert [row.symbol for row in second.rows if row.label == "web-1"] == ["B"]


def test_a_vm_that_has_no_ways_on_a_cache_is_not_drawn_there_but_mentioned() -> None:
    _, second = map_rows.build(examples.caches(), examples.vms())
    assert "db-1" not in labels(second)
    assert second.remarks == ("on other caches' CPUs only: db-1",)
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
