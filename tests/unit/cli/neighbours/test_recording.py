# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cli.neighbours import told
from tests.unit.insight.hosts import Did, history, host
from vmqos.cli.neighbours import recording
from vmqos.cli.neighbours.recording import Facts, Header, Record, Sweep
from vmqos.insight import LimitedIn, PercentSteps, Promise

HISTORY = history(2, a=lambda _: Did(), b=lambda _: Did(ran=1.25))
HOST = host({"a": 0xF, "b": 0xF0})
PROMISED = replace(HOST.vms["a"], promise=Promise(code_ways=1, data_ways=3, is_shared=True, percent=20), vcpus=40)
FACTS = Facts(replace(HOST, vms={**HOST.vms, "a": PROMISED}), {"a": "web-1"})
SWEEPS = [Sweep(float(at), {vm: series[at] for vm, series in HISTORY.items()}) for at in range(2)]
RECORDS: list[Record] = [Header(1.0, "3.1"), FACTS, *SWEEPS]
TEXT = (
    recording.header_line(Header(1.0, "3.1"))
    + recording.facts_line(FACTS)
    + b"".join(recording.sweep_line(sweep) for sweep in SWEEPS)
)


class Refused(Exception):
    pass


def refuse(line: int, problem: str) -> Refused:
    return Refused(f"line {line}: {problem}")


def read(data: bytes) -> list[Record]:
    return list(recording.read(io.BytesIO(data), refuse))


def with_line(number: int, change: Any) -> bytes:
    """The text with another line of that number."""
    lines = TEXT.splitlines(keepends=True)
    lines[number - 1] = change if isinstance(change, bytes) else json.dumps(change).encode() + b"\n"
    return b"".join(lines)


def changed(line: int, *path: str, value: object = None) -> bytes:
    """The text with another value at one place of a line."""
    found = json.loads(TEXT.splitlines()[line - 1])
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return with_line(line, found)


def test_what_is_written_is_read_again() -> None:
    assert read(TEXT) == RECORDS


def test_what_a_later_version_adds_to_a_line_is_passed_over() -> None:
    assert read(changed(3, "mood", value="sunny")) == RECORDS


def test_a_recording_of_an_earlier_version_that_has_no_promises_no_vcpus_and_no_unit_is_read() -> None:
    facts = json.loads(TEXT.splitlines()[1])
    for vm in facts["host"]["vms"].values():
        del vm["promise"]
        vm.pop("vcpus", None)
    del facts["host"]["bandwidth_unit"]
    known = replace(HOST, limited_in=LimitedIn.UNKNOWN)
    assert read(with_line(2, facts)) == [RECORDS[0], Facts(known, FACTS.names), *SWEEPS]


@pytest.mark.parametrize("unit", [LimitedIn.MBPS, LimitedIn.NOTHING])
def test_what_the_host_limits_bandwidth_in_is_read(unit: LimitedIn) -> None:
    _, facts, *_ = read(changed(2, "host", "bandwidth_unit", value=unit.value))
    assert isinstance(facts, Facts) and facts.host.limited_in is unit


def test_the_steps_in_which_the_host_limits_bandwidth_are_written_and_read_again() -> None:
    facts = replace(FACTS, host=replace(HOST, vms=FACTS.host.vms, percent_steps=PercentSteps(1, 5)))
    assert read(with_line(2, recording.facts_line(facts)))[1] == facts


