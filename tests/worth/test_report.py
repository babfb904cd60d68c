# SPDX-License-Identifier: Apache-2.0
"""The report says what was found, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernel.cachemodel.counts import Counts, Served
from tests.worth import cost, inside, page, sections
from tests.worth.__main__ import GUESTS, NATIVE, PAGE, PLOTS, RESULTS, found_in, lacking, main, words
from tests.worth.experiments import batch_channel, memory_limit, mixes, size_programs
from tests.worth.neighbours import beside
from tests.worth.rounds import mean_of
from tests.worth.section import Bars, Section, digest
from tests.worth.sections import batch_channel as batch_channel_section
from tests.worth.sections import guest_mixes as guest_mixes_section
from tests.worth.sections import latencies
from tests.worth.sections import memory_limit as memory_limit_section
from tests.worth.sections import mixes as mixes_section
from tests.worth.sections import neighbours as neighbours_section
from tests.worth.sections.guest_mixes import NO_PMU, PMU_OF_THE_L3
from tests.worth.sections.mixes import BY_NEED, CAPPED, EVENLY, SHARED
from vmqos.conf import telemetry


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What was found in the run that the page in the tree is made of."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


@pytest.fixture(scope="module")
def made(results: dict[str, Any]) -> dict[str, Section]:
    """The report's sections, by experiment."""
    return {name: make(results[name]) for name, make in sections.ALL.items()}


def test_every_experiment_was_made(results: dict[str, Any]) -> None:
    modules = Path(mixes.__file__).parent.glob("[!_]*.py")
    assert list(results) == list(sections.ALL)
    made = {name for _, names in GUESTS for name in names}.union(NATIVE)
    assert set(results) == {module.stem for module in modules} == made


def test_the_page_in_the_tree_is_made_of_the_results_in_the_tree(results: dict[str, Any]) -> None:
    assert PAGE.read_text() == page.build(results)


def test_the_plots_in_the_tree_are_drawn_of_the_results_in_the_tree(made: dict[str, Section]) -> None:
    plots = [plot for section in made.values() for plot in section.plots]
    assert sorted(path.name for path in PLOTS.iterdir()) == sorted(f"{plot.name}.svg" for plot in plots)
    for plot in plots:
        drawn = (PLOTS / f"{plot.name}.svg").read_text()
        assert digest(plot) in drawn, plot.name
        assert plot.unit in drawn and plot.title in drawn
        if isinstance(plot, Bars):
            assert {len(values) for values in plot.values.values()} == {len(plot.groups)}


def test_each_section_names_its_source_and_what_is_left_out(made: dict[str, Section]) -> None:
    for section in made.values():
        for text in (section.source, section.text, section.left_out):
            assert text.endswith((".", ".*")), section.title
        assert section.claims and section.tables and section.plots


def test_a_guest_is_told_which_programs_are_run() -> None:
    assert words(("mixes", "size_programs"), ()) == "mixes size_programs"
    assert words(("size_programs",), ("gzip", "SQLite")) == "size_programs:gzip,SQLite"
    asked: list[Any] = []
    node = SimpleNamespace(remove_all=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(size_programs, "run", lambda *given: asked.append(given))
        inside.run("size_programs:gzip,SQLite", node)  # type: ignore[arg-type]
        inside.run("size_programs", node)  # type: ignore[arg-type]
    assert asked == [(node, ("gzip", "SQLite")), (node,)]


def test_a_program_that_was_not_sized_to_its_end_has_failed() -> None:
    sized = {"versions": {}, "programs": {"gzip": {"cut": False}, "sort": {"cut": True}}}
    assert lacking(("mixes", "size_programs"), ("gzip",), {"mixes": {}}) == ["size_programs"]
    assert lacking(("size_programs",), ("gzip",), {"size_programs": sized}) == []
    assert lacking(("size_programs",), ("gzip", "sort", "zstd"), {"size_programs": sized}) == [
        "size_programs --program sort",
        "size_programs --program zstd",
    ]


def test_programs_are_of_one_experiment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.worth", "mixes", "--program", "gzip"])
    with pytest.raises(SystemExit):
        main()
    assert "--program is of size_programs alone" in capsys.readouterr().err


def test_without_anything_that_was_counted_in_a_guest_nothing_is_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "RECORDED", tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["tests.worth", "--again"])
    before = RESULTS.read_bytes()
    assert main() == 125
    assert "nothing is kept that was counted of these mixes" in capsys.readouterr().err
    assert RESULTS.read_bytes() == before


