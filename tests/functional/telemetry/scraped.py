# SPDX-License-Identifier: Apache-2.0
"""Scraping the agent as a monitoring system does."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tools.lab.unix_http import UnixConnection


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a scrape."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """What the agent said."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def find(self, name: str, /, **labels: str) -> list[Sample]:
        """The samples of a metric that have these labels, among others."""
        return [one for one in self.samples if one.name == name and labels.items() <= one.labels.items()]

    def value(self, name: str, /, **labels: str) -> float:
        """The value of the one sample that has these labels."""
        (found,) = self.find(name, **labels)
        return found.value


def scrape(where: Path | int) -> Scrape:
    """``GET /metrics`` over a Unix socket or a port on loopback.

    :raises OSError: if nobody answers.
    """
    connection: http.client.HTTPConnection
    if isinstance(where, Path):
        connection = UnixConnection(where, 60)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", where)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        assert (answer.getheader("Content-Type") or "").startswith("text/plain; version=")
        return Scrape(text)
    finally:
        connection.close()
