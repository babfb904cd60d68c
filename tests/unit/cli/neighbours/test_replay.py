# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fuzz.table import CORPUS
from tests.unit.cli.conftest import Run
from tests.unit.cli.neighbours import told
from tests.unit.cli.neighbours.test_record import CALM, HISTORY, HOST, NOISE, QUIET, ROBBED
from tests.unit.doc.pages import SOURCE
from tests.unit.insight.hosts import ALL, Did, host
from vmqos.cli.neighbours import answer, recording, replay
from vmqos.cli.neighbours.record import Series
from vmqos.cli.neighbours.recording import Facts, Header, Record
from vmqos.cli.neighbours.replay import Moments
from vmqos.insight import History, Host, LimitedIn, PercentSteps, Promise, Sample, judge


def recorded(found: Host, series: History, *, has_names: bool = True, polls: Sequence[float] = (1e12,)) -> bytes:
    """What 'vmqos record' writes where it asks the agent when the samples until these times are there."""
    told_so_far = Series({}, has_names, interval=1.0)
    lines = [recording.header_line(Header(1.0))]
    for until in polls:
        known = {vm: [one for one in samples if one.time <= until] for vm, samples in series.items()}
        for record in told_so_far.add(told.samples(found, known)):  # type: ignore[arg-type]
            lines.append(recording.facts_line(record) if isinstance(record, Facts) else recording.sweep_line(record))
    return b"".join(lines)


def refuse(line: int, problem: str) -> Exception:
    return AssertionError(f"line {line}: {problem}")


def replayed(data: bytes, moments: Moments) -> list[replay.Verdict]:
    return list(replay.verdicts(recording.read(io.BytesIO(data), refuse), moments, refuse))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    found = tmp_path / "found.jsonl"
    found.write_bytes(recorded(HOST, HISTORY, has_names=False))
    yield str(found)


DIDS = [CALM, ROBBED, QUIET, NOISE, Did(), Did(held=2 << 20, moved=5e9, misses=5), Did(held=1 << 20, moved=36e9)]

PROMISES = [Promise(), Promise(ways=2, is_shared=True), Promise(code_ways=1, data_ways=4), Promise(percent=20)]


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, History]:
    """Some VMs that each do one thing and then another; many of these hosts have a victim."""
    names = [f"vm-{number}" for number in range(1, draw(st.integers(2, 4)) + 1)]
    count, begun = draw(st.integers(12, 40)), draw(st.sampled_from([0.0, 1794000000.123]))
    step = draw(st.integers(8, count - 1))
    masks = {name: draw(st.sampled_from([ALL, ALL, 0xFF, 0xFF00])) for name in names}
    has_pmu = draw(st.booleans())
    noise = draw(st.lists(st.floats(0.97, 1.03), min_size=count, max_size=count))
    series: dict[str, list[Sample]] = {}
    for number, name in enumerate(names):
        pairs = [(QUIET, NOISE), (CALM, ROBBED)]
        before, after = pairs[number] if number < 2 else draw(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)))
        came = draw(st.sampled_from([0, 0, 0, step - 1]))
        series[name] = [
            _sample(after if at >= step else before, begun + at * 1.0007, noise[at], has_pmu)
            for at in range(came, count)
        ]
    limit = draw(st.sampled_from([40e9, None]))
    known = host(masks, limit=limit, flavor="flavor-1")
    vms = {
        name: replace(vm, promise=draw(st.sampled_from(PROMISES)), vcpus=draw(st.sampled_from([0, 2, 200])))
        for name, vm in known.vms.items()
    }
    return replace(known, vms=vms), series


def _sample(did: Did, time: float, noise: float, has_pmu: bool) -> Sample:
    found = did.sample(time, has_pmu)
    counts = found.counts and replace(found.counts, cycles=found.counts.cycles * noise)
    return replace(found, bandwidth=did.moved * noise, counts=counts)


@given(hosts(), st.booleans(), st.integers(1, 30))
def test_what_was_recorded_is_judged_as_what_was_there(
    found: tuple[Host, History], has_names: bool, polled: int
) -> None:
    here, series = found
    first = next(iter(series.values()))[0].time
    data = recorded(here, series, has_names=has_names, polls=[first + polled, first + 2 * polled + 0.5, 1e12])
    (said,) = replayed(data, Moments(window=1000))
    insight = judge(here, series)
    event(f"{len(insight.pairs)} pairs")
    times = {one.time for samples in series.values() for one in samples}
    assert said.answer == answer.of(
        insight,
        time=max(times),
        interval=1.0,
        samples=max(map(len, series.values())),
        counted=any(one.counts for samples in series.values() for one in samples),
        traffic_counted=any(one.bandwidth is not None for samples in series.values() for one in samples),
    )


