# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import tempfile
from array import array
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agent.sample.test_history import sample
from vmqos.agent.sample import minutes, minutes_file
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES, STATISTICS
from vmqos.agent.sample.minutes import DAY, MOST_GONE, MinuteHistory, Minutes, PackedMinutes, PackedTrack
from vmqos.agent.sample.piece import HOUR, Piece, pack, width

WIDTH = len(SERIES) * len(STATISTICS)


def value(past: Minutes, uuid: str, series: str, statistic: str) -> list[float | None]:
    """One number, or none, for each minute."""
    at = STATISTICS.index(statistic) * len(past.series) + past.series.index(series)
    width = len(past.series) * len(STATISTICS)
    return [None if math.isnan(number) else number for number in past.vms[uuid].rows[at::width]]


def remembered(*numbers: Mapping[str, float], capacity: int = 5) -> MinuteHistory:
    """A history of one sample a minute from minute 0 on, all of which have ended."""
    made = MinuteHistory(capacity)
    for minute, by_vm in enumerate((*numbers, {})):
        made.add(60.0 * minute, {uuid: sample(number) for uuid, number in by_vm.items()})
    return made


def test_a_minute_is_told_when_it_has_ended_with_the_least_the_mean_and_the_greatest_value() -> None:
    made = MinuteHistory(5)
    for second, number in ((60.0, 4), (62.0, 1), (119.9, 7)):
        made.add(second, {"a": sample(number)})
    assert list(made.copy().times) == []
    made.add(120.0, {"a": sample(100)})
    past = made.copy()
    assert list(past.times) == [60]
    assert [value(past, "a", "llc_occupancy", statistic) for statistic in STATISTICS] == [[1], [4], [7]]
    assert [value(past, "a", "total", statistic) for statistic in STATISTICS] == [[10], [40], [70]]
    assert [value(past, "a", "local", statistic) for statistic in STATISTICS] == [[None], [None], [None]]


def test_a_value_that_is_missing_for_a_while_counts_for_nothing() -> None:
    made = MinuteHistory(5)
    made.add(0.0, {"a": (10.0, None, None, None)})
    made.add(2.0, {"a": (None, 5.0, None, None)})
    made.add(4.0, {})
    made.add(60.0, {})
    past = made.copy()
    assert [value(past, "a", "llc_occupancy", statistic) for statistic in STATISTICS] == [[10], [10], [10]]
    assert [value(past, "a", "total", statistic) for statistic in STATISTICS] == [[5], [5], [5]]


def test_the_oldest_minutes_are_overwritten() -> None:
    past = remembered(*({"a": number} for number in range(8))).copy()
    assert list(past.times) == [180, 240, 300, 360, 420]
    assert value(past, "a", "llc_occupancy", "mean") == [3, 4, 5, 6, 7]


def test_minutes_without_samples_are_gaps() -> None:
    made = MinuteHistory(5)
    for second in (0.0, 600.0, 660.0):
        made.add(second, {"a": sample(1)})
    assert list(made.copy().times) == [0, 600]


