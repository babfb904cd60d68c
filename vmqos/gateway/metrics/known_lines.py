# SPDX-License-Identifier: Apache-2.0
"""The text of a scrape as the library writes it, which has it write each line once and not at every scrape.

From one scrape to the next samples have the same labels, and many the same value, and to write the labels of thousands
of samples takes much longer than to write their values. So the line that the library wrote of a sample is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from vmqos.gateway.metrics.rows import Rows

Encode = Callable[[Collector], bytes]
"""Writes all metrics of a collector, as the library's ``generate_latest`` does."""

_written: Callable[[float], str] = floatToGoString
"""A value as the library writes it."""


class KnownLines:
    """Writes scrapes in one format; for one thread at a time.

    :param encode: the library's function for the format.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._end = encode(_Metrics([])).decode()
        self._families: Mapping[str, _Family] = {}

    def text(self, collector: Collector) -> bytes:
        """What the library would write. No sample has a timestamp or an exemplar.

        :raises Exception: what the library raises where something can't be written.
        """
        families: dict[str, _Family] = {}
        written: list[str] = []
        for metric in collector.collect():
            family = self._families.get(metric.name)
            text = family.text(metric) if family is not None else None
            if family is None or text is None:
                text = self._encode(_Metrics([metric])).decode().removesuffix(self._end)
                family = _Family(metric, text)
            families[metric.name] = family
            written.append(text)
        self._families = families
        return "".join((*written, self._end)).encode()


class _Family:
    """What was written of one metric.

    :param metric: the metric, as it was then.
    :param text: what the library wrote of it: the lines that say what it is, and a line for each sample.
    """

    __slots__ = ("_head", "_known")

    def __init__(self, metric: Metric, text: str) -> None:
        # Not splitlines(): a label may have other characters that end lines.
        lines = text.split("\n")[:-1]
        rows = _rows(metric)
        about = len(lines) - len(rows)
        self._head = "".join(f"{line}\n" for line in lines[:about])
        self._known = {
            key: _Line(f"{line}\n", line.rindex(" ") + 1, value)
            for (key, value), line in zip(rows, lines[about:], strict=True)
        }

    def text(self, metric: Metric) -> str | None:
        """What is to be written of the metric now; ``None`` where the library has to say that."""
        known, lines = self._known, [self._head]
        try:
            for key, value in _rows(metric):
                line = known[key]
                if value != line.value:
                    line.text = f"{line.text[: line.begin]}{_written(value)}\n"
                    line.value = value
                lines.append(line.text)
        except (LookupError, TypeError, ValueError, OverflowError):
            return None
        return "".join(lines)


class _Line:
    """What was written of one sample.

    :ivar text: the line.
    :ivar begin: of the value in it.
    :ivar value: the value.
    """

    __slots__ = ("begin", "text", "value")

    def __init__(self, text: str, begin: int, value: float) -> None:
        self.text, self.begin, self.value = text, begin, value


def _rows(metric: Metric) -> Sequence[tuple[Sequence[str], float]]:
    """What tells each sample from the others, and its value."""
    if isinstance(metric, Rows):
        return metric.rows
    return [((sample.name, *sample.labels, *sample.labels.values()), sample.value) for sample in metric.samples]


class _Metrics(Collector):
    """A collector of these metrics."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """See the base class."""
        return self._metrics
