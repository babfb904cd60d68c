# SPDX-License-Identifier: Apache-2.0
"""Scraping the agent as a monitoring system does."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.functional.conftest import WaitFor
from tools.lab.unix_http import TIMEOUT, UnixConnection


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
        """The value of the one sample that has these labels.

        :raises RuntimeError: if none has them, as for a moment where counters are old, or more than one.
        """
        found = self.find(name, **labels)
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} samples of {name} have the labels {labels}")
        return found[0].value


def scrape(where: Path | int) -> Scrape:
    """``GET /metrics``; see :func:`text_of`."""
    return Scrape(text_of(where))


def text_of(where: Path | int) -> str:
    """``GET /metrics`` over a Unix socket or a port on loopback.

    :raises OSError: if nobody answers.
    :raises RuntimeError: if the status is not 200.
    """
    connection: http.client.HTTPConnection
    if isinstance(where, Path):
        connection = UnixConnection(where, TIMEOUT)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", where)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"GET /metrics: {answer.status} {text}")
        assert (answer.getheader("Content-Type") or "").startswith("text/plain; version=")
        return text
    finally:
        connection.close()


def scrape_with(wait_for: WaitFor, where: Path | int, has: Callable[[Scrape], bool], what: str) -> Scrape:
    """The first scrape that has something: the next one may be of another moment.

    :param has: whether a scrape has it; a sample that is missing counts as no.
    :param what: what it is, for people.
    """
    found: list[Scrape] = []

    def is_there() -> bool:
        found[:] = [scrape(where)]
        return has(found[0])

    wait_for(is_there, what)
    return found[0]
