# SPDX-License-Identifier: Apache-2.0
"""Metrics as the text of a scrape, in either of Prometheus's formats.

prometheus_client's own writers look at each character of each name for each sample, which is most of the work of a
scrape with thousands of samples. What is written here is the same, byte for byte: for metrics whose names have
letters, digits, colons and underscores alone, and whose samples have a value and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

_OLD_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}
"""What the text format calls types that OpenMetrics alone has."""

_OLD_SUFFIXES = {"counter": "_total", "info": "_info"}
"""What is part of a metric's name in the text format, and of its samples' alone in OpenMetrics."""


def text(metrics: Iterable[Metric], *, openmetrics: bool) -> bytes:
    """All samples of all metrics.

    :param openmetrics: whether it is OpenMetrics, or else the text format of before.
    """
    shown = cache(_escaped)
    lines = []
    for metric in metrics:
        name, kind = metric.name, metric.type
        help_text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        if openmetrics:
            help_text = help_text.replace('"', r"\"")
        else:
            name, kind = name + _OLD_SUFFIXES.get(kind, ""), _OLD_TYPES.get(kind, kind)
        lines.append(f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n")
        for sample in metric.samples:
            labels = sample.labels
            # The labels of a metric are few, and mostly of a handful of values each.
            told = ",".join([f'{label}="{shown(labels[label])}"' for label in sorted(labels)])
            value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
            lines.append(f"{sample.name}{{{told}}} {value}\n" if told else f"{sample.name} {value}\n")
    if openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