def test_to_judge_again_stands_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.worth", "guest_mixes", "--again"])
    with pytest.raises(SystemExit):
        main()
    assert "--again stands alone" in capsys.readouterr().err


def test_what_was_found_before_a_guest_died_is_kept(tmp_path: Path) -> None:
    assert found_in(tmp_path) == {}
    (tmp_path / "stdout").write_text('a: starting\n{"a": [1]}\nb: starting\n{"b": {"x": 2}}\nc: starting\n{"c": [')
    assert found_in(tmp_path) == {"a": [1], "b": {"x": 2}}


def test_a_line_that_the_guest_did_not_end_is_told_and_costs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stdout").write_text('{"a": [1]}\n{"b": [2, \n{"c": 3}\n')
    assert found_in(tmp_path) == {"a": [1], "c": 3}
    assert "a line of 10 characters that is no JSON" in capsys.readouterr().err


def test_what_is_made_some_times_over_is_the_mean_of_all_that_was_found() -> None:
    rounds = iter({"one": {"misses": number, "slower": [0.0, number]}} for number in (1.0, 2.0, 6.0))
    assert mean_of(lambda: next(rounds)) == {"one": {"misses": 3.0, "slower": [0.0, 3.0]}}
    assert next(rounds, None) is None


def test_the_mixes_are_of_4_to_12_vms_and_fit_the_ways() -> None:
    for mix in mixes.MIXES:
        assert 4 <= sum(mix.values()) <= 12
        for policy in mixes_section.POLICIES:
            wanted = mixes.promises(policy, mix)
            given = sum(
                mix[kind] * int(wanted[kind].get("hw:cache_ways", 0))
                for kind in mix
                if "hw:cache_policy" not in wanted[kind]
            )
            assert given <= mixes.SHAREABLE, (mix, policy)


def mixes_with(sensitive: dict[str, float]) -> list[dict[str, Any]]:
    """Results of one mix in which sensitive VMs are so much slower than alone, by policy, and nobody else is."""
    return [
        {
            "mix": {"sensitive": 1, "streaming": 1, "light": 0},
            "policies": {
                policy: {
                    "sensitive": {"misses": 1, "miss_ratio": slower, "slower": [slower]},
                    "streaming": {"misses": 3, "miss_ratio": 1.0, "slower": [0.0]},
                }
                for policy, slower in sensitive.items()
            },
        }
    ]


def test_a_mix_is_hurt_where_its_throughput_is_more_than_five_per_cent_less() -> None:
    found = mixes_with({SHARED: 0.5, CAPPED: 0.1, BY_NEED: 0.6, EVENLY: 2.0})
    held = {claim.text.partition("(")[0]: claim.holds for claim in mixes_section.section(found).claims}
    assert list(held.values()) == [True, False, True, True, True], held
    assert "1 of 1" in mixes_section.section(found).claims[0].text
    assert "0 of 1" in mixes_section.section(found).claims[1].text


def guest_mix(slower: float, natively: float, cause: str | None) -> dict[str, Any]:
    """A mix whose VM 0 slows VM 1, and which is accused of that, at once, with a cause or not at all."""
    accused = {"culprit": 0, "victim": 1, "cause": cause, "verdict": "right" if cause == "cache" else "false"}
    named = 1 if cause == "cache" else None
    said = {"named": named, "accusations": [accused] if cause else []}
    one = {"said": dict.fromkeys((NO_PMU, PMU_OF_THE_L3), said), "lost": [[0, 0, 0], [16384, 0, 0]], "host": 0.5}
    return {
        "guest": {**one, "done": {"1": [slower, ["cache"]]}},
        "native": {**one, "done": {"1": [natively, ["cache"]]}, "culprit": 0, "vms": 2},
    }


