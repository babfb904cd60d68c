# SPDX-License-Identifier: Apache-2.0
"""Metrics with labels, which keep what was added as it came.

A scrape of 200 VMs has thousands of samples, and nearly all of them are written without the library's objects
(:mod:`vmqos.gateway.metrics.known_lines`): so these are made only where the library asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

Row = tuple[tuple[str, ...], float]
"""The values of a sample's labels, and its own."""


class Rows(Metric):
    """A metric of which every sample has the same labels, and no two have the same values of them.

    :param kind: ``gauge`` or ``counter``.
    :param labels: the labels' names.
    :ivar label_names: see above.
    :ivar rows: what was added, in that order.
    """

    def __init__(self, kind: str, name: str, text: str, labels: Sequence[str]) -> None:
        self.rows: list[Row] = []
        self.label_names = labels
        super().__init__(name, text, kind)

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        """Add a sample, as to a metric of the library's."""
        self.rows.append((tuple(labels), value))

    @property
    def samples(self) -> list[Sample]:
        """The library's samples."""
        name = f"{self.name}_total" if self.type == "counter" else self.name
        return [Sample(name, dict(zip(self.label_names, labels, strict=True)), value) for labels, value in self.rows]

    @samples.setter
    def samples(self, none: Sequence[Sample]) -> None:
        """Nothing: the library begins with none."""


class Gauge(Rows):
    """A gauge."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__("gauge", name, text, labels)


class Counter(Rows):
    """A counter; each of its samples is called as it is, with ``_total`` behind."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__("counter", name, text, labels)
