# SPDX-License-Identifier: Apache-2.0
"""The judgement alone; beside Placement and Nova it has its tests in ``tests/unit/nova_plugin``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.cli.placement import audit as audit
from vmqos.cli.placement.audit import Finding, Host, Hosts, Problem
from vmqos.extra_specs.resources import CLASSES, LLC_CLASSES, LLC_SHARED, LLC_WAYS
from vmqos.openstack.placement import Inventory
from vmqos.openstack.servers import Migration, Server

SHARED = f"{LLC_SHARED}WAYS2"
INVENTORIES = {LLC_WAYS: Inventory(9, max_unit=9), LLC_CLASSES: Inventory(15)}
ONE = Host("one", "one-root", "one-cache", {"one-cache": {**INVENTORIES, SHARED: Inventory(1_000_000)}})
TWO = Host("two", "two-root", "two-cache", {"two-cache": INVENTORIES})
BY_FILE = Host("file", "file-root", "", {"file-root": INVENTORIES})
UNTOLD = Host("untold", "untold-root")
HOSTS = Hosts.of([ONE, TWO, BY_FILE, UNTOLD])

CPUS = {"VCPU": 1}
CLAIM = {LLC_WAYS: 2, LLC_CLASSES: 1}
SERVER = Server("uuid", "web", "one", "active", "", {"hw:cache_ways": "2"})


def judged(held: Mapping[str, Mapping[str, int]], server: Server = SERVER, **options: bool) -> list[Finding]:
    return list(audit.judge_server(server, held, HOSTS, **options))


@pytest.mark.parametrize(
    ("server", "held", "problem"),
    [
        (SERVER, {"one-root": CPUS, "one-cache": CLAIM}, None),
        (SERVER, {"one-root": CPUS}, Problem.MISSING),
        (SERVER, {"one-root": CPUS, "one-cache": {LLC_WAYS: 2}}, Problem.TOO_LITTLE),
        (SERVER, {"one-root": CPUS, "one-cache": {LLC_WAYS: 3, LLC_CLASSES: 1}}, Problem.TOO_MUCH),
        (SERVER, {"one-root": {**CPUS, **CLAIM}}, Problem.MISPLACED),
        (SERVER, {"one-root": {**CPUS, **CLAIM}, "one-cache": CLAIM}, Problem.DOUBLE),
        (replace(SERVER, hostname="file"), {"file-root": {**CPUS, **CLAIM}}, None),
        (replace(SERVER, hostname="file"), {"file-root": CPUS}, Problem.MISSING),
        (replace(SERVER, extra_specs={}), {"one-root": CPUS}, None),
        (replace(SERVER, extra_specs={}), {"one-root": CPUS, "one-cache": CLAIM}, Problem.TOO_MUCH),
        (replace(SERVER, extra_specs={"hw:mem_bandwidth_mbps": "9"}), {"one-root": CPUS}, Problem.MISSING),
    ],
)
def test_what_a_server_holds_is_held_against_its_promise(
    server: Server, held: Mapping[str, Mapping[str, int]], problem: Problem | None
) -> None:
    found = judged(held, server)
    assert [one.problem for one in found] == ([] if problem is None else [problem])
    if problem is not None:
        (one,) = found
        assert one.mend is not None
        mended = audit.after(held, one.mend)
        assert judged(mended, server) == []
        assert all("VCPU" in mended[root] for root in held if "VCPU" in held[root])


@pytest.mark.parametrize(
    "server",
    [
        replace(SERVER, extra_specs=None),
        replace(SERVER, extra_specs={"hw:cache_ways": "two"}),
        replace(SERVER, hostname="one-that-placement-does-not-know"),
        replace(SERVER, task="deleting"),
        replace(SERVER, state="resized"),
        replace(SERVER, state="error"),
        replace(SERVER, hostname=""),
    ],
)
def test_a_server_that_can_not_be_judged_is_left_alone(server: Server) -> None:
    assert judged({"one-root": CPUS, "one-cache": {LLC_WAYS: 1}}, server) == []


def test_a_host_whose_agent_tells_nothing_has_no_room_to_mend() -> None:
    (found,) = judged({"untold-root": CPUS}, replace(SERVER, hostname="untold"))
    assert (found.problem, found.mend) == (Problem.MISSING, None)
    assert "untold has no provider of cache" in found.detail


def test_an_evacuated_server_gets_its_claim_and_keeps_what_nova_will_give_back() -> None:
    held = {"two-root": CPUS, "two-cache": CLAIM, "one-root": CPUS}
    elsewhere, missing = judged(held)
    assert (elsewhere.problem, elsewhere.mend) == (Problem.MISPLACED, None)
    assert missing.problem is Problem.MISSING and missing.mend is not None
    assert audit.after(held, missing.mend) == {**held, "one-cache": CLAIM}


def stranger(migration: Migration | None, server: Server | None) -> list[Finding]:
    return list(audit.judge_stranger("m", {"one-root": CPUS, "one-cache": CLAIM}, migration, server, HOSTS))


def test_only_what_is_over_leaves_orphans() -> None:
    (found,) = stranger(None, None)
    assert found.mend is not None and audit.after({"one-root": CPUS, "one-cache": CLAIM}, found.mend) == {
        "one-root": CPUS
    }
    for status in ("accepted", "migrating", "finished", "confirming", "reverting", "one of a later Nova"):
        assert stranger(Migration("m", "uuid", status), SERVER) == []
    (found,) = stranger(Migration("m", "uuid", "confirmed"), SERVER)
    assert found.mend is not None
    assert stranger(Migration("m", "uuid", "confirmed"), replace(SERVER, task="resize_prep")) == []
    (found,) = stranger(Migration("m", "uuid", "error"), SERVER)
    assert found.mend is None
    (found,) = stranger(Migration("m", "uuid", "finished"), None)
    assert found.mend is not None and "which Nova does not know" in found.detail


def test_a_host_is_overdrawn_and_counted_twice() -> None:
    twice = Host("one", "one-root", "one-cache", {"one-cache": INVENTORIES, "one-root": INVENTORIES})
    found = list(audit.judge_host(twice, {"one-cache": {LLC_WAYS: 11}}))
    assert [one.problem for one in found] == [Problem.OVERDRAWN, Problem.TWICE]
    assert "11 CUSTOM_LLC_WAYS of one_LLC are claimed, and 9 can be had" in found[0].detail
    assert list(audit.judge_host(ONE, {"one-cache": {LLC_WAYS: 9}})) == []


def test_a_server_of_a_shared_class_holds_one_of_it_only_where_the_host_offers_or_offered_the_class() -> None:
    shared = replace(SERVER, extra_specs={"hw:cache_ways": "2", "hw:cache_policy": "shared"})
    (missing,) = judged({"one-root": CPUS}, shared)
    assert (
        missing.problem is Problem.MISSING
        and missing.mend is not None
        and missing.mend.claim == {"one-cache": {SHARED: 1}}
    )
    assert judged({"two-root": CPUS}, replace(shared, hostname="two")) == []
    unlisted = Host("one", "one-root", "one-cache", {"one-cache": {**INVENTORIES, SHARED: Inventory(1, reserved=1)}})
    for held in ({}, {"one-cache": {SHARED: 1}}):
        assert list(audit.judge_server(shared, {"one-root": CPUS, **held}, Hosts.of([unlisted]))) == []
    assert list(audit.judge_host(unlisted, {"one-cache": {SHARED: 3}})) == []


AMOUNTS = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", LLC_WAYS, LLC_CLASSES, SHARED]), st.integers(1, 9))
HELD = st.dictionaries(
    st.sampled_from(["one-root", "one-cache", "two-root", "two-cache", "file-root", "unknown"]), AMOUNTS
)
SPECS = st.sampled_from(
    [
        {},
        {"hw:cache_ways": "2"},
        {"hw:cache_ways": "2", "hw:cache_policy": "shared"},
        {"hw:cache_ways": "2", "resources:CUSTOM_LLC_WAYS": "3", "resources:CUSTOM_LLC_CLASSES": "1"},
        {"hw:mem_bandwidth_mbps": "4000"},
        {"hw:cache_ways": "0"},
    ]
)


@given(HELD, SPECS, st.sampled_from(["one", "two", "file", "untold"]), st.booleans())
def test_no_mend_takes_what_is_others_or_what_was_promised_and_one_is_enough(
    held: dict[str, dict[str, int]], specs: dict[str, str], hostname: str, filter_only: bool
) -> None:
    server = replace(SERVER, extra_specs=specs, hostname=hostname)
    found = list(audit.judge_server(server, held, HOSTS, filter_only=filter_only))
    right = HOSTS.by_name[hostname].provider
    wanted = audit.promised(server)
    for one in found:
        if one.mend is None:
            continue
        assert wanted is not None
        mended = audit.after(held, one.mend)
        for provider, amounts in held.items():
            for name, amount in amounts.items():
                if name in CLAIM or name == SHARED:
                    continue
                assert mended[provider][name] == amount
        offered = [name for name in wanted if name in CLASSES or name in HOSTS.by_name[hostname].inventories[right]]
        assert all(mended[right].get(name, 0) == wanted[name] for name in offered)
        again = audit.judge_server(server, mended, HOSTS, filter_only=filter_only)
        assert [later for later in again if later.mend is not None] == []
