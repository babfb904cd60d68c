# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pytest

from vmqos.cli.exceptions import NoSuchVm
from vmqos.cli.top import data
from vmqos.cli.top.data import Frame, Order, Row
from vmqos.telemetry import Missing, Reading

NONE = Reading.none(Missing.UNASSIGNED)


def row(name: str, uuid: str = "", **fields: Any) -> Row:
    return Row(uuid=uuid or f"{name}-uuid", name=name, instance_name=name, libvirt_name=f"instance-{name}", **fields)


ROWS = [
    row("web", state="kept", ways={0: 2, 1: 4}, occupancy=Reading(5), total=Reading(1.5), ipc=Reading(0.5)),
    row("Db", state="degraded", ways={0: 3}, occupancy=NONE, total=Reading(9.0), ipc=Reading(2.0)),
    row("mail", state="pending", occupancy=Reading(0), total=NONE),
    row("cache", state="none", occupancy=Reading(5), total=Reading(1.5)),
]


@pytest.mark.parametrize(
    ("key", "reverse", "names"),
    [
        ("occupancy", False, "cache web mail Db"),
        ("occupancy", True, "mail cache web Db"),
        ("total", False, "Db cache web mail"),
        ("total", True, "cache web Db mail"),
        ("ipc", False, "Db web cache mail"),
        ("misses", False, "cache Db mail web"),
        ("ways", False, "web Db cache mail"),
        ("name", False, "cache Db mail web"),
        ("name", True, "web mail Db cache"),
        ("state", False, "Db mail web cache"),
        ("state", True, "cache web mail Db"),
    ],
)
def test_numbers_go_down_words_go_up_and_what_is_not_known_is_last(key: str, reverse: bool, names: str) -> None:
    assert [each.name for each in data.sort(ROWS, Order(key, reverse))] == names.split()


def test_every_key_sorts_rows_of_which_nothing_is_known() -> None:
    rows = [Row(uuid="b"), Row(uuid="a")]
    for key in data.SORT_KEYS:
        assert [each.uuid for each in data.sort(rows, Order(key))] == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ([], ["cache", "web", "mail", "Db"]),
        (["web"], ["web"]),
        (["instance-web", "mail"], ["web", "mail"]),
        (["WEB-U"], ["web"]),
        (["we", "nobody", ""], ["web"]),
    ],
)
def test_vms_are_chosen_by_name_and_by_the_beginning_of_the_uuid(wanted: list[str], names: list[str]) -> None:
    assert [each.name for each in data.choose(ROWS, wanted, Order())] == names


@pytest.mark.parametrize("word", ["nobody", "", "eb", "\x1b[2J"])
def test_a_word_that_names_no_vm_is_told(word: str) -> None:
    with pytest.raises(NoSuchVm) as caught:
        data.require(ROWS, ["web", word])
    assert "\x1b" not in str(caught.value)


def test_words_that_name_vms_are_fine() -> None:
    data.require(ROWS, ["web", "instance-mail", "db-"])


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ([], False),
        ([row("a", total=Reading.none(Missing.NO_PREVIOUS))], True),
        ([row("a", ipc=Reading.none(Missing.NO_PREVIOUS))], True),
        ([row("a", total=NONE, local=NONE)], False),
    ],
)
def test_a_look_that_takes_another_one_says_so(rows: list[Row], first: bool) -> None:
    assert Frame(0.0, 1.0, "agent", tuple(rows)).is_first is first


def test_a_program_gets_a_number_or_a_reason_and_no_nan() -> None:
    frame = Frame(5.25, 1.0, "agent", tuple(ROWS), notes=("No IPC",))
    shown = json.loads(json.dumps(data.as_json(frame, ROWS), allow_nan=False))
    assert (shown["taken_at"], shown["interval"], shown["source"], shown["notes"]) == (5.25, 1.0, "agent", ["No IPC"])
    web, db = shown["vms"][:2]
    assert web["ways"] == {"0": 2, "1": 4}
    assert (web["occupancy_bytes"], web["total_bytes_per_second"]) == (5, 1.5)
    assert db["occupancy_bytes"] is None
    assert db["missing"]["occupancy_bytes"] == "unassigned"
    for vm in shown["vms"]:
        numbers = {
            name
            for name in vm
            if name.endswith(("_bytes", "_second", "_cycle", "_watts", "_stalls")) and name != "allocated_bytes"
        }
        assert {name for name in numbers if vm[name] is None} == vm["missing"].keys()


def test_a_line_of_csv_has_a_cell_for_each_title_and_nothing_that_steers_a_terminal() -> None:
    frame = Frame(5.25, 1.0, "agent", ())
    (line,) = data.as_csv(frame, [row("\x1b[2Jweb", ways={0: 2, 1: 4}, reason="a\nb")])
    cells = dict(zip(data.CSV_TITLES, line, strict=True))
    assert cells["taken_at"] == "5.250"
    assert cells["ways"] == "0:2 1:4"
    assert cells["instance_name"] == "\\x1b[2Jweb"
    assert cells["reason"] == "a\\nb"
    assert cells["occupancy_bytes"] is None
    assert "occupancy_bytes:not-monitored" in cells["missing"]


def test_what_else_a_vm_was_granted_is_told_by_cache() -> None:
    shown = data.as_json(
        Frame(5.25, 1.0, "agent", ()),
        [row("web", code_ways={0: 1}, data_ways={0: 2}, l2_ways={3: 4}, bandwidth={"0": 50}, bandwidth_unit="%")],
    )["vms"][0]
    assert (shown["code_ways"], shown["data_ways"], shown["l2_ways"]) == ({"0": 1}, {"0": 2}, {"3": 4})
    assert (shown["bandwidth_limit"], shown["bandwidth_limit_unit"]) == ({"0": 50}, "%")
