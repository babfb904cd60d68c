# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local_api import examples
from vmqos.cli import exceptions
from vmqos.cli.show import vm_view
from vmqos.cli.show.safe_text import distinct_names
from vmqos.cli.show.tables import Cell


def shown(value: Any) -> str:
    return value.text if isinstance(value, Cell) else str(value)


def row(vm: Any) -> dict[str, str]:
    return dict(zip(vm_view.LIST_TITLES, map(shown, vm_view.list_row(vm, distinct_names([vm]))), strict=True))


def test_vms_in_trouble_come_first() -> None:
    vms = [
        examples.vm("1", "none", state="none"),
        examples.vm("2", "kept"),
        examples.vm("3", "stray", tasks_in_place=3),
        examples.vm("4", "pending", state="pending"),
        examples.vm("5", "degraded", state="degraded"),
        examples.vm("6", "Also kept"),
    ]
    names = [vm["instance_name"] for vm in vm_view.by_urgency(vms)]
    assert names == ["degraded", "pending", "stray", "Also kept", "kept", "none"]


def test_a_state_of_a_later_agent_is_trouble_until_it_is_understood() -> None:
    vms = [examples.vm("1", "a", state="degraded"), examples.vm("2", "b", state="melting")]
    assert vm_view.by_urgency(vms)[0]["state"] == "melting"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({"masks": {"0": "3", "1": "c"}}, "2"),
        ({"masks": {"0": "3"}, "ways_requested": 4}, "2 of 4"),
        ({"ways_requested": 8}, "0 of 8"),
        ({"masks": {"0": "3", "1": "f"}, "ways_requested": None}, "0:2 1:4"),
        ({"ways_requested": None}, "-"),
    ],
)
def test_ways_say_what_is_granted_and_what_was_asked_for_if_that_differs(changes: dict[str, Any], ways: str) -> None:
    assert row(examples.vm(examples.WEB, "web", **changes))["Ways"] == ways


def test_hostile_values_are_harmless_in_every_cell() -> None:
    bad = "\x1b[31m\n\u202e"
    vm = examples.vm(bad, bad, name=bad, flavor=bad, project=bad, reason=bad, group=bad, monitoring_group=bad)
    vm |= {"last_error": bad, "task_list": []}
    cells = [*row(vm).values(), *map(shown, vm_view.fields(vm).values())]
    task = vm_view.task_row({"tid": 1, "pid": 1, "comm": bad, "group": bad, "in_place": True})
    for cell in [*cells, *map(shown, task)]:
        assert cell.isprintable(), cell


@pytest.mark.parametrize(
    ("at_start", "later", "text"),
    [
        (0.0004, 0.0021, "0.4 ms at its start, 2.1 ms since"),
        (None, 0.0021, "not known of its start, 2.1 ms since the agent found it"),
        (None, None, "-"),
    ],
)
def test_how_long_a_vm_ran_outside_of_its_group_is_told_as_far_as_it_is_known(
    at_start: float | None, later: float | None, text: str
) -> None:
    vm = examples.vms()[0] | {"outside_at_start": at_start, "outside_later": later, "task_list": []}
    assert vm_view.fields(vm)["CPU outside of group"] == text


@pytest.mark.parametrize(
    ("wanted", "present", "text"),
    [
        (None, None, "all, and all other tasks"),
        ("0-1", "0-1", "0-1"),
        ("0-1", "", "none of 0-1"),
        ("0-1", None, "0-1; which of them it has is not known"),
    ],
)
def test_the_vcpus_with_the_ways_are_told_as_far_as_they_are_known(
    wanted: str | None, present: str | None, text: str
) -> None:
    vm = examples.vms()[0] | {"policy": "exclusive", "vcpus_requested": wanted, "vcpus": present, "task_list": []}
    assert vm_view.fields(vm)["vCPUs with the ways"] == text


def test_every_field_of_the_contract_is_in_the_details() -> None:
    vm = examples.vms()[3] | {"task_list": []}
    fields = {title: shown(value) for title, value in vm_view.fields(vm).items()}
    for value in (vm["uuid"], vm["instance_name"], vm["name"], vm["flavor"], vm["project"], vm["state"], vm["reason"]):
        assert value in fields.values()
    assert fields["Last error"] == vm["last_error"]
    assert fields["Next retry"] == "in 12 s"
    assert fields["Control group"] == "(default)"
    assert fields["Caches it can run on"] == "0 1"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"monitoring_group": "mon_groups/vmqos.x"}, "mon_groups/vmqos.x"),
        ({"unmonitored_reason": "no RMID left"}, "none: no RMID left"),
        ({"group": "vmqos.x"}, "its control group"),
        ({}, "none"),
    ],
)
def test_an_unmonitored_vm_says_why(changes: dict[str, Any], text: str) -> None:
    vm = examples.vm(examples.WEB, "web", **changes) | {"task_list": []}
    assert vm_view.fields(vm)["Monitoring group"] == text


def test_a_task_that_no_group_lists_is_not_said_to_be_in_the_default_group() -> None:
    task: Any = {"tid": 1, "pid": 1, "comm": "qemu", "group": None, "in_place": False}
    assert shown(vm_view.task_row(task)[3]) == "(none)"


