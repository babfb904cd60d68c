# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.snapshot import Snapshot

NOT_READ = "resctrl was not read yet"


def plan(*specs: str) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question for a plan, on a host whose resctrl was not read yet: status and body."""
    agent = SimpleNamespace(snapshot=Snapshot(), health=SimpleNamespace(resctrl_error=NOT_READ))
    api = Api(agent, None, LiveReads())  # type: ignore[arg-type]
    query = urlencode([("spec", spec) for spec in specs])
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/plan", "QUERY_STRING": query}
    (content,) = api(environ, lambda status, headers: told.append(status))
    return told[0], json.loads(content)


@pytest.mark.parametrize("second", ["hw:cache_ways=3", "hw:cache_ways=2", "hw:cache_ways="])
def test_a_plan_with_one_key_twice_is_refused_and_the_key_is_named(second: str) -> None:
    text = f"'hw:cache_ways' is given twice, as 'hw:cache_ways=2' and as {second!r}: a flavor has one value for a key"
    assert plan("hw:cache_ways=2", "hw:cache_policy=shared", second) == ("400 Bad Request", {"error": text})


def test_a_plan_with_several_keys_is_understood() -> None:
    assert plan("hw:cache_ways=2", "hw:cache_policy=shared") == ("503 Service Unavailable", {"error": NOT_READ})
