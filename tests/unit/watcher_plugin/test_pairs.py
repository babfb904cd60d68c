# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from tools.lab.workspace import CHECKOUT
from watcher_plugin import pairs
from watcher_plugin.pairs import Info, Pair

SCRAPE = CHECKOUT / "tests/unit/gateway/metrics/scrape.txt"
"""A whole answer of the gateway, to which its own tests hold it."""
QUESTIONS = {
    "lasting": pairs.lasting(least=1.1, period=120, granularity=30),
    "suffering": pairs.suffering(least=1.1, lookback=600),
    "infos": pairs.infos_expression(),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_gateway_tells_what_is_asked_for(question: str) -> None:
    scrape = SCRAPE.read_text()
    groupings = re.findall(r" by \(([^)]*)\) \(.*?(vmqos_\w+)", question)
    assert {metric for _, metric in groupings} == set(re.findall(r"vmqos_\w+", question))
    for asked, metric in groupings:
        labels, *_ = re.findall(rf"^{metric}{{(.*)}} ", scrape, re.MULTILINE)
        assert set(asked.split(", ")) <= set(re.findall(r'(\w+)="', labels))


@pytest.mark.parametrize(("period", "granularity", "scrapes"), [(120, 30, 4), (120, 60, 2), (100, 30, 3), (10, 30, 1)])
def test_a_pair_lasts_if_each_scrape_of_the_period_has_it(period: int, granularity: int, scrapes: int) -> None:
    question = pairs.lasting(least=1.1, period=period, granularity=granularity)
    assert f"count_over_time({pairs.SLOWDOWN}[{period}s]) >= {scrapes} " in question


def test_of_two_causes_the_worse_one_counts_and_the_worst_pair_is_first() -> None:
    assert pairs.pairs(
        [
            ({"uuid": "a", "culprit": "b", "cause": "cache"}, 1.2),
            ({"uuid": "a", "culprit": "b", "cause": "memory-bandwidth"}, 1.3),
            ({"uuid": "c", "culprit": "b", "cause": "cache"}, 1.5),
        ]
    ) == [Pair("c", "b", "cache", 1.5), Pair("a", "b", "memory-bandwidth", 1.3)]


def test_a_vm_with_two_gateways_has_a_promise_if_one_of_them_says_so() -> None:
    samples = [
        ({"uuid": "a", "flavor": "gold", "policy": "exclusive"}, 1.0),
        ({"uuid": "a", "flavor": "", "policy": ""}, 1.0),
        ({"uuid": "b", "flavor": "capped", "policy": "shared"}, 1.0),
        ({"uuid": "c"}, 1.0),
    ]
    assert pairs.infos(samples) == {"a": Info("gold", True), "b": Info("capped", False), "c": Info("", False)}
