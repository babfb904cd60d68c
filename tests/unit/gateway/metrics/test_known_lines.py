# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from vmqos.gateway.metrics.known_lines import Encode, KnownLines
from vmqos.gateway.metrics.rows import Counter, Gauge

FORMATS = {
    "openmetrics": "application/openmetrics-text;version=1.0.0",
    "plain": "text/plain;version=1.0.0;escaping=allow-utf-8",
}


@pytest.fixture(params=FORMATS)
def encode(request: pytest.FixtureRequest) -> Encode:
    found: Encode = choose_encoder(FORMATS[request.param])[0]
    return found


class Host(Collector):
    """What a test says of VMs, and of what has no labels."""

    def __init__(self, held: Mapping[str, float], seconds: float = 0.25, has_rows: bool = False) -> None:
        self._held = held
        self._seconds = seconds
        self._gauge, self._counter = (Gauge, Counter) if has_rows else (GaugeMetricFamily, CounterMetricFamily)

    def collect(self) -> Iterable[Metric]:
        held = self._gauge("held_bytes", "Bytes.", labels=("name", "cache"))
        moved = self._counter("moved_bytes", "Bytes.", labels=("name",))
        for name, value in self._held.items():
            held.add_metric([name, "0"], value)
            moved.add_metric([name], 2 * value)
        passes = HistogramMetricFamily("pass_seconds", "Seconds.")
        passes.add_metric([], [("0.1", 3), ("+Inf", 4)], self._seconds)
        yield from (held, moved, passes, GaugeMetricFamily("up", "Whether it is up.", True))
        yield InfoMetricFamily("it", "What it is.", {"version": "1.0"})


class Counted:
    """The library's function, with a count of its calls."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.calls = 0

    def __call__(self, collector: Collector) -> bytes:
        self.calls += 1
        return self._encode(collector)


SCRAPES: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    "other values": ({"a": 1, "b": 2.5}, {"a": 12345678901, "b": 0.0}),
    "values that are no usual numbers": ({"a": 1, "b": 1}, {"a": math.inf, "b": math.nan}),
    "another VM": ({"a": 1}, {"a": 2, "b": 3}),
    "another VM in the place of one": ({"a": 1, "b": 2}, {"c": 3, "b": 4}),
    "a VM less": ({"a": 1, "b": 2}, {"b": 3}),
    "no VM": ({"a": 1}, {}),
    "a first VM": ({}, {"a": 1}),
    "names with all that ends a line or a label": (
        {'a "b" 1': 1, "c\nd 2": 2, "e\u2028f\x0b\r 3": 3, "g\\": 4, "": 5},
        {'a "b" 1': 6, "c\nd 2": 7, "e\u2028f\x0b\r 3": 8, "g\\": 9, "": 10},
    ),
}


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize("scrapes", SCRAPES.values(), ids=SCRAPES)
def test_each_scrape_is_what_the_library_writes(
    encode: Encode, scrapes: tuple[Mapping[str, float], Mapping[str, float]], has_rows: bool
) -> None:
    known = KnownLines(encode)
    before, after = scrapes
    for held, seconds in ((before, 0.25), (after, 2.0), (before, 0.25)):
        assert known.text(Host(held, seconds, has_rows)) == encode(Host(held, seconds))


def test_rows_are_the_librarys_metrics_to_the_library(encode: Encode) -> None:
    held = {"a": 1, "b": 2.5}
    assert encode(Host(held, has_rows=True)) == encode(Host(held))


def test_of_rows_the_library_writes_one_line_once_and_no_other(encode: Encode) -> None:
    counted = Counted(encode)
    known = KnownLines(counted)
    known.text(Host({}, has_rows=True))
    calls = counted.calls
    for held in ({"a": 1, "b": 2}, {"a": 1, "c": 4}, {"c": 4}, {}, {"a": 7}):
        assert known.text(Host(held, has_rows=True)) == encode(Host(held))
    assert counted.calls == calls


def test_of_the_very_metric_that_was_written_last_nothing_is_looked_at(encode: Encode) -> None:
    known, host = KnownLines(encode), Host({"a": 1, "b": 2}, has_rows=True)
    metrics = list(host.collect())
    same = SimpleNamespace(collect=lambda: metrics)
    assert known.text(same) == encode(host)  # type: ignore[arg-type]
    metrics[0].rows.clear()  # type: ignore[attr-defined]
    assert known.text(same) == encode(host)  # type: ignore[arg-type]


def test_lines_of_rows_that_are_gone_are_forgotten(encode: Encode) -> None:
    known = KnownLines(encode)
    for number in range(5):
        known.text(Host({f"a{number}": 1, "b": 2}, has_rows=True))
    kept = known._families["held_bytes"]._known
    assert list(kept) == [("a4", "0"), ("b", "0")]


@pytest.mark.parametrize("before", [{}, {"a": 1}])
def test_a_value_in_rows_that_is_none_is_refused_as_the_library_does(encode: Encode, before: Any) -> None:
    known, broken = KnownLines(encode), Host({"a": "no number"}, has_rows=True)  # type: ignore[dict-item]
    known.text(Host(before, has_rows=True))
    with pytest.raises(ValueError, match="no number"):
        known.text(broken)
    assert known.text(Host({"a": 2}, has_rows=True)) == encode(Host({"a": 2}))


def test_what_has_the_same_labels_is_not_written_by_the_library_again(encode: Encode) -> None:
    counted = Counted(encode)
    known = KnownLines(counted)
    known.text(Host({"a": 1, "b": 2}))
    calls = counted.calls
    known.text(Host({"a": 3, "b": 4}))
    assert counted.calls == calls
    known.text(Host({"a": 3, "c": 4}))
    assert counted.calls == calls + 2, "the two metrics of VMs"


def test_a_value_that_is_none_is_refused_as_the_library_does(encode: Encode) -> None:
    known, broken = KnownLines(encode), Host({"a": "no number"})  # type: ignore[dict-item]
    known.text(Host({"a": 1}))
    with pytest.raises(ValueError, match="no number") as found:
        known.text(broken)
    with pytest.raises(ValueError, match="no number") as expected:
        encode(broken)
    assert str(found.value) == str(expected.value)
    assert known.text(Host({"a": 2})) == encode(Host({"a": 2}))
