# SPDX-License-Identifier: Apache-2.0
"""What is told as columns is what is told VM by VM, and what a client knows is not told again."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from tests.unit.telemetry.values import HOST, snapshot, vm
from vmqos.agent.sample.hardware_counts import Look, Uncounted, VmCounts
from vmqos.agent.sample.sampler import Measured
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import NotMounted
from vmqos.resctrl.monitoring import CYCLES
from vmqos.telemetry import Missing, RateColumns, Reading, Snapshot, rate_columns, rates
from vmqos.telemetry.model import Columns

COUNTED = VmCounts(900.0, (40, 30, 20, 10), (4.4, 3.0, 2.0, 1.5), 0.75)
NEW = VmCounts(900.0, (4, 3, 2, 1))
REFUSED = Uncounted("refused", "not permitted")


class Host:
    """A host's counters and hardware events, and the API that tells them.

    :ivar vms: bytes held, moved and moved locally on the one cache, by UUID.
    :ivar groups: the same object as long as the VMs' groups are the same.
    :ivar has_columns: whether each VM has numbers.
    :ivar error: why resctrl can't be read.
    :ivar last: the last bandwidths of VMs that wait for hardware counters.
    """

    interval = 2.0

    def __init__(self, **counted: VmCounts | Uncounted) -> None:
        self.vms = {"a": (4096, 1000, 600), "b": (8192, 3000, 3000)}
        self.groups = object()
        self.has_columns = True
        self.error: NotMounted | None = None
        self.last: dict[str, Measured] = {}
        self.fields: dict[str, Any] = {}
        self.look = Look(time.monotonic() - 1, 1000.0, vms=counted)
        hardware = SimpleNamespace(interval=2.0, newest=lambda: self.look)
        self.api = Api(None, self, LiveReads(), hardware=hardware)  # type: ignore[arg-type]

    def measured(self) -> dict[str, Measured]:
        return self.last

    def sampled(self) -> Any:
        if self.error is not None:
            raise self.error
        before, after = self._sweep(10.0, 0.0), self._sweep(12.0, 1.0)
        found = rate_columns(before.columns, after.columns)
        return after, found if found is not None else rates(before, after)

    def _sweep(self, when: float, part: float) -> Snapshot:
        """All counters, after this part of the traffic."""
        rows = {uuid: (held, int(part * total), int(part * local)) for uuid, (held, total, local) in self.vms.items()}
        found = snapshot(*(vm(row, uuid=uuid, read_at=when, **self.fields) for uuid, row in rows.items()))
        columns = Columns(tuple(rows), self.groups, {0: (*zip(*rows.values(), strict=True), (when,) * len(rows))})  # type: ignore[dict-item]
        return replace(found, monotonic=when, columns=columns if self.has_columns else None)

    def ask(self, path: str, basis: str | None = None) -> Any:
        query = urlencode({"basis": basis}) if basis is not None else ""
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
        (content,) = self.api(environ, lambda status, headers: None)
        return json.loads(content)

    def columns(self, basis: str = "") -> Any:
        found = self.ask("/v1/telemetry/columns", basis)
        msgspec.convert(found, contract.Columns)
        return found


def test_what_is_in_columns_is_what_is_told_vm_by_vm() -> None:
    host = Host(a=COUNTED, b=COUNTED)
    told, every = host.columns(), host.ask("/v1/telemetry")
    counters, same = told["counters"], told["same"]
    assert counters["apart"] == {} and [*same["counters"]] == [*every["vms"]] == ["a", "b"]
    for at, (uuid, of_vm) in enumerate(every["vms"].items()):
        staying = same["counters"][uuid]
        assert {name: of_vm[name] for name in staying} == staying
        assert {cache: held[at] for cache, held in counters["columns"]["held"].items()} == {
            cache: counts["llc_occupancy"] for cache, counts in of_vm["caches"].items()
        }
        assert {name: counters["columns"][name][at] for name in ("total", "local", "remote")} == of_vm["rates"]
        # What is told in neither place is empty, or follows from the columns.
        assert not any(
            of_vm[name] for name in ("nodes", "packages", "package_rates", "packages_since", "rates_missing")
        )
    assert counters["host"] == every["host"]
    assert {name: counters[name] for name in ("taken_at", "interval", "sweep_seconds")} == {
        name: every[name] for name in ("taken_at", "interval", "sweep_seconds")
    }
    assert counters["age_seconds"] == pytest.approx(every["age_seconds"], abs=30)


def test_what_is_executed_is_told_in_whole_numbers_and_who_is_not_counted_apart() -> None:
    host = Host(a=COUNTED, b=REFUSED, c=NEW, d=COUNTED)
    told, every = host.columns(), host.ask("/v1/telemetry/hardware-events")
    found = told["hardware_events"]
    assert told["same"]["hardware_events"] == ["a", "d"]
    assert found["columns"] == {
        "cycles": [4, 4],
        "instructions": [3, 3],
        "cache_references": [2, 2],
        "cache_misses": [2, 2],
        "share": [0.75, 0.75],
    }
    assert found["apart"] == {uuid: every["vms"][uuid] for uuid in ("b", "c")}
    for name in ("taken_at", "interval", "unavailable", "unavailable_code"):
        assert found[name] == every[name]


def test_a_host_that_counts_nothing_says_why() -> None:
    host = Host()
    host.look = Look(unavailable="switched off", unavailable_code="switched-off")
    found = host.columns()["hardware_events"]
    assert (found["unavailable"], found["apart"]) == ("switched off", {})
    assert found["columns"] == {"share": []}


def test_a_vm_that_packages_count_alone_is_told_apart_with_its_cycles() -> None:
    host = Host(a=COUNTED, b=REFUSED)
    host.has_columns = False
    host.fields = {"packages": {0: {CYCLES: Reading(7)}}, "since": 900.5}
    every = host.ask("/v1/telemetry/hardware-events")
    sampled = host.sampled
    host.sampled = lambda: (  # type: ignore[method-assign]
        replace(sampled()[0], host=replace(HOST, events=(*HOST.events, CYCLES)), monotonic=time.monotonic()),
        sampled()[1],
    )
    every = host.ask("/v1/telemetry/hardware-events")
    assert host.columns()["hardware_events"]["apart"] == {"b": every["vms"]["b"]}
    assert every["vms"]["b"]["source"] == "aet"


def test_what_a_client_knows_is_not_told_again() -> None:
    host = Host(a=COUNTED)
    first = host.columns()
    again = host.columns(first["basis"])
    assert "same" not in again and again["basis"] == first["basis"]
    assert again["counters"]["columns"] == first["counters"]["columns"]
    assert "same" in host.columns("another"), "a client of another run of the agent knows nothing"


@pytest.mark.parametrize(
    "change",
    [
        lambda host: setattr(host, "groups", object()),
        lambda host: setattr(host, "look", replace(host.look, vms={"b": COUNTED})),
        lambda host: setattr(host, "has_columns", False),
        lambda host: setattr(host, "error", NotMounted(path="/sys/fs/resctrl", mend="mount it")),
    ],
    ids=["other groups", "another VM is counted", "a VM has no number", "resctrl is gone"],
)
def test_what_stays_is_told_again_when_it_has_changed_and_when_it_is_as_before(change: Any) -> None:
    host = Host(a=COUNTED)
    first, before = host.columns(), vars(host).copy()
    change(host)
    second = host.columns(first["basis"])
    assert "same" in second and second["basis"] != first["basis"]
    vars(host).update(before)
    third = host.columns(second["basis"])
    assert third["same"] == first["same"]


def test_vms_of_which_not_all_numbers_are_known_are_told_apart_as_always() -> None:
    host = Host()
    host.has_columns = False
    told = host.columns()
    assert told["counters"]["apart"] == host.ask("/v1/telemetry")["vms"]
    assert told["counters"]["columns"] == {"held": {}, "total": [], "local": [], "remote": []}
    assert told["same"]["counters"] == {}


def test_a_vm_that_waits_for_hardware_counters_has_its_last_bandwidth_and_its_age() -> None:
    host = Host()
    found = host.sampled()[1]["a"]
    assert isinstance(host.sampled()[1], RateColumns)
    host.last = {"a": Measured(time.monotonic() - 20, "1", found)}
    told = host.columns()["counters"]["apart"]
    assert told["a"]["measured"]["rates"]["total"] == 500.0 and told["a"]["measured"]["age_seconds"] >= 20
    assert [*told] == ["a", "b"]


def test_counters_that_can_not_be_read_leave_the_hardware_events_told() -> None:
    host = Host(a=COUNTED)
    host.error = NotMounted(path="/sys/fs/resctrl", mend="mount it")
    told = host.columns()
    assert "counters" not in told and "/sys/fs/resctrl" in told["error"]
    assert told["hardware_events"]["columns"]["instructions"] == [3]
    assert told["same"] == {"counters": {}, "hardware_events": ["a"]}


def test_a_number_that_is_missing_is_no_number_in_a_column() -> None:
    host = Host()
    host.fields = {"totals": {**vm((1, 1, 1)).totals, "llc_occupancy": Reading.none(Missing.ERROR)}}
    host.has_columns = False
    assert host.columns()["counters"]["apart"]["a"]["missing"] == {"llc_occupancy": "error"}
