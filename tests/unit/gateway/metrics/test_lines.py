# SPDX-License-Identifier: Apache-2.0
"""What is written is what prometheus_client writes, to the byte."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics

from tests.unit.gateway.metrics.test_text import UUID, counting, made_of
from tests.unit.telemetry.values import vm
from vmqos.gateway.metrics import lines

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["\\", '"', "\n", '\\"\n'])
NUMBERS = st.floats() | st.integers(-(10**20), 10**20) | st.booleans() | st.sampled_from([1e6, 999999.0, 1234567.5])


class Collected:
    """A registry with these metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def both(metrics: Iterable[Metric]) -> None:
    found = Collected(metrics)
    assert lines.text(found.collect(), openmetrics=False) == exposition.generate_latest(found)  # type: ignore[arg-type]
    assert lines.text(found.collect(), openmetrics=True) == openmetrics.generate_latest(found)  # type: ignore[no-untyped-call]


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=4))
def test_any_values_are_written_as_the_library_writes_them(
    help_text: str, samples: list[tuple[str, str, float]]
) -> None:
    labels = ("uuid", "cache")
    gauge, counter = GaugeMetricFamily("a_bytes", help_text, labels=labels), CounterMetricFamily("c", "", labels=labels)
    for one, other, value in samples:
        gauge.add_metric([one, other], value)
        counter.add_metric([one, other], value)
    both([gauge, counter])


def test_every_kind_of_metric_is_written_as_the_library_writes_it() -> None:
    histogram = HistogramMetricFamily("seconds", "How long.")
    histogram.add_metric([], [("0.1", 3), ("+Inf", 4)], 12.5)
    empty = GaugeMetricFamily("nothing", "No sample.", labels=("a",))
    both([InfoMetricFamily("it", "Is.", {"version": "1.0"}), GaugeMetricFamily("x", "X.", math.nan), histogram, empty])


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain;version=0.0.4",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3",
        "application/openmetrics-text;version=1.0.0;escaping=underscores",
        "application/openmetrics-text;version=1.0.0;escaping=dots",
    ],
)
def test_a_whole_scrape_is_what_the_library_makes_of_it(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_of(counting(vm((4096, 2**40, 3), uuid=UUID)))
    found = Collected(made._registry.collect())
    monkeypatch.setattr(made, "_registry", found)
    encode, media_type = exposition.choose_encoder(accept)
    assert made.answer(accept) == (media_type, encode(found))  # type: ignore[arg-type]