def test_the_hosts_of_that_test_have_victims() -> None:
    series = {"vm-1": [], "vm-2": []}  # type: dict[str, list[Sample]]
    for at in range(40):
        series["vm-1"].append(_sample(NOISE if at >= 20 else QUIET, float(at), 1.0, True))
        series["vm-2"].append(_sample(ROBBED if at >= 20 else CALM, float(at), 1.0, True))
    assert len(judge(host({"vm-1": ALL, "vm-2": ALL}), series).pairs) == 1


COUNTED, SLOW = CORPUS / "neighbours" / "counted", Path(__file__).with_name("slow.jsonl")


@pytest.mark.parametrize(
    ("recording_of", "vms", "example", "program"),
    [
        (COUNTED, (), "replay.txt", "record_examples.py"),
        (SLOW, ("web-1",), "slow-neighbours.txt", "record_slow.py"),
    ],
    ids=["replay", "a customer says it is slow"],
)
def test_the_guide_shows_what_it_prints(
    recording_of: Path, vms: tuple[str, ...], example: str, program: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wherever a recording is replayed, its times are UTC.
    monkeypatch.setenv("TZ", "XYZ-5:45")
    time.tzset()
    printed = run("replay", str(recording_of), *vms).out
    monkeypatch.undo()
    time.tzset()
    shown = (SOURCE / "examples" / example).read_text(encoding="utf-8")
    # There it is on a terminal, which breaks lines.
    assert shown.split() == printed.split(), f"record the examples anew: doc/{program}"


def test_it_says_what_the_agent_would_have_said(run: Run, path: str) -> None:
    ran = run("replay", path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(
        "1 VM is slowed by 1 other VM.\nThis is based on 40 samples of 1 s of 3 VMs, with hardware events.\n\n"
        "vm-1 is slowed by vm-2, through the cache\n"
    )
    assert "    vmqos flavor set flavor-1-NEW --cache-ways 2 --policy shared\n" in ran.out
    about_one = run("replay", path, "vm-3")
    assert about_one.out.startswith("No VM slows vm-3, and it slows none, as far as can be seen.\n")


def test_a_change_that_the_flavor_has_is_not_advised(run: Run, tmp_path: Path) -> None:
    capped = {uuid: replace(vm, promise=Promise(ways=2, is_shared=True)) for uuid, vm in HOST.vms.items()}
    (tmp_path / "capped").write_bytes(recorded(replace(HOST, vms=capped), HISTORY, has_names=False))
    ran = run("replay", str(tmp_path / "capped"))
    assert ran.out.startswith("1 VM is slowed") and "--policy shared" not in ran.out
    assert "the neighbour's flavor has a cap already (2 ways with hw:cache_policy=shared)" in " ".join(ran.out.split())


def test_of_an_earlier_recording_that_has_no_promises_is_advised_what_any_vm_is(run: Run, path: str) -> None:
    header, facts, *sweeps = Path(path).read_bytes().splitlines(keepends=True)
    told_of_host = json.loads(facts)
    for vm in told_of_host["host"]["vms"].values():
        del vm["promise"]
    said = run("replay", path).out
    Path(path).write_bytes(b"".join([header, json.dumps(told_of_host).encode() + b"\n", *sweeps]))
    assert run("replay", path).out == said


FLOODED = {
    "vm-1": [
        Did(held=2 << 20, moved=3e9 if at >= 25 else 5e9, cycles=3400 if at >= 25 else 2000, misses=5)
        for at in range(40)
    ],
    "vm-2": [Did(held=1 << 20, moved=36e9 if at >= 25 else 1e8) for at in range(40)],
}


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (LimitedIn.PERCENT, "vmqos flavor set flavor-1-NEW --bandwidth-percent 30"),
        (LimitedIn.MBPS, "vmqos flavor set flavor-1-NEW --bandwidth-mbps 10750"),
        (LimitedIn.NOTHING, "this host can't limit memory bandwidth"),
        (LimitedIn.UNKNOWN, "whether this host limits in per cent or in MB/s is not known"),
    ],
)
def test_a_limit_is_advised_in_the_unit_of_the_host_and_none_of_an_earlier_recording_that_does_not_say_it(
    unit: LimitedIn, said: str, run: Run, tmp_path: Path
) -> None:
    series = {vm: [did.sample(float(at), True) for at, did in enumerate(dids)] for vm, dids in FLOODED.items()}
    known = replace(host({"vm-1": ALL, "vm-2": 1}, flavor="m1.batch"), limited_in=unit)
    data = recorded(known, series, has_names=False)
    (tmp_path / "flooded").write_bytes(data)
    assert (b"bandwidth_unit" in data) == (unit is not LimitedIn.UNKNOWN)
    out = " ".join(run("replay", str(tmp_path / "flooded")).out.split())
    assert "vm-1 is slowed by vm-2, through the memory's bandwidth" in out and said in out
    assert ("--bandwidth" in out) == ("--bandwidth" in said)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (None, "vmqos flavor set flavor-1-NEW --bandwidth-percent 10"),
        (PercentSteps(1, 1), "vmqos flavor set flavor-1-NEW --bandwidth-percent 14"),
        (PercentSteps(20, 20), "with 20 % the neighbour's 16 could still move 32 GB/s"),
    ],
)
def test_a_limit_is_advised_in_the_steps_of_the_host_that_was_recorded(
    steps: PercentSteps | None, said: str, run: Run, tmp_path: Path
) -> None:
    series = {vm: [did.sample(float(at), True) for at, did in enumerate(dids)] for vm, dids in FLOODED.items()}
    known = host({"vm-1": ALL, "vm-2": 1}, flavor="m1.batch")
    known = replace(known, percent_steps=steps, vms={vm: replace(of, vcpus=16) for vm, of in known.vms.items()})
    (tmp_path / "flooded").write_bytes(recorded(known, series, has_names=False))
    out = " ".join(run("replay", str(tmp_path / "flooded")).out.split())
    assert said in out and ("--bandwidth" in out) == ("--bandwidth" in said)