def test_a_question_may_be_for_less() -> None:
    made = remembered({"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3})
    past = made.copy(60.0, {"a"})
    assert list(past.times) == [60, 120]
    assert list(past.vms) == ["a"]
    assert value(past, "a", "llc_occupancy", "least") == [2, 3]
    assert list(made.copy(120.0).vms) == ["a"]
    assert list(made.copy(1e9).times) == []


def test_a_vm_that_is_gone_is_remembered_until_its_last_minute_is_overwritten() -> None:
    for further in range(5):
        past = remembered({"a": 1}, {"a": 2}, *[{"b": 5}] * further).copy()
        assert ("a" in past.vms) == (further < 5)
        if "a" in past.vms:
            assert value(past, "a", "llc_occupancy", "mean") == [1, 2, *[None] * further][-5:]
            assert past.vms["a"].missed == further
    assert "a" not in remembered({"a": 1}, {"a": 2}, *[{"b": 5}] * 5).copy().vms


def test_a_vm_that_came_again_has_both_of_its_times_and_nothing_between() -> None:
    past = remembered({"a": 1}, {}, {"a": 3}).copy()
    assert value(past, "a", "llc_occupancy", "mean") == [1, None, 3]
    past = remembered({"a": 1}, *[{}] * 6, {"a": 3}).copy()
    assert value(past, "a", "llc_occupancy", "mean") == [None, None, None, None, 3]


def test_of_too_many_vms_that_are_gone_those_that_went_first_are_forgotten() -> None:
    first = {f"first{number}": 1 for number in range(60)}
    second = {f"second{number}": 1 for number in range(MOST_GONE - 10)}
    past = remembered(first | second | {"stays": 1}, second | {"stays": 1}, {"stays": 1}).copy()
    assert len([uuid for uuid in past.vms if uuid.startswith("first")]) == 10
    assert len(past.vms) == MOST_GONE + 1


def test_no_more_vms_are_remembered_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "MOST_VMS", 2)
    past = remembered({"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}).copy()
    assert set(past.vms) == {"a", "b"}


def test_a_clock_that_is_set_back_overwrites_nothing() -> None:
    made = MinuteHistory(10)
    for second in (600.0, 660.0, 720.0, 120.0, 180.0, 240.0):
        made.add(second, {"a": sample(second)})
    past = made.copy()
    assert list(past.times) == [600, 660, 720, 120, 180]
    assert value(past, "a", "llc_occupancy", "mean") == [600, 660, 720, 120, 180]
    # All that came after the first minute that is recent enough is recent, too.
    assert list(made.copy(700.0).times) == [720, 120, 180]


def test_no_capacity_remembers_nothing() -> None:
    past = remembered({"a": 1}, {"a": 2}, capacity=0).copy()
    assert (list(past.times), past.vms) == ([], {})


def test_what_was_remembered_before_a_restart_lies_before_what_came_since() -> None:
    earlier = remembered({"a": 1, "gone": 9}, {"a": 2}).packed()
    made = MinuteHistory(5)
    for second in (600.0, 660.0):
        made.add(second, {"a": sample(3), "new": sample(4)})
    made.restore(earlier)
    past = made.copy()
    assert list(past.times) == [0, 60, 600]
    assert value(past, "a", "llc_occupancy", "mean") == [1, 2, 3]
    assert value(past, "new", "llc_occupancy", "mean") == [None, None, 4]
    assert value(past, "gone", "llc_occupancy", "mean") == [9, None, None]
    assert past.vms["gone"].missed == 2
    made.add(720.0, {})
    assert value(made.copy(), "a", "llc_occupancy", "mean") == [1, 2, 3, 3]


@pytest.mark.parametrize("since", [0, 1, 3])
def test_more_is_restored_than_there_is_room_for(since: int) -> None:
    earlier = remembered(*({"a": number} for number in range(5))).packed()
    made = MinuteHistory(3)
    for minute in range(100, 101 + since):
        made.add(60.0 * minute, {"a": sample(minute)})
    made.restore(earlier)
    past = made.copy()
    assert value(past, "a", "llc_occupancy", "least") == [2, 3, 4, 100, 101, 102][since : since + 3]
    for minute in range(200, 204):
        made.add(60.0 * minute, {"a": sample(minute)})
    assert value(made.copy(), "a", "llc_occupancy", "least") == [200, 201, 202]


def test_an_agent_with_other_series_leaves_those_that_are_known() -> None:
    rows = array("f", [1, 2, 10, 20, 100, 200])
    made = MinuteHistory(5)
    made.restore(PackedMinutes(("unknown", "total"), array("q", [60]), {"a": PackedTrack((), rows)}))
    past = made.copy()
    assert [value(past, "a", "total", statistic) for statistic in STATISTICS] == [[2], [20], [200]]
    assert value(past, "a", "llc_occupancy", "mean") == [None]


STEPS = st.lists(
    st.tuples(
        st.sampled_from([1, 20, 59, 60, 61, 600, -1, -61, -600, "write", "restart"]),
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(capacity=st.integers(1, 8), hour=st.integers(1, 4), steps=STEPS)
def test_whatever_the_clock_does_the_last_minutes_are_what_was_read_in_them(
    capacity: int, hour: int, steps: list[tuple[int | str, dict[str, int]]]
) -> None:
    # An hour of few minutes has pieces packed.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(minutes, "HOUR", hour)
        go_through(capacity, steps, f"{directory}/minutes")


def go_through(capacity: int, steps: list[tuple[int | str, dict[str, int]]], path: str) -> None:
    made, now = MinuteHistory(capacity), 6000.0
    # The minutes that have ended, and the one that runs: when it began, and the numbers of each VM.
    ended: list[tuple[int, dict[str, list[int]]]] = []
    runs: tuple[int, dict[str, list[int]]] | None = None
    for step, numbers in steps:
        if isinstance(step, str):
            minutes_file.write(path, made.packed())
            if step == "restart":
                made, runs = MinuteHistory(capacity), None
                made.restore(minutes_file.read(path))
            continue
        now += step
        minute = int(now // 60) * 60
        if runs is not None and runs[0] != minute:
            ended.append(runs)
            runs = None
        runs = runs or (minute, {})
        for uuid, number in numbers.items():
            runs[1].setdefault(uuid, []).append(number)
        made.add(now, {uuid: sample(number) for uuid, number in numbers.items()})
    past, last = made.copy(), ended[-capacity:]
    assert list(past.times) == [minute for minute, _ in last]
    assert set(past.vms) == {uuid for _, by_vm in last for uuid in by_vm}
    for uuid, track in past.vms.items():
        found = [by_vm.get(uuid) for _, by_vm in last]
        assert value(past, uuid, "llc_occupancy", "least") == [min(one) if one else None for one in found]
        assert value(past, uuid, "llc_occupancy", "greatest") == [max(one) if one else None for one in found]
        means = [sum(one) / len(one) if one else None for one in found]
        # Packed means are thousandths.
        assert value(past, uuid, "llc_occupancy", "mean") == [one and pytest.approx(one, abs=0.0005) for one in means]
        assert track.missed == next(at for at, one in enumerate(reversed(found)) if one)


def executed(number: float) -> tuple[float | None, ...]:
    return (*sample(number), number / 4, number * 100, None, number / 8)


def test_further_series_have_a_least_a_mean_and_a_greatest_value_too() -> None:
    made = MinuteHistory(5, SERIES + EXECUTED)
    for second, number in ((0.0, 2), (2.0, 4), (60.0, 9)):
        made.add(second, {"a": executed(number)})
    past = made.copy()
    found = [value(past, "a", "instructions_per_cycle", statistic) for statistic in STATISTICS]
    assert found == [[0.5], [0.75], [1.0]]
    assert [value(past, "a", "total", statistic) for statistic in STATISTICS] == [[20], [30], [40]]
    assert value(past, "a", "cache_misses", "mean") == [None]
    found = [value(past, "a", "counters_share", statistic) for statistic in STATISTICS]
    assert found == [[0.25], [0.375], [0.5]], "a minute tells that its figures are estimates"


@pytest.mark.parametrize(("before", "now"), [(SERIES, SERIES + EXECUTED), (SERIES + EXECUTED, SERIES)])
def test_an_agent_that_begins_or_ends_to_count_more_keeps_what_was_remembered(
    before: tuple[str, ...], now: tuple[str, ...]
) -> None:
    earlier, made = MinuteHistory(5, before), MinuteHistory(5, now)
    for second in (0.0, 60.0, 120.0):
        earlier.add(second, {"a": executed(second)[: len(before)]})
    for second in (600.0, 660.0):
        made.add(second, {"a": executed(second)[: len(now)]})
    made.restore(earlier.packed())
    past = made.copy()
    assert (past.series, list(past.times)) == (now, [0, 60, 600])
    assert value(past, "a", "total", "greatest") == [0, 600, 6000]
    if now != SERIES:
        assert value(past, "a", "instructions", "mean") == [None, None, 60_000]


def counted(number: float) -> tuple[float | None, ...]:
    return (*sample(number), number / 8, None, None, 0.5)


def test_series_that_come_later_are_gaps_before_and_the_minute_that_runs_has_them() -> None:
    made = MinuteHistory(5)
    for second in (0.0, 60.0, 61.0):
        made.add(second, {"a": sample(second), "b": sample(second)})
    made.widen(PACKAGES)
    for second in (62.0, 120.0):
        made.add(second, {"a": counted(second), "b": sample(second)})
    past = made.copy()
    assert past.series == SERIES + PACKAGES
    assert value(past, "a", "core_watts", "greatest") == [None, 7.75]
    assert value(past, "a", "total", "greatest") == [0, 620]
    assert value(past, "b", "total", "least") == [0, 600]
    assert value(past, "b", "llc_miss_stalls", "mean") == [None, None]


def test_what_packages_counted_before_a_restart_is_kept_though_nothing_has_been_read_since() -> None:
    earlier, made = MinuteHistory(5, SERIES + PACKAGES), MinuteHistory(5, SERIES + EXECUTED)
    for second in (0.0, 60.0, 120.0):
        earlier.add(second, {"a": counted(second)})
    made.restore(earlier.packed())
    made.widen(PACKAGES)
    for second in (180.0, 240.0):
        made.add(second, {"a": (*executed(second), 30.0, None, None, None)})
    past = made.copy()
    assert past.series == SERIES + EXECUTED + PACKAGES
    assert value(past, "a", "core_watts", "mean") == [0, 7.5, 30]
    assert value(past, "a", "instructions", "mean") == [None, None, 18_000]


def test_what_is_older_than_an_hour_is_packed_and_told_as_before() -> None:
    made = MinuteHistory(DAY, SERIES + EXECUTED)
    for minute in range(301):
        made.add(60.0 * minute, {"a": executed(minute), "b": executed(1000 * minute)})
    for track in made.packed().vms.values():
        assert sum(piece.minutes for piece in track.pieces) >= 300 - 2 * HOUR
        assert HOUR <= len(track.rows) / width(SERIES + EXECUTED) < 2 * HOUR
    past = made.copy()
    assert value(past, "a", "total", "mean") == [10 * minute for minute in range(300)]
    assert value(past, "b", "instructions_per_cycle", "greatest") == pytest.approx(
        [250 * minute for minute in range(300)], rel=1 / 8192
    )
    assert value(made.copy(60.0 * 77), "a", "total", "least") == [10 * minute for minute in range(77, 300)]
    assert value(made.copy(60.0 * 299), "a", "total", "least") == [2990]


@pytest.mark.parametrize("before", [0, 40, 300, 310])
def test_not_all_vms_are_packed_in_the_same_minute(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    packed: list[int] = []
    made = MinuteHistory(DAY)
    # As the first format of the file has them.
    tracks = {str(vm): PackedTrack((), array("f", [1.0]) * (before * width(SERIES))) for vm in range(20) if before}
    made.restore(PackedMinutes(SERIES, array("q", range(0, 60 * before, 60)), tracks))

    def counting(series: tuple[str, ...], rows: array[float]) -> Piece:
        packed.append(minute)
        return pack(series, rows)

    monkeypatch.setattr(minutes, "pack", counting)
    for minute in range(before, before + 1000):
        made.add(60.0 * minute, {str(vm): sample(minute) for vm in range(20)})
    assert max(map(packed.count, packed)) == 1


def test_an_hour_is_told_without_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MinuteHistory(DAY)
    for minute in range(500):
        made.add(60.0 * minute, {str(vm): sample(minute) for vm in range(10)})

    def refuse(piece: Piece) -> array[float]:
        raise AssertionError

    monkeypatch.setattr(minutes, "unpack", refuse)
    assert len(made.copy(60.0 * (499 - HOUR)).times) == HOUR
    with pytest.raises(AssertionError):
        made.copy(0.0)


def test_pieces_that_are_too_old_are_forgotten() -> None:
    made = MinuteHistory(100)
    for minute in range(500):
        made.add(60.0 * minute, {"a": sample(minute)} | ({"b": sample(minute)} if minute < 450 else {}))
    past = made.packed()
    assert all(sum(piece.minutes for piece in track.pieces) < 100 + HOUR for track in past.vms.values())
    assert value(made.copy(), "a", "llc_occupancy", "mean") == list(range(399, 499))
    assert value(made.copy(), "b", "llc_occupancy", "mean") == [*range(399, 450), *[None] * 49]


def test_pieces_keep_the_series_that_they_were_packed_with() -> None:
    made = MinuteHistory(DAY)
    for minute in range(301):
        if minute == 200:
            made.widen(PACKAGES)
        made.add(60.0 * minute, {"a": counted(minute) if minute >= 200 else sample(minute)})
    second = MinuteHistory(DAY, SERIES + EXECUTED)
    second.restore(made.packed())
    for past in (made.copy(), second.copy()):
        assert value(past, "a", "total", "greatest") == [10 * minute for minute in range(300)]
        assert value(past, "a", "core_watts", "least") == [*[None] * 200, *(minute / 8 for minute in range(200, 300))]


def test_what_comes_late_from_before_a_restart_lies_before_pieces() -> None:
    earlier = remembered(*({"a": minute} for minute in range(100)), capacity=DAY).packed()
    made = MinuteHistory(DAY)
    for minute in range(1000, 1301):
        made.add(60.0 * minute, {"a": sample(minute), "b": sample(minute)})
    made.restore(earlier)
    past = made.copy()
    assert value(past, "a", "llc_occupancy", "mean") == [*range(100), *range(1000, 1300)]
    assert value(past, "b", "llc_occupancy", "mean") == [*[None] * 100, *range(1000, 1300)]