A = ("vms", "a")
WRONG = {
    "another format": (changed(1, "format", value="pcap"), "line 1: format: 'pcap' is not 'vmqos-neighbours'"),
    "a later version": (changed(1, "version", value=2), "line 1: version: 2 is not 1, so a vmqos of another version"),
    "a version that is no number": (changed(1, "version", value=True), "line 1: version: True is not 1"),
    "no interval": (changed(1, "interval", value=0), "line 1: interval: 0 is no number from 0.001 to 86400"),
    "no JSON": (with_line(3, b"hello\n"), r"line 3: b'hello\n' is no JSON"),
    "bytes that are no text": (with_line(3, b"\xff\xfe\n"), "is no JSON"),
    "JSON that is too deep": (
        with_line(3, b"[" * 100_000 + b"\n"),
        "[[[[[' is no JSON",
    ),
    "a number without end": (with_line(3, b'{"time": ' + b"9" * 10_000 + b"}\n"), "line 3: "),
    "an empty line": (with_line(3, b"\n"), r"line 3: b'\n' is no JSON"),
    "no object": (with_line(3, [1, 2]), "line 3: [1, 2] is no JSON object"),
    "an object of no kind": (with_line(3, {"mood": 1}), "line 3: {'mood': 1} has neither 'host' nor 'time'"),
    "samples before the host": (with_line(2, b""), "line 2: a sample comes before the line 'host'"),
    "a time that stands still": (changed(4, "time", value=0.0), "line 4: time: 0.0 is not later than 0.0"),
    "a time that is none": (changed(3, "time", value=float("nan")), "line 3: time: nan is no number from 0 to 1e+11"),
    "a time without end": (changed(3, "time", value=float("inf")), "line 3: time: inf is no number"),
    "an unknown VM": (changed(3, "vms", "z", value=json.loads(TEXT.splitlines()[2])["vms"]["a"]), "has a VM 'z'"),
    "VMs that are no object": (changed(3, "vms", value=[]), "line 3: vms: [] is no JSON object"),
    "a CPU time below 0": (changed(3, *A, "cpu_time", value=-1), "line 3: vms.a.cpu_time: -1 is no number from 0"),
    "a negative figure": (changed(3, *A, "bandwidth", value=-1), "line 3: vms.a.bandwidth: -1 is no number from 0"),
    "a figure that is text": (changed(3, *A, "occupancy", "0", value="x"), "vms.a.occupancy.0: 'x' is no number"),
    "a figure that is a truth": (changed(3, *A, "counts", "cycles", value=True), "vms.a.counts.cycles: True is no"),
    "a count that is missing": (changed(3, *A, "counts", value={}), "vms.a.counts.cycles: None is no number"),
    "a VM twice": (
        with_line(3, b'{"time": 0.0, "vms": {"a": {"occupancy": {}}, "a": {"occupancy": {}}}}\n'),
        "line 3: 'a' comes twice in one object",
    ),
    "a cache twice": (
        changed(3, *A, "occupancy", value={"0": 1, "00": 2}),
        "line 3: vms.a.occupancy: ['0', '00'] name one of them twice",
    ),
    "a cache id that is none": (changed(3, *A, "occupancy", value={"L3": 1}), "vms.a.occupancy: 'L3' is no cache id"),
    "no occupancy": (changed(3, *A, "occupancy"), "line 3: vms.a.occupancy: None is no JSON object"),
    "a cache without a size": (
        changed(2, "host", "caches", "0", "size"),
        "caches.0.size: None is no whole",
    ),
    "too many ways": (changed(2, "host", "caches", "0", "ways", value=65), "host.caches.0.ways: 65 is no whole number"),
    "a memory without a limit": (
        changed(2, "host", "caches", "0", "bandwidth", value=0),
        "0.bandwidth: 0 is no",
    ),
    "no mask": (changed(2, "host", *A, "masks", "0", value="0xf"), "host.vms.a.masks.0: '0xf' is no mask"),
    "a mask of a number": (changed(2, "host", *A, "masks", "0", value=15), "host.vms.a.masks.0: 15 is no mask"),
    "a mask beyond the ways": (changed(2, "host", *A, "masks", "0", value="1ffff"), "1ffff has more than the 16 ways"),
    "a mask of no cache": (changed(2, "host", *A, "masks", value={"7": "f"}), "host.vms.a.masks: there is no cache 7"),
    "a flavor that is none": (changed(2, "host", *A, "flavor"), "line 2: host.vms.a.flavor: None is no text"),
    "a name that is none": (changed(2, "host", *A, "name", value=7), "line 2: host.vms.a.name: 7 is no text"),
    "a long flavor": (changed(2, "host", *A, "flavor", value="x" * 2000), "is longer than 1024 characters"),
    "no promise": (changed(2, "host", *A, "promise", value=7), "line 2: host.vms.a.promise: 7 is no JSON object"),
    "a unit that is none": (
        changed(2, "host", "bandwidth_unit", value="unknown"),
        "line 2: host.bandwidth_unit: 'unknown' is neither '%' nor 'MB/s' nor null",
    ),
    "a unit that is no text": (changed(2, "host", "bandwidth_unit", value=[]), "host.bandwidth_unit: [] is neither"),
    "a step of no size": (changed(2, "host", "bandwidth_gran", value=0), "host.bandwidth_gran: 0 is no whole number"),
    "steps from nowhere": (
        changed(2, "host", "bandwidth_gran", value=10),
        "line 2: host.min_bandwidth: None is no whole number from 1 to 100",
    ),
    "more per cent than all": (
        changed(2, "host", *A, "promise", "percent", value=101),
        "line 2: host.vms.a.promise.percent: 101 is no whole number from 0 to 100",
    ),
    "more ways than a flavor can ask for": (
        changed(2, "host", *A, "promise", "ways", value=10**9),
        "line 2: host.vms.a.promise.ways: 1000000000 is no whole number from 0 to 999999999",
    ),
    "vcpus that are no number": (
        changed(2, "host", *A, "vcpus", value="4"),
        "line 2: host.vms.a.vcpus: '4' is no whole number from 0 to 999999999",
    ),
    "a policy that is none": (
        changed(2, "host", *A, "promise", "is_shared", value="shared"),
        "line 2: host.vms.a.promise.is_shared: 'shared' is neither true nor false",
    ),
    "no time of memory": (changed(2, "host", "memory_seconds"), "host.memory_seconds: None is no number"),
    "too many VMs": (
        changed(2, "host", "vms", value={str(at): {} for at in range(5000)}),
        "line 2: host.vms: 5000 entries are more than 4096",
    ),
    "a line without end": (with_line(3, b" " * (5 << 20) + b"\n"), "line 3: it is longer than 4194304 bytes"),
    "nothing": (b"", "line 1: the file is empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_line_and_its_value(case: str) -> None:
    data, told_of_it = WRONG[case]
    with pytest.raises(Refused) as refused:
        read(data)
    assert told_of_it in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_last_line_that_is_unfinished_is_left_out_and_told() -> None:
    said: list[str] = []
    found = list(recording.read(io.BytesIO(TEXT[:-10]), refuse, said.append))
    assert found == RECORDS[:-1]
    assert said == ["line 4, the last one, is unfinished and left out"]


def test_a_file_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_BYTES", len(TEXT) - 1)
    with pytest.raises(Refused, match=rf"^line 4: the file is longer than {len(TEXT) - 1} bytes$"):
        read(TEXT)


def test_the_samples_are_those_of_the_api() -> None:
    line = json.loads(recording.sweep_line(SWEEPS[0]))
    assert line["vms"]["a"] | {"time": 0.0} == told.sample(HISTORY["a"][0])
