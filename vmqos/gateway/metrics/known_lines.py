# SPDX-License-Identifier: Apache-2.0
"""The text of a scrape as the library writes it, which has it write each line once and not at every scrape.

From one scrape to the next samples have the same labels, and many the same value, and to write the labels of thousands
of samples takes much longer than to write their values. So the line that the library wrote of a sample is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from vmqos.gateway.metrics.rows import Rows

Encode = Callable[[Collector], bytes]
"""Writes all metrics of a collector, as the library's ``generate_latest`` does."""

_written: Callable[[float], str] = floatToGoString
"""A value as the library writes it."""

_NO_NUMBER = TypeError, ValueError, OverflowError
"""What the library raises for a value that is no number."""


class KnownLines:
    """Writes scrapes in one format; for one thread at a time.

    :param encode: the library's function for the format.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._end = encode(_Metrics([])).decode()
        self._families: Mapping[str, _Family | _FamilyOfRows] = {}

    def text(self, collector: Collector) -> bytes:
        """What the library would write. No sample has a timestamp or an exemplar.

        :raises Exception: what the library raises where something can't be written.
        """
        families: dict[str, _Family | _FamilyOfRows] = {}
        written: list[str] = []
        for metric in collector.collect():
            family = self._families.get(metric.name)
            if family is None and isinstance(metric, Rows):
                family = _FamilyOfRows(metric, self._write)
            text = family.text(metric) if family is not None else None
            if family is None or text is None:
                text = self._write(metric)
                family = _Family(metric, text)
            families[metric.name] = family
            written.append(text)
        self._families = families
        return "".join((*written, self._end)).encode()

    def _write(self, metric: Metric) -> str:
        """What the library writes of one metric."""
        return self._encode(_Metrics([metric])).decode().removesuffix(self._end)


class _Family:
    """What was written of one metric of the library's.

    :param metric: the metric, as it was then.
    :param text: what the library wrote of it: the lines that say what it is, and a line for each sample.
    """

    __slots__ = ("_head", "_known")

    def __init__(self, metric: Metric, text: str) -> None:
        # Not splitlines(): a label may have other characters that end lines.
        lines = text.split("\n")[:-1]
        samples = _samples(metric)
        about = len(lines) - len(samples)
        self._head = "".join(f"{line}\n" for line in lines[:about])
        self._known = {
            key: _Line(f"{line}\n", line.rindex(" ") + 1, value)
            for (key, value), line in zip(samples, lines[about:], strict=True)
        }

    def text(self, metric: Metric) -> str | None:
        """What is to be written of the metric now; ``None`` where the library has to say that."""
        known, lines = self._known, [self._head]
        try:
            for key, value in _samples(metric):
                line = known[key]
                lines.append(line.text if value == line.value else line.of(value))
        except (LookupError, *_NO_NUMBER):
            return None
        return "".join(lines)


class _FamilyOfRows:
    """What was written of one metric that is given as rows.

    The library writes one line, and the lines of all samples are made after that one.

    :param metric: the metric.
    :param write: has the library write a metric.
    """

    __slots__ = ("_head", "_known", "_metric", "_order", "_pattern", "_text")

    def __init__(self, metric: Rows, write: Callable[[Metric], str]) -> None:
        example = Rows(metric.type, metric.name, metric.documentation, metric.label_names)
        example.add_metric([f"<{number}>" for number in range(len(metric.label_names))], 0.0)
        *head, line, _ = write(example).split("\n")
        # The library sorts the labels. No name has a bracket.
        parts = re.split(r"<(\d+)>", line[: line.rindex(" ") + 1])
        self._head = "".join(f"{line}\n" for line in head)
        self._pattern = "%s".join(parts[::2])
        self._order = [int(number) for number in parts[1::2]]
        self._known: dict[tuple[str, ...], _Line] = {}
        self._metric: Metric | None = None
        self._text = ""

    def text(self, metric: Metric) -> str | None:
        """What is to be written of the metric now; ``None`` where the library has to say that.

        Of the very metric that was written last, nothing is looked at.
        """
        assert isinstance(metric, Rows)
        if metric is self._metric:
            return self._text
        known, lines = self._known, [self._head]
        try:
            for labels, value in metric.rows:
                line = known.get(labels)
                if line is None:
                    line = known[labels] = self._begun(labels)
                lines.append(line.text if value == line.value else line.of(value))
        except _NO_NUMBER:
            return None
        if len(known) > len(metric.rows):
            self._known = {labels: known[labels] for labels, _ in metric.rows}
        self._metric, self._text = metric, "".join(lines)
        return self._text

    def _begun(self, labels: Sequence[str]) -> _Line:
        """A line without a value."""
        begin = self._pattern % tuple([_escaped(labels[number]) for number in self._order])
        return _Line(begin, len(begin), math.nan)


def _escaped(value: str) -> str:
    """A label's value as both formats have it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Line:
    """What was written of one sample.

    :ivar text: the line.
    :ivar begin: of the value in it.
    :ivar value: the value.
    """

    __slots__ = ("begin", "text", "value")

    def __init__(self, text: str, begin: int, value: float) -> None:
        self.text, self.begin, self.value = text, begin, value

    def of(self, value: float) -> str:
        """The line with this value from now on.

        :raises ValueError: if it is no number; or another error of :data:`_NO_NUMBER`.
        """
        self.text, self.value = f"{self.text[: self.begin]}{_written(value)}\n", value
        return self.text


def _samples(metric: Metric) -> Sequence[tuple[Sequence[str], float]]:
    """What tells each sample from the others, and its value."""
    return [((sample.name, *sample.labels, *sample.labels.values()), sample.value) for sample in metric.samples]


class _Metrics(Collector):
    """A collector of these metrics."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """See the base class."""
        return self._metrics
