# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.neighbours import told
from tests.unit.cli.streams import Stream
from tests.unit.insight.hosts import ALL, Did, history, host, step
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.neighbours.record import Progress, Series
from vmqos.insight import History

MIB = 1 << 20
QUIET, NOISE = Did(held=MIB), Did(held=20 * MIB, moved=8e9, misses=18)
CALM = Did(held=10 * MIB, moved=2e8, misses=0.5, ran=0.75)
ROBBED = Did(held=4 * MIB, moved=2e9, cycles=2000, misses=5, ran=1.5)
HISTORY = history(
    40, **{examples.WEB: step(CALM, ROBBED, 25), examples.BATCH: step(QUIET, NOISE, 25), examples.DB: lambda _: QUIET}
)
HOST = host(dict.fromkeys(HISTORY, ALL), flavor="m1.secret")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments at which it woke up: it never really waits."""
    now = [1000.0]
    monkeypatch.setattr("vmqos.cli.neighbours.record.time.monotonic", lambda: now[-1])
    monkeypatch.setattr("vmqos.cli.neighbours.record.time.sleep", lambda seconds: now.append(now[-1] + seconds))
    return now


def lines(path: str) -> list[dict[str, Any]]:
    text = Path(path).read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_what_the_agent_knows_and_what_comes_is_recorded_and_none_of_it_twice(
    agent: FakeAgent, run: Run, clock: list[float]
) -> None:
    told.serve(agent, HOST, HISTORY, 30)
    ran = run("record", "--seconds", "5", "-o", "out.jsonl")
    assert ran.status == 0
    assert ran.err == "Recording for 5 s; Ctrl-C ends it earlier.\n"
    header, facts, *sweeps = lines("out.jsonl")
    version = examples.health()["version"]
    assert header == {"format": "vmqos-neighbours", "version": 1, "interval": 1.0, "vmqos": version}
    assert facts["host"]["caches"] == {"0": {"size": 32 * MIB, "ways": 16, "bandwidth": 40e9}}
    assert [sweep["time"] for sweep in sweeps] == [float(second) for second in range(35)]
    assert sweeps[30]["vms"]["vm-1"] == {
        key: value for key, value in told.sample(HISTORY[examples.WEB][30]).items() if key != "time"
    }
    assert [sweep["vms"]["vm-1"]["cpu_time"] for sweep in sweeps] == [0.75] * 25 + [1.5] * 10
    assert ran.out.startswith("out.jsonl has 35 samples of 1 s of 3 VMs, with hardware events: ")
    assert clock == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0]


def test_names_and_uuids_are_told_to_the_operator_and_not_to_the_file(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, HOST, HISTORY)
    ran = run("record", "--seconds", "0", "-o", "out.jsonl")
    text = Path("out.jsonl").read_text()
    for secret in (*HISTORY, "web-1", "batch", "db-1", "m1.secret", "instance-", "compute"):
        assert secret not in text
    for line in ("vm-1 is web-1", "vm-2 is batch", "vm-3 is db-1", "flavor-1 is m1.secret"):
        assert f"  {line}\n" in ran.out
    assert ran.err == "", "what is over at once needs no word"


def test_with_names_the_file_has_them(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, HOST, HISTORY)
    ran = run("record", "--seconds", "0", "--names", "-o", "out.jsonl")
    vm = lines("out.jsonl")[1]["host"]["vms"][examples.WEB]
    assert (vm["name"], vm["flavor"]) == ("web-1", "m1.secret")
    assert "It has the names and UUIDs of VMs and flavors.\n" in ran.out


def test_a_vm_that_comes_later_is_told_by_its_name_too(agent: FakeAgent, run: Run, clock: list[float]) -> None:
    told.serve(agent, HOST, HISTORY, 30)
    running = examples.vms()
    asked = list[list[Any]]()

    def vms(query: dict[str, list[str]]) -> tuple[str, bytes]:
        asked.append(running if asked else [vm for vm in running if vm["uuid"] != examples.DB])
        return "200 OK", json.dumps({"vms": asked[-1]}).encode()

    agent.answers["/v1/vms"] = vms
    ran = run("record", "--seconds", "3", "--names", "-o", "named.jsonl")
    hosts = [line["host"]["vms"] for line in lines("named.jsonl") if "host" in line]
    assert ["name" in host[examples.DB] for host in hosts] == [False, True] and ran.status == 0
    assert len(asked) == 2, "it is asked again only for a VM that has no name yet"
    asked.clear()
    assert "  vm-3 is db-1\n" in run("record", "--seconds", "3", "-o", "out.jsonl").out


def test_samples_that_were_told_are_recorded_though_the_agent_ends_before_it_tells_names(
    agent: FakeAgent, run: Run, clock: list[float]
) -> None:
    """The next agent does not know them any more."""
    told.serve(agent, HOST, HISTORY, 30)
    running = examples.vms()
    asked = list[str]()

    def vms(query: dict[str, list[str]]) -> tuple[str, bytes]:
        asked.append("vms")
        if len(asked) == 1:
            return "200 OK", json.dumps({"vms": [vm for vm in running if vm["uuid"] != examples.DB]}).encode()
        agent.answers["/v1/neighbours/samples"] = lambda query: ("503 Service Unavailable", b'{"error": "away"}')
        return "503 Service Unavailable", b'{"error": "away"}'

    agent.answers["/v1/vms"] = vms
    assert run("record", "--seconds", "3", "-o", "out.jsonl").status == 0
    assert [line["time"] for line in lines("out.jsonl") if "time" in line][-1] == 30.0


def test_the_file_is_its_owners_alone_and_has_a_name_of_its_own(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, HOST, HISTORY)
    before = os.umask(0)
    try:
        assert run("record", "--seconds", "0").status == 0
    finally:
        os.umask(before)
    (found,) = Path().iterdir()
    assert found.name.startswith("vmqos-record-") and found.suffix == ".jsonl"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["file", "link", "no folder"])
def test_a_file_that_is_there_is_never_written_to(kind: str, agent: FakeAgent, run: Run, tmp_path: Path) -> None:
    told.serve(agent, HOST, HISTORY)
    if kind == "link":
        Path("out").symlink_to(tmp_path / "victim")
    elif kind == "file":
        Path("out").write_text("dear")
    ran = run("record", "--seconds", "0", "-o", "out" if kind != "no folder" else "none/out")
    assert (ran.status, ran.out) == (1, "")
    assert ("No such file" if kind == "no folder" else "it is there already; name another one with -o") in ran.err
    assert not (tmp_path / "victim").exists()
    assert kind != "file" or Path("out").read_text() == "dear"


def test_ctrl_c_ends_it_properly_and_says_what_is_in_the_file(
    agent: FakeAgent, run: Run, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told.serve(agent, HOST, HISTORY, 30)

    def sleep(seconds: float) -> None:
        clock.append(clock[-1] + seconds)
        if len(clock) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("vmqos.cli.neighbours.record.time.sleep", sleep)
    ran = run("record", "-o", "out.jsonl")
    assert ran.status == 0
    assert ran.out.startswith("out.jsonl has 32 samples of 1 s of 3 VMs")
    assert len(lines("out.jsonl")) == 34
    assert run("replay", "out.jsonl").out.startswith("1 VM is slowed by 1 other VM.")


class Disk:
    """A disk that is full after so many bytes, and takes what fits of the last write.

    What other threads write goes elsewhere: waitress's wake each other by it.

    :param end: what it raises then.
    """

    def __init__(self, room: int, end: BaseException) -> None:
        self._room, self._end, self._write = room, end, os.write
        self._thread = threading.get_ident()

    def write(self, fd: int, data: Any) -> int:
        if threading.get_ident() != self._thread:
            return self._write(fd, data)
        if not self._room:
            raise self._end
        written = self._write(fd, data[: self._room])
        self._room -= written
        return written


@pytest.mark.parametrize("room", [100, 1000, 2001, 9999])
@pytest.mark.parametrize("is_full", [True, False])
def test_a_full_disk_or_ctrl_c_within_a_line_leaves_a_shorter_file_that_can_be_replayed(
    room: int, is_full: bool, agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.serve(agent, HOST, HISTORY)
    end = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else KeyboardInterrupt()
    with monkeypatch.context() as patch:
        patch.setattr("vmqos.cli.neighbours.record.os.write", Disk(room, end).write)
        ran = run("record", "--seconds", "0", "-o", "out.jsonl")
    assert ran.status == (1 if is_full else 0)
    assert is_full == ("can't use out.jsonl: No space left on device" in ran.err)
    assert "out.jsonl has " in ran.out
    found = lines("out.jsonl")
    assert 0 < Path("out.jsonl").stat().st_size <= room
    replayed = run("replay", "out.jsonl", "-f", "value")
    assert replayed.status == (0 if len(found) > 2 else 1)


def test_a_disk_without_room_for_the_first_line_leaves_no_file(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.serve(agent, HOST, HISTORY)
    with monkeypatch.context() as patch:
        patch.setattr("vmqos.cli.neighbours.record.os.write", Disk(10, OSError(errno.ENOSPC, "full")).write)
        assert run("record", "--seconds", "0", "-o", "out.jsonl").status == 1
    assert not list(Path().iterdir())


def test_the_file_is_bounded_in_bytes(agent: FakeAgent, run: Run, clock: list[float]) -> None:
    many = history(400, **{examples.WEB: lambda _: CALM, examples.BATCH: lambda _: QUIET})
    told.serve(agent, host(dict.fromkeys(many, ALL)), many)
    ran = run("record", "--max-size", "64K", "-o", "out.jsonl")
    assert ran.status == 0
    assert "the file is full (--max-size): it has 6" in ran.err
    assert 65536 - 600 < Path("out.jsonl").stat().st_size <= 65536
    assert lines("out.jsonl")[-1]["time"] < 399
    assert run("record", "--max-size", "2G").status == 2


def test_a_dash_is_standard_output_and_the_words_are_told_elsewhere(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, HOST, HISTORY)
    ran = run("record", "--seconds", "0", "-o", "-")
    assert ran.status == 0 and not list(Path().iterdir())
    assert run("record", "--seconds", "0", "-o", "out.jsonl").status == 0
    assert ran.out == Path("out.jsonl").read_text()
    assert ran.err.startswith("What was written has 40 samples of 1 s of 3 VMs, with hardware events: ")
    assert "  vm-1 is web-1\n" in ran.err and "'vmqos replay FILE'" in ran.err


def test_a_terminal_is_sent_no_recording(agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told.serve(agent, HOST, HISTORY)
    monkeypatch.setattr("vmqos.cli.app.VmqosApp._set_streams", _as_in_a_terminal)
    ran = run("record", "--seconds", "0", "-o", "-")
    assert (ran.status, ran.out) == (2, "") and not list(Path().iterdir())
    assert "-o - is for a pipe or a file, and standard output is a terminal; see 'vmqos help record'" in ran.err


def _as_in_a_terminal(app: Any, *streams: Any) -> None:
    app.stdin, app.stdout, app.stderr = sys.stdin, Stream(), sys.stderr


def test_a_reader_of_standard_output_that_leaves_early_is_told_by_the_status(agent: FakeAgent) -> None:
    told.serve(agent, HOST, HISTORY)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vmqos.cli.main", "record", "--seconds", "0", "-o", "-"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert ended.returncode == 141 and b"Traceback" not in ended.stderr


def test_an_agent_that_is_away_for_a_while_is_told_and_asked_again(
    agent: FakeAgent, run: Run, clock: list[float]
) -> None:
    told.serve(agent, HOST, HISTORY, 30)
    answer, asked = agent.answers["/v1/neighbours/samples"], []

    def now_and_then(query: dict[str, list[str]]) -> Any:
        asked.append(query)
        return ("503 Service Unavailable", b'{"error": "away"}') if len(asked) in (2, 3) else answer(query)

    agent.answers["/v1/neighbours/samples"] = now_and_then
    ran = run("record", "--seconds", "5", "-o", "out.jsonl")
    assert (ran.status, ran.err.count("away; waiting for it")) == (0, 1)
    assert [line["time"] for line in lines("out.jsonl")[2:]] == [float(second) for second in range(33)]


def test_vms_that_come_and_go_are_told_with_new_facts(agent: FakeAgent, run: Run, clock: list[float]) -> None:
    series = HISTORY[examples.WEB]
    first = told.samples(host({"a": ALL}), {"a": series[:2]})
    second = told.samples(host({"b": 3, "a": ALL}), {"a": series[2:3], "b": series[2:3], "c": series[2:3]})
    answers = [first, second, second]
    agent.answers["/v1/neighbours"] = examples.neighbours()
    agent.answers["/v1/neighbours/samples"] = lambda query: ("200 OK", json.dumps(answers.pop(0)).encode())
    ran = run("record", "--seconds", "2", "-o", "out.jsonl")
    kinds = [tuple(line["host"]["vms"]) if "host" in line else tuple(line["vms"]) for line in lines("out.jsonl")[1:]]
    assert kinds == [("vm-1",), ("vm-1",), ("vm-1",), ("vm-2", "vm-1"), ("vm-1", "vm-2")]
    assert "It leaves out 1 sample of VMs that ended.\n" in ran.out


SET_BACK = 100.0
BACK_AT = 25
"""From this sample on, when the neighbour begins, the clock is behind by :data:`SET_BACK` seconds."""


def set_back(by: float = SET_BACK, begun: float = 1000.0) -> History:
    return {
        uuid: [replace(one, time=begun + one.time - (by if at >= BACK_AT else 0)) for at, one in enumerate(series)]
        for uuid, series in HISTORY.items()
    }


def test_what_was_taken_before_the_clock_was_set_back_comes_before_what_was_taken_after_it(
    agent: FakeAgent, run: Run
) -> None:
    late = {uuid: series[BACK_AT:] if uuid == examples.DB else series for uuid, series in set_back().items()}
    told.serve(agent, HOST, late)
    ran = run("record", "--seconds", "0", "-o", "out.jsonl")
    assert ran.status == 0 and "The clock was set back by about 1 min 40 s in that time. In the file," in ran.out
    _, _, *sweeps = lines("out.jsonl")
    assert [sweep["time"] for sweep in sweeps] == [1000.0 + second for second in range(40)]
    assert ["vm-3" in sweep["vms"] for sweep in sweeps] == [False] * BACK_AT + [True] * (40 - BACK_AT)
    assert run("replay", "out.jsonl").out.startswith("1 VM is slowed by 1 other VM.")


@pytest.mark.parametrize("poll", [1.0, 2.5], ids=["seen", "over before the next question"])
def test_what_comes_after_the_clock_was_set_back_is_recorded_behind_what_came_before(
    poll: float, agent: FakeAgent, run: Run, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was set back by so little that it says later than before when the agent is asked next."""
    by = SET_BACK if poll == 1.0 else 2.3
    series = set_back(by)
    taken = BACK_AT - 5

    def answer(query: dict[str, list[str]]) -> tuple[str, bytes]:
        known = {uuid: of[: round(taken + clock[-1] - clock[0])] for uuid, of in series.items()}
        since = float(query["since"][0]) if "since" in query else -1.0
        return "200 OK", json.dumps(told.samples(HOST, known, since)).encode()

    def now() -> float:
        passed = taken + clock[-1] - clock[0]
        return 1000.0 + passed - (by if passed > BACK_AT else 0)

    told.serve(agent, HOST, series)
    agent.answers["/v1/neighbours/samples"] = answer
    monkeypatch.setattr("vmqos.cli.neighbours.record.LEAST_PAUSE", poll)
    monkeypatch.setattr("vmqos.cli.neighbours.record.time.time", now)
    ran = run("record", "--seconds", "20", "-o", "out.jsonl")
    times = [line["time"] for line in lines("out.jsonl") if "time" in line]
    assert times == pytest.approx([1000.0 + second for second in range(40)])
    assert f"The clock was set back by about {'1 min 40 s' if poll == 1.0 else '2 s'} in that time" in ran.out