@pytest.mark.parametrize(
    ("cause", "named", "true", "row"),
    [
        ("cache", True, True, "named after 1 s"),
        ("bandwidth", False, False, "false: 0 slows 1 by bandwidth"),
        (None, False, True, "nothing"),
    ],
)
def test_of_a_guests_mix_it_is_told_who_was_named_and_what_was_false(
    cause: str | None, named: bool, true: bool, row: str
) -> None:
    made = guest_mixes_section.section({"planted 100004": guest_mix(1.5, 1.4, cause)})
    assert [claim.holds for claim in made.claims] == [named] * 2 + [true] * 2 + [True]
    (of_it,) = made.tables[1].rows
    assert of_it[2:6] == ("1.50", "1.40", "cache", "1.0 MiB") and of_it[6] == row


def test_a_culprit_that_harms_nobody_in_the_guest_need_not_be_named() -> None:
    found = {"planted 1": guest_mix(1.05, 1.5, None)}
    made = guest_mixes_section.section(found)
    assert made.claims[0].holds and "0 of 0" in made.claims[0].text
    assert not made.claims[-1].holds and "30%" in made.claims[-1].text


def four_cases(protected: float) -> dict[str, Any]:
    """Results of the core with this miss ratio of the protected VM."""
    misses = {"alone": 0.0, "noisy": 0.9, "protected": protected, "capped": 0.01}
    misses |= {"protected, agent stopped": 0.01, "ways taken back": 0.9}
    return {
        "working_set": 4096,
        "noise": 1 << 24,
        "cases": {
            case: {"miss_ratio": ratio, "occupancy": 2048, "ns_per_access": 20.0} for case, ratio in misses.items()
        },
    }


def test_what_holds_is_said_so_and_what_does_not() -> None:
    held, spoilt = (sections.ALL["four_cases"](four_cases(ratio)) for ratio in (0.01, 0.5))
    assert all(claim.holds for claim in held.claims)
    assert [claim.text for claim in spoilt.claims if not claim.holds] == [held.claims[1].text]
    assert re.search(r"more\s+seldom\.\s+\*\*Does\s+not\s+hold\s+here\.\*\*", page.rst(spoilt))
    assert "Does not hold" not in page.rst(held)


def test_of_memorys_channel_the_tree_has_what_a_run_finds(results: dict[str, Any]) -> None:
    found = results["memory_limit"]
    for vcpus in (10, 20):
        again = memory_limit.beside("follows pointers", vcpus, found["draw"])
        then = found["victims"]["follows pointers"]["beside"][str(vcpus)]
        assert list(again) == list(then)
        for limit, one in again.items():
            assert one == pytest.approx(then[limit], rel=0.02, abs=0.1), (vcpus, limit)
    once = batch_channel.cases("does not fit", 1, "8 GB/s", batch_channel.draw())
    before = results["batch_channel"]["does not fit"]["1"]["8 GB/s"]
    assert list(once) == list(before)
    for case, one in once.items():
        assert one == pytest.approx(before[case], rel=0.02, abs=0.01), case


def test_a_limited_vm_moves_what_its_limit_allows_and_all_vms_together_what_memory_does(
    results: dict[str, Any],
) -> None:
    found = results["memory_limit"]
    draw, channel = found["draw"], found["channel"]
    for victim, of in found["victims"].items():
        for vcpus, by in of["beside"].items():
            most = {
                "none": draw,
                "50 %": 0.5 * draw,
                "30 %": 0.3 * draw,
                "10 %": 0.1 * draw,
                "MB/s": 0.5 * channel / int(vcpus),
            }
            for limit, one in by.items():
                allowed = int(vcpus) * most[limit]
                own = batch_channel.LINE / one["cycles"]
                assert one["moved"] <= 1.01 * allowed and one["moved"] + own <= 1.001 * channel
                # It gets less than it is allowed to only if memory moves no more.
                assert one["moved"] > 0.99 * allowed or one["moved"] + own > 0.99 * channel, (victim, vcpus, limit)
                # The victim takes so long because its lines wait, and for no other reason.
                alone = of["alone"]["cycles"]
                waits = one["waited"] / memory_limit.VICTIMS[victim].overlap
                assert one["cycles"] == pytest.approx(alone + waits, rel=0.02), (victim, vcpus, limit)
                assert one["miss_ratio"] == 1.0


