# SPDX-License-Identifier: Apache-2.0
"""What Prometheus answers where series end, as its own tests of rules tell it: nothing has to run for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.openstack.servers.prometheus import promtool
from watcher_plugin import pairs

PAIR = 'vmqos_vm_neighbour_slowdown_ratio{uuid="victim",culprit="culprit",cause="cache",instance="one"}'
VICTIM = 'vmqos_vm_info{uuid="victim",instance="one"}'
ELSEWHERE = 'vmqos_vm_info{uuid="victim",instance="two"}'
WHOLE = "1.4x19"
"""A sample for each of 20 scrapes: the newest is of 9.5 minutes."""


@pytest.mark.parametrize(
    ("series", "is_accused"),
    [
        ({VICTIM: WHOLE, PAIR: WHOLE}, True),
        # The agent finds the pair no more. Prometheus marks the end of a series, which not every copy of it has.
        ({VICTIM: WHOLE, PAIR: "1.4x18 stale"}, False),
        ({VICTIM: WHOLE, PAIR: "1.4x18 _"}, False),
        # The gateway is gone.
        ({VICTIM: "1.4x18 stale", PAIR: "1.4x18 stale"}, False),
        # The victim was migrated, and the gateway that it was known to is scraped no more.
        ({VICTIM: "1.4x18 _", PAIR: "1.4x18 _", ELSEWHERE: WHOLE}, False),
        # The victim is being migrated: both gateways know it.
        ({VICTIM: WHOLE, PAIR: WHOLE, ELSEWHERE: WHOLE}, True),
    ],
    ids=["it goes on", "it ended", "it ended without a mark", "gateway gone", "victim migrated", "victim on its way"],
)
def test_a_pair_counts_only_if_the_newest_scrape_of_its_victim_has_it(
    tmp_path: Path, series: dict[str, str], is_accused: bool
) -> None:
    # All these lasted: 100 seconds have three scrapes without the newest one.
    answer = [{"labels": '{uuid="victim",culprit="culprit",cause="cache"}', "value": 1.4}]
    _check(
        tmp_path,
        series,
        pairs.lasting(least=1.1, period=100, granularity=30),
        answer if is_accused else [],
    )


@pytest.mark.parametrize(("last", "is_slowed"), [("1.4x18 stale", True), ("1.4 stale", True), ("1.05x19", False)])
def test_who_was_slowed_during_the_lookback_is_known(tmp_path: Path, last: str, is_slowed: bool) -> None:
    answer = [{"labels": '{uuid="victim"}', "value": 1.4}]
    _check(tmp_path, {PAIR: last}, pairs.suffering(least=1.1, lookback=600), answer if is_slowed else [])


def _check(folder: Path, series: dict[str, str], question: str, answer: list[dict[str, Any]]) -> None:
    """Have promtool compare the answer to a question, five seconds after the newest scrape."""
    told = [{"series": name, "values": values} for name, values in series.items()]
    asked = {"expr": question, "eval_time": "9m35s", "exp_samples": answer}
    test = {"interval": "30s", "input_series": told, "promql_expr_test": [asked]}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [test]}))
    promtool("test", "rules", file)