def test_where_the_agent_samples_nothing_nothing_is_recorded(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, HOST, {})
    agent.answers["/v1/neighbours"] = examples.neighbours(interval=0.0, samples=0, time=None, vms=[], pairs=[])
    ran = run("record", "-o", "out.jsonl")
    assert (ran.status, ran.out) == (1, "")
    assert "[telemetry] interval is 0" in ran.err and not list(Path().iterdir())
    said = run("neighbours")
    assert said.status == 0
    assert said.out.startswith("Nothing can be said: the agent does not read the counters regularly.\n")


def test_what_could_not_be_replayed_is_not_recorded(agent: FakeAgent, run: Run) -> None:
    wrong = told.samples(HOST, HISTORY)
    wrong["samples"][examples.WEB][5]["bandwidth"] = -1.0
    agent.answers["/v1/neighbours/samples"] = wrong
    ran = run("record", "--seconds", "0", "-o", "out.jsonl")
    assert ran.status == 1
    assert "the agent told what can't be recorded: vms.vm-1.bandwidth: -1.0 is no number from 0 to 1e+18" in ran.err
    assert len(lines("out.jsonl")) == 7


def test_a_hostile_name_reaches_no_terminal(agent: FakeAgent, run: Run) -> None:
    told.serve(agent, host(dict.fromkeys(HISTORY, ALL), flavor="\x1b[2J\nflavor"), HISTORY)
    agent.answers["/v1/vms"] = {"vms": [vm | {"instance_name": "\x1b[2J\nname"} for vm in examples.vms()]}
    ran = run("record", "--seconds", "0", "-o", "out\x1b[2J")
    assert ran.status == 0
    assert "\x1b" not in ran.out + ran.err


def test_in_a_terminal_a_bar_grows_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    screen, series = Stream(encoding="ascii"), Series({}, has_names=False, interval=1.0)
    series.add(told.samples(HOST, HISTORY))  # type: ignore[arg-type]
    progress = Progress(screen, True, 60.0)
    for passed in (0.0, 20.0, 60.5):
        progress.show(passed, series)
    progress.end()
    *drawn, last = screen.getvalue().split("\r\x1b[K")[1:]
    assert drawn == [
        f"{'.' * 30} 0 of 60 s, 3 VMs, Ctrl-C ends it",
        f"{'#' * 10}{'.' * 20} 20 of 60 s, 3 VMs, Ctrl-C ends it",
        f"{'#' * 30} 60 of 60 s, 3 VMs, Ctrl-C ends it",
    ]
    assert last == ""
    monkeypatch.setenv("COLUMNS", "40")
    screen = Stream(encoding="ascii")
    Progress(screen, True, 60.0).show(1.0, series)
    assert len(screen.getvalue()) < 4 + 40, "a line that is wrapped could not be taken away"