def limits(cycles: dict[tuple[str, str], float], moved: float) -> dict[str, Any]:
    """Results of one victim that takes 100 cycles alone, with so many by vCPUs and limit, or else 100.

    :param moved: by a neighbour with 50 %, of what it moves without a limit.
    """
    return {
        "channel": 16.0,
        "draw": 1.7,
        "victims": {
            "streams": {
                "alone": {"cycles": 100.0},
                "beside": {
                    vcpus: {
                        limit: {
                            "cycles": cycles.get((vcpus, limit), 200.0 if limit == "none" else 100.0),
                            "moved": 16.0 * moved if limit == "50 %" else 16.0,
                        }
                        for limit in ("none", "50 %", "30 %", "10 %", "MB/s")
                    }
                    for vcpus in ("10", "20", "40")
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("cycles", "moved", "held"),
    [
        ({("40", "30 %"): 200.0}, 1.0, [True, True, True, True, True, True]),
        ({("20", "none"): 105.0}, 1.0, [False, True, True, False, True, True]),
        ({}, 0.8, [True, False, True, False, True, True]),
        ({("20", "30 %"): 160.0}, 1.0, [True, True, False, False, True, True]),
        ({("40", "10 %"): 160.0}, 1.0, [True, True, True, False, False, True]),
        ({("10", "MB/s"): 160.0}, 1.0, [True, True, True, False, True, False]),
    ],
)
def test_of_a_limit_of_bandwidth_it_is_told_what_it_undoes(
    cycles: dict[tuple[str, str], float], moved: float, held: list[bool]
) -> None:
    made = memory_limit_section.section(limits(cycles, moved))
    assert [claim.holds for claim in made.claims] == held


def batches(capped: float, limited: float, moved: float) -> dict[str, Any]:
    """Results of a benchmark with 100 MB/s beside a batch VM that is free, and with these beside one that is not."""
    speeds = {"free": 100.0, "one way": capped, "one way, limited": limited}
    one = {
        case: {
            "mb_per_second": speed,
            "miss_ratio": 1.0,
            "batch_miss_ratio": 1.0,
            "batch_moved": 5.0 if case == "free" else 5.0 * moved,
        }
        for case, speed in speeds.items()
    }
    return {
        size: {vcpus: {"any number": one, "8 GB/s": one} for vcpus in ("1", "4")} for size in ("fits", "does not fit")
    }


@pytest.mark.parametrize(
    ("capped", "limited", "moved", "held"),
    [
        (141.0, 150.0, 1.0, [True, True, True, True, True]),
        (105.0, 150.0, 1.0, [False, False, False, True, True]),
        (141.0, 105.0, 0.8, [True, True, True, False, False]),
    ],
)
def test_of_the_batch_vm_beside_the_channel_it_is_told_what_gains(
    capped: float, limited: float, moved: float, held: list[bool]
) -> None:
    made = batch_channel_section.section(batches(capped, limited, moved))
    assert [claim.holds for claim in made.claims] == held


def test_weighed_time_counts_instructions_and_lines() -> None:
    counts = Counts(Served(9, 2, 1), Served(0, 0, 0), Served(0, 1, 0), 40, 7, 0, 0)
    assert cost.nanoseconds(counts) == 40 * 0.25 + 3 * 20 + 90
    assert cost.per_access(counts, 4) == 40
    with pytest.raises(ValueError, match="no access"):
        cost.per_access(counts, 0)


def test_events_are_told_from_the_least_to_the_greatest() -> None:
    assert latencies.spread([float(number) for number in range(101)]) == (50.0, 0.0, 50.0, 75.0, 99.0, 100.0)


def test_it_is_told_how_many_are_named_within_the_samples_that_the_usual_interval_has_in_the_time() -> None:
    (interval,) = (option.default for option in telemetry.OPTIONS if option.name == "interval")
    assert interval == neighbours_section.INTERVAL
    assert neighbours_section._within({"planted": 4, "seconds": [5, 15, 16, 40]}) == "2 of 4 (50 %)"