@pytest.mark.parametrize("wanted", [examples.WEB, examples.WEB.upper(), "4f2c", "web-1", "instance-4f2c1a9e"])
def test_a_vm_is_found_by_uuid_by_its_beginning_and_by_either_name(wanted: str) -> None:
    assert vm_view.find(examples.vms(), wanted)["uuid"] == examples.WEB


def test_a_whole_name_counts_more_than_the_beginning_of_a_uuid() -> None:
    vms = [examples.vm(examples.WEB, "web"), examples.vm(examples.DB, "4f2c")]
    assert vm_view.find(vms, "4f2c")["uuid"] == examples.DB


def test_an_ambiguous_beginning_lists_what_it_fits() -> None:
    with pytest.raises(exceptions.AmbiguousVm, match=r"fits 2 VMs.*9b3ddc10-.* \(batch\), 9b3ddc11-.* \(huge\)"):
        vm_view.find(examples.vms(), "9b3d")


def test_an_ambiguous_name_does_not_flood_the_terminal() -> None:
    vms = [examples.vm(f"{number:08}", "web") for number in range(50)]
    with pytest.raises(exceptions.AmbiguousVm, match="and 45 more"):
        vm_view.find(vms, "web")


@pytest.mark.parametrize("wanted", ["nobody", "", "4f2c1a9e-ffff"])
def test_a_vm_that_is_not_there_is_an_error(wanted: str) -> None:
    with pytest.raises(exceptions.NoSuchVm):
        vm_view.find(examples.vms(), wanted)


CODE, DATA = {"0": "3", "1": "3"}, {"0": "3c", "1": "3c"}
APART = {"ways_requested": 6, "code_ways_requested": 2, "data_ways_requested": 4}


@pytest.mark.parametrize(
    ("changes", "cell", "requested", "granted"),
    [
        (
            {"masks": {"0": "3f", "1": "3f"}, "code_masks": CODE, "data_masks": DATA, **APART},
            "2c+4d", "2 for code, 4 for data", "2 for code, 4 for data",
        ),
        (APART, "0 of 2c+4d", "2 for code, 4 for data", "-"),
        (
            {"masks": {"0": "7"}, "code_masks": {"0": "3"}, "data_masks": {"0": "4"}, **APART},
            "2c+1d of 2c+4d", "2 for code, 4 for data", "2 for code, 1 for data",
        ),
        ({"masks": {"0": "3"}, "code_masks": {}, "data_masks": {}}, "2", "2", "2"),
    ],
)  # fmt: skip
def test_ways_for_code_and_for_data_are_told_apart(
    changes: dict[str, Any], cell: str, requested: str, granted: str
) -> None:
    vm = examples.vm(examples.WEB, "web", **changes)
    fields = vm_view.fields(vm)
    found = (row(vm)["Ways"], str(fields["Ways requested"]), fields["Ways granted"])
    assert found == (cell, requested, granted)


@pytest.mark.parametrize(
    ("changes", "cell", "field"),
    [
        ({}, "-", "-"),
        ({"bandwidth_requested": 50, "bandwidth": {"0": 50, "1": 50}, "bandwidth_unit": "%"}, "50 %", "50 %"),
        ({"bandwidth_requested": 55, "bandwidth": {"0": 60}, "bandwidth_unit": "%"}, "60 %", "60 %, 55 % asked for"),
        (
            {"bandwidth_requested": 4000, "bandwidth_requested_unit": "MB/s", "bandwidth_unit": "%"},
            "none",
            "no limit, 4000 MB/s asked for",
        ),
        (
            {"bandwidth_requested": 3, "bandwidth": {"0": 125, "1": 250}, "bandwidth_unit": "MB/s"},
            "0:125 MB/s 1:250 MB/s",
            "0:125 MB/s 1:250 MB/s, 3 MB/s asked for",
        ),
    ],
)
def test_a_limit_of_bandwidth_is_what_is_in_force_and_what_was_asked_for_if_that_differs(
    changes: dict[str, Any], cell: str, field: str
) -> None:
    unit = {"bandwidth_requested_unit": changes.get("bandwidth_unit")} if changes else {}
    vm = examples.vm(examples.WEB, "web", **(unit | changes))
    assert vm_view.more(vm)[1] == cell
    assert vm_view.fields(vm)["Memory bandwidth"] == field


@pytest.mark.parametrize(
    ("changes", "cell", "fields"),
    [
        ({}, "-", {}),
        (
            {"l2_ways_requested": 4, "l2_masks": {"3": "f", "11": "f0"}},
            "4",
            {"L2 masks": "3=f;11=f0", "L2 ways requested": 4, "L2 ways granted": "4"},
        ),
        ({"l2_ways_requested": 4}, "0 of 4", {"L2 ways requested": 4, "L2 ways granted": "-"}),
    ],
)
def test_l2_ways_are_told_where_there_are_or_should_be_some(
    changes: dict[str, Any], cell: str, fields: dict[str, Any]
) -> None:
    vm = examples.vm(examples.WEB, "web", **changes)
    assert vm_view.more(vm)[0] == cell
    assert {title: value for title, value in vm_view.fields(vm).items() if title.startswith("L2")} == fields
