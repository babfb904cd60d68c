# SPDX-License-Identifier: Apache-2.0
"""Answers that are JSON and not of the form that they should have: of a proxy, or of a service that is too old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vmqos.openstack.consumers import Consumers
from vmqos.openstack.exceptions import FlavorHidden, Refused
from vmqos.openstack.nova import Nova
from vmqos.openstack.placement import Inventory, Placement, Provider
from vmqos.openstack.servers import Servers
from vmqos.openstack.service import Answer, Service

PROVIDER = Provider("u", "n", 1, None)
INVENTORY = {"total": 9, "reserved": 0, "min_unit": 1, "max_unit": 9, "step_size": 1, "allocation_ratio": 1.0}


class Told(Service):
    """A service whose every answer has this body; ``asked`` has the queries."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self.asked: list[Any] = []

    def ask(self, method: str, path: str, *_: Any, query: Any = None, **__: Any) -> Answer:
        self.asked.append(query)
        return Answer(200, self.body, "placement", f"{method} {path}")


QUESTIONS: dict[str, Callable[[Service], object]] = {
    "find": lambda service: Placement(service).find("n"),
    "children": lambda service: Placement(service).children(PROVIDER),
    "create": lambda service: Placement(service).create("n", "p"),
    "inventories": lambda service: Placement(service).inventories(PROVIDER),
    "set inventories": lambda service: Placement(service).set_inventories(PROVIDER, 1, {}),
    "traits": lambda service: Placement(service).traits(PROVIDER),
    "usages": lambda service: Placement(service).usages(PROVIDER),
    "claims": lambda service: Placement(service).claims(PROVIDER),
    "providers": lambda service: Consumers(service).providers(),
    "consumer": lambda service: Consumers(service).get("u"),
    "of a provider": lambda service: Consumers(service).of_provider("u"),
    "extra specs": lambda service: Nova(service).extra_specs("u"),
    "extra specs of a host": lambda service: Nova(service).extra_specs_of_host("node-1"),
    "servers": lambda service: list(Servers(service).servers()),
    "server": lambda service: Servers(service).get("u"),
    "migrations": lambda service: list(Servers(service).migrations()),
}

WRONG = [None, [], {}, "text", {"resource_providers": [{}]}, {"inventories": {"X": {}}, "servers": [{"name": "a"}]}]


@pytest.mark.parametrize("body", WRONG, ids=str)
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_an_answer_of_another_form_is_a_refusal_that_names_the_question(
    ask: Callable[[Service], object], body: Any
) -> None:
    with pytest.raises(
        Refused, match=r"(?s)'s answer to (GET|PUT|POST) /.* is of no use: the answer is not of the form"
    ) as caught:
        ask(Told(body))
    assert caught.value.status == 0


@pytest.mark.parametrize("ratio", [float("inf"), float("nan"), -1.0])
def test_an_inventory_whose_capacity_is_no_number_is_refused(ratio: float) -> None:
    told = {"resource_provider_generation": 1, "inventories": {"X": {**INVENTORY, "allocation_ratio": ratio}}}
    with pytest.raises(Refused):
        Placement(Told(told)).inventories(PROVIDER)


def test_what_a_later_placement_adds_is_passed_over() -> None:
    told = {"resource_provider_generation": 3, "inventories": {"X": {**INVENTORY, "new": 1}}, "new": {}}
    assert Placement(Told(told)).inventories(PROVIDER) == (3, {"X": Inventory(9, max_unit=9)})


SERVER = {"id": "a", "flavor": {"extra_specs": {"hw:cache_ways": "2"}}, "new": 1}


def test_servers_whose_flavor_is_not_shown_are_left_out() -> None:
    body = {"servers": [SERVER, {"id": "b"}, {"id": "c", "flavor": {"id": "1", "links": []}}]}
    assert Nova(Told(body)).extra_specs_of_host("node-1") == {"a": {"hw:cache_ways": "2"}}
    with pytest.raises(FlavorHidden, match="server b"):
        Nova(Told({"server": {"id": "b"}})).extra_specs("b")


def test_a_page_that_comes_again_and_again_is_asked_for_twice() -> None:
    told = Told({"servers": [SERVER], "servers_links": [{"rel": "next"}]})
    with pytest.raises(Refused, match="a page that ends with a comes again"):
        Nova(told).extra_specs_of_host("node-1")
    assert [query.get("marker") for query in told.asked] == [None, "a"]