def test_it_is_judged_as_it_was_at_a_moment(run: Run, path: str) -> None:
    assert run("replay", path, "--at", "20").out.startswith("No VM slows another, as far as can be seen.\n")
    assert "21 samples" in run("replay", path, "--at", "20").out
    assert run("replay", path, "--at", "38.9").out.startswith("1 VM is slowed")
    ran = run("replay", path, "--at", "39.1")
    assert (ran.status, ran.out) == (1, "")
    assert "found.jsonl has no second 39.1: it ends 39 s after its first sample" in ran.err


def test_it_is_judged_again_and_again(run: Run, path: str) -> None:
    ran = run("replay", path, "--every", "10", "-f", "json")
    found = json.loads(ran.out)
    assert [one["at"] for one in found] == [10.0, 20.0, 30.0, 39.0]
    assert [len(one["pairs"]) for one in found] == [0, 0, 1, 1]
    for one in found:
        at = one.pop("at")
        assert json.loads(run("replay", path, "--at", str(at), "-f", "json").out) == one
    text = run("replay", path, "--every", "10").out
    assert next(line for line in text.splitlines() if line.startswith("At ")).startswith("At 10 s, 1970-01-01 ")
    assert text.count("No VM slows another") == 2 and text.count("vm-1 is slowed by vm-2") == 2
    rows = list(csv.DictReader(run("replay", path, "--every", "10", "-f", "csv").out.splitlines()))
    assert [(row["At"], row["Victim"]) for row in rows] == [("30", "vm-1"), ("39", "vm-1")]
    assert run("replay", path, "--every", "10", "--at", "10").status == 2


def test_only_the_window_is_judged(run: Run, path: str) -> None:
    assert "10 samples" in run("replay", path, "--window", "10").out


@pytest.mark.parametrize("window", ["1001", "999999999999999999"])
def test_a_window_that_would_take_hours_or_all_memory_is_refused(window: str, run: Run, path: str) -> None:
    assert run("replay", path, "--window", "1000").status == 0
    ran = run("replay", path, "--window", window)
    assert ran.status == 2
    assert f"{window} is more than 1000: a whole number from 1 to 1000 is allowed" in " ".join(ran.err.split())


def test_nothing_is_said_of_moments_at_which_nothing_was_recorded() -> None:
    series = {"vm-1": [QUIET.sample(float(at), True) for at in (0, 1, 2, 50, 51, 10**9)]}
    data = recorded(host({"vm-1": ALL}), series)
    found = replayed(data, Moments(every=10.0))
    assert [(one.at, one.answer["samples"]) for one in found] == [(2.0, 3), (50.0, 4), (51.0, 5), (1e9, 6)]


def test_where_a_cache_comes_nothing_is_compared_with_what_was_before() -> None:
    series = next(iter(HISTORY.values()))
    one, two = host({"vm-1": ALL}), host({"vm-1": ALL})
    two = replace(two, caches={**two.caches, 1: two.caches[0]})
    later = recorded(two, {"vm-1": series[20:]}).partition(b"\n")[2]
    (found,) = replayed(recorded(one, {"vm-1": series[:20]}) + later, Moments())
    assert found.answer["samples"] == 20


