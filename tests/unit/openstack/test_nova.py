# SPDX-License-Identifier: Apache-2.0
"""What Nova is asked for; its answers come from a real one in tests/openstack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from vmqos.openstack.nova import Nova
from vmqos.openstack.service import Answer, Service


class Asked(Service):
    """Keeps the queries, and knows no server."""

    def __init__(self) -> None:
        self.queries: list[Mapping[str, str]] = []

    def ask(self, *_: Any, query: Mapping[str, str] | None = None, **__: Any) -> Answer:
        self.queries.append(query or {})
        return Answer(200, {"servers": []})


@pytest.mark.parametrize("hostname", ["node-7", "rack1.node-7.example", "node(1", "node+[a]"])
def test_the_expression_that_nova_is_given_fits_the_one_hostname(hostname: str) -> None:
    asked = Asked()
    assert Nova(asked).extra_specs_of_host(hostname) == {}
    (query,) = asked.queries
    expression = re.compile(query["node"])
    assert expression.search(hostname)
    assert not expression.search(hostname.replace(".", "-") if "." in hostname else f"{hostname}.example")
