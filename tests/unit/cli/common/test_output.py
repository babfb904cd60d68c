# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.common.output import as_rows


def test_objects_become_rows_with_a_column_for_every_key_that_any_of_them_has() -> None:
    keys, rows = as_rows([{"a": 1, "b": [2]}, {"a": 3, "later": {"x": 4}}])
    assert keys == ("a", "b", "later")
    assert rows == [(1, [2], None), (3, None, {"x": 4})]


def test_rows_are_sorted_by_the_number_that_a_cell_begins_with(agent: FakeAgent, run: Run) -> None:
    every_way = {"0": "3ff", "1": "3ff"}
    agent.answers["/v1/vms"] = {
        "vms": [
            examples.vm("aaaaaaaa-0000-4000-8000-000000000000", "plain", policy=None, ways_requested=None),
            examples.vm("bbbbbbbb-0000-4000-8000-000000000000", "large", masks=every_way, ways_requested=10),
            examples.vm("cccccccc-0000-4000-8000-000000000000", "small", masks={"0": "3", "1": "3"}),
            examples.vm("dddddddd-0000-4000-8000-000000000000", "lacking", state="pending", ways_requested=8),
        ]
    }
    named = ("vm", "list", "-f", "value", "-c", "VM", "--sort-column", "Ways")
    assert run(*named).out.split() == ["lacking", "small", "large", "plain"]
    assert run(*named, "--sort-descending").out.split() == ["plain", "large", "small", "lacking"]
    # A column that counts less, one that there is not, and the API's objects, which none is less than.
    assert run(*named, "--sort-column", "nosuch").out.split() == ["lacking", "small", "large", "plain"]
    ran = run("vm", "list", "-f", "json", "-c", "masks", "--sort-column", "state", "--sort-column", "masks")
    assert (ran.status, ran.err) == (0, "")


def test_no_objects_are_no_rows() -> None:
    assert as_rows([]) == ((), [])