def test_a_vm_that_has_ended_is_not_judged() -> None:
    first, second, _ = HISTORY.values()
    both = recorded(host({"vm-1": ALL, "vm-2": ALL}), {"vm-1": first[:20], "vm-2": second[:20]})
    left = recorded(host({"vm-1": ALL}), {"vm-1": first[20:]})
    (found,) = replayed(both + left.partition(b"\n")[2], Moments())
    assert [vm["uuid"] for vm in found.answer["vms"]] == ["vm-1"]
    assert found.answer["samples"] == 40


def test_the_names_of_a_recording_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    facts = Facts(HOST, dict(zip(HISTORY, ("web", "batch\x1b[2J", "db"), strict=True)))
    sweeps = recorded(HOST, HISTORY).split(b"\n", 2)
    (tmp_path / "named").write_bytes(sweeps[0] + b"\n" + recording.facts_line(facts) + sweeps[2])
    ran = run("replay", str(tmp_path / "named"), "web")
    assert r"web is slowed by batch\x1b[2J, through the cache" in ran.out
    assert run("replay", str(tmp_path / "named"), "4f2c").out == ran.out


def test_a_vm_that_is_not_recorded_is_told_with_those_that_are(run: Run, path: str) -> None:
    for arguments in ((), ("--every", "5")):
        ran = run("replay", path, "web-1\x1b[2J", *arguments)
        assert (ran.status, ran.out) == (1, "")
        assert r"found.jsonl has no VM 'web-1\x1b[2J': there are vm-1, vm-2, vm-3" in ran.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "can't be replayed: line 1: the file is empty"),
        (b"\x1b[2Jhello\n", r"can't be replayed: line 1: b'\x1b[2Jhello\n' is no JSON"),
        (recording.header_line(Header(1.0)), "has no samples: there is nothing to judge"),
        (recorded(HOST, HISTORY) + b'{"time": "\\u001b[2J"}\n', r"line 43: time: '\x1b[2J' is no number"),
        (None, "can't use"),
    ],
)
def test_a_file_that_is_no_recording_is_one_line_on_stderr(
    content: bytes | None, message: str, run: Run, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    ran = run("replay", str(tmp_path / "x"))
    assert (ran.status, ran.out) == (1, "")
    assert message in ran.err and len(ran.err.splitlines()) == 1 and "\x1b" not in ran.err


def test_a_recording_that_was_cut_off_is_judged_as_far_as_it_goes(run: Run, path: str) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:-5])
    ran = run("replay", path)
    assert ran.status == 0
    assert "line 42, the last one, is unfinished and left out" in ran.err
    assert "39 samples" in ran.out


def test_more_samples_than_a_host_can_have_in_a_window_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_MOST_SAMPLES", 59)
    with pytest.raises(AssertionError, match=r"^line 22: with it, 20 samples of all VMs are more than 59$"):
        replayed(recorded(HOST, HISTORY), Moments())


def test_more_figures_of_caches_than_a_host_can_have_in_a_window_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_MOST_HELD", 59)
    with pytest.raises(AssertionError, match=r"^line 22: with it, 20 samples have more than 59 figures of caches$"):
        replayed(recorded(HOST, HISTORY), Moments())
    monkeypatch.setattr(replay, "_MOST_HELD", 60)
    assert replayed(recorded(HOST, HISTORY), Moments(window=20)), "those that left the window do not count"


class Watched(Facts):
    """Facts that it can be asked of whether anything keeps them."""


def test_of_what_was_known_of_the_host_the_newest_alone_is_kept() -> None:
    header, facts, *sweeps = recording.read(io.BytesIO(recorded(HOST, HISTORY)), refuse)
    assert isinstance(facts, Facts)
    alive: list[weakref.ref[Facts]] = []

    def records(known: Facts) -> Iterator[Record]:
        yield header
        for sweep in sweeps:
            fresh = Watched(known.host, known.names)
            alive.append(weakref.ref(fresh))
            yield fresh
            yield sweep

    found = replay.verdicts(records(facts), Moments(), refuse)
    verdict = next(found)
    assert verdict.answer["samples"] == len(sweeps)
    assert sum(one() is not None for one in alive) <= 1, "while it is judged"


def test_no_agent_is_asked(run: Run, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*arguments: Any) -> None:
        raise AssertionError("it asks")

    monkeypatch.setattr("vmqos.local_api.client.AgentClient._send", connect)
    assert run("replay", path).status == 0
