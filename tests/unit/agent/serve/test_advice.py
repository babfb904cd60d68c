# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of advice that a flavor follows already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.serve.advice import beside_promises
from vmqos.agent.serve.neighbours import host_of
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.insight import Cause, Insight, PairVerdict, Use, VmVerdict
from vmqos.insight.advice import against, for_more

FLAVOR, VICTIM = "c4", "22222222-2222-4222-8222-222222222222"
CAP, LIMIT = (against(cause, FLAVOR) for cause in (Cause.CACHE, Cause.BANDWIDTH))
CAPPED = CacheRequest(ways=2, policy=CachePolicy.SHARED)


def advised(asked: CacheRequest | None, verdict: VmVerdict | PairVerdict) -> tuple[str, tuple[str, ...]]:
    """What is advised about a VM whose flavor asks for this, and why."""
    known = with_record(snapshot(), request=FlavorRequest(asked, asked))
    is_pair = isinstance(verdict, PairVerdict)
    found = Insight({} if is_pair else {UUID: verdict}, [verdict] if is_pair else [])  # type: ignore[dict-item, list-item]
    told = beside_promises(found, host_of(known), known.vms)
    one: VmVerdict | PairVerdict = told.pairs[0] if is_pair else told.vms[UUID]
    assert replace(one, advice=verdict.advice, evidence=verdict.evidence) == verdict, "nothing else is changed"
    return one.advice, one.evidence


def pair(cause: Cause) -> PairVerdict:
    return PairVerdict(UUID, VICTIM, cause, 1.0, None, 1.5, 1e6, 0.9, ("it moves more",), against(cause, FLAVOR))


@pytest.mark.parametrize(
    ("cause", "asked", "advice", "because"),
    [
        (Cause.CACHE, None, CAP, ""),
        (Cause.CACHE, CacheRequest(ways=2), CAP, ""),
        (Cause.CACHE, replace(CAPPED, ways=5), CAP, ""),
        (Cause.CACHE, CAPPED, "", "2 ways with hw:cache_policy=shared"),
        (Cause.CACHE, replace(CAPPED, ways=1), "", "1 way with hw:cache_policy=shared"),
        (Cause.CACHE, replace(CAPPED, ways=None, code_ways=1, data_ways=1), "", "has a cap already"),
        (Cause.BANDWIDTH, CAPPED, LIMIT, ""),
        (Cause.BANDWIDTH, CacheRequest(bandwidth_percent=60), LIMIT, ""),
        (Cause.BANDWIDTH, CacheRequest(bandwidth_percent=30), LIMIT.replace("30", "15"), "a limit already (30 %)"),
        (Cause.BANDWIDTH, CacheRequest(bandwidth_percent=12), LIMIT.replace("30", "10"), "a limit already (12 %)"),
        (Cause.BANDWIDTH, CacheRequest(bandwidth_percent=10), "", "a limit already (10 %)"),
        (
            Cause.BANDWIDTH,
            CacheRequest(bandwidth_mbps=4000),
            f"vmqos flavor set {FLAVOR} --bandwidth-mbps 2000",
            "a limit already (4000 MB/s)",
        ),
        (Cause.BANDWIDTH, CacheRequest(bandwidth_mbps=250), "", "a limit already (250 MB/s)"),
    ],
)
def test_a_culprit_is_not_advised_what_its_flavor_has(
    cause: Cause, asked: CacheRequest | None, advice: str, because: str
) -> None:
    found, evidence = advised(asked, pair(cause))
    assert found == advice and evidence[0] == "it moves more"
    assert because in evidence[-1] and len(evidence) == (2 if because else 1)


@pytest.mark.parametrize(("asked", "advice"), [(None, CAP), (CacheRequest(ways=2), CAP), (CAPPED, "")])
def test_a_vm_that_fills_the_cache_without_gain_is_not_advised_a_cap_that_it_has(
    asked: CacheRequest | None, advice: str
) -> None:
    found, evidence = advised(asked, VmVerdict(UUID, Use.FILLS_WITHOUT_GAIN, 0.8, ("it misses all",), CAP))
    assert (found, len(evidence)) == (advice, 1 if advice else 2)


@pytest.mark.parametrize(
    ("asked", "before", "ways"),
    [
        (None, 3, 3),
        (CacheRequest(ways=4), 5, 5),
        (CacheRequest(ways=4), 4, 5),
        (CacheRequest(ways=4), 3, 5),
        (replace(CAPPED, ways=4), 4, 5),
        (CacheRequest(code_ways=2, data_ways=2), 3, 3),
    ],
)
def test_a_vm_that_starves_is_advised_more_ways_than_it_has(asked: CacheRequest | None, before: int, ways: int) -> None:
    verdict = VmVerdict(UUID, Use.STARVES, 0.8, ("it misses half",), for_more(FLAVOR, before, 11))
    assert advised(asked, verdict) == (for_more(FLAVOR, ways, 11), ("it misses half",))


def test_a_vm_that_has_nearly_all_ways_is_advised_none() -> None:
    verdict = VmVerdict(UUID, Use.STARVES, 0.8, (), for_more(FLAVOR, 9, 11))
    assert advised(CacheRequest(ways=10), verdict) == ("", ())


def test_what_is_known_of_no_vm_is_left_as_it_is() -> None:
    known = snapshot()
    found = Insight({UUID: VmVerdict(UUID, Use.FITS, 0.9, ("it misses seldom",))}, [pair(Cause.CACHE)])
    assert beside_promises(found, host_of(known), {}) == found
