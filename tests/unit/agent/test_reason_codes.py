# SPDX-License-Identifier: Apache-2.0
"""Every sentence that the agent can give for a reason has a word of its own."""

from __future__ import annotations

import re

import pytest

from tests.unit.doc.pages import SOURCE
from vmqos.agent import vcpu_limit, wish
from vmqos.agent.backoff import Failure
from vmqos.agent.flavor_lookup import Found
from vmqos.agent.inventory import unexpected
from vmqos.agent.outcome import judge
from vmqos.agent.placement import Placed, Target
from vmqos.agent.reason_codes import CODES, OTHER, code_of
from vmqos.agent.wish import Wish
from vmqos.allocation import PromiseState, reasons
from vmqos.hypervisor import exceptions as unreadable
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.openstack.extra_specs import CacheRequest
from vmqos.resctrl import exceptions
from vmqos.resctrl.capabilities import BandwidthResource, Capabilities


def vm(specs: dict[str, str] | None = None, error: str = "", cachetune: bool = False) -> VirtualMachine:
    return VirtualMachine("u", "n", 1, Process(1, 1), None, cachetune, NovaMetadata("n", "gold", "p", specs), error)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("", ""),
        (reasons.NO_L3, "no-l3"),
        (reasons.NO_CDP, "cdp"),
        (reasons.NO_CACHE, "no-cache"),
        (reasons.NO_L2_CACHE, "no-cache"),
        (reasons.NO_L2, "no-l2"),
        (reasons.NOT_PINNED, "not-pinned"),
        (reasons.WAITS_FOR_CLOSID, "waits-for-closid"),
        (reasons.NO_SAFE_ORDER, "no-safe-order"),
        (reasons.capped({0: 1}, {0: 3}), "pool-too-small"),
        (reasons.overlapped(0, 0xF, ["foreign"]), "overlapped"),
        ("I/O fills ways 600 of this VM's mask 700 on L3 cache 0, too, and there is no room to move it to", "io-ways"),
        (reasons.on_reserved_ways(0, 0xF), "reserved-ways"),
        (reasons.raised(1, 2, 2), "rounded-up"),
        (reasons.parts_in_common({0: 1}), "parts-overlap"),
        (reasons.more_than_all(20, 11), "more-than-all"),
        (reasons.grown({0: 2}, {0: 4}, reasons.NO_SAFE_ORDER), "no-safe-order"),
        (wish.read(vm(None)).remark, "no-extra-specs"),
        (wish.unreadable(KeyError("flavor x")).unknown, "agent-fault"),
        (unexpected("moving its tasks", ValueError("no number")), "agent-fault"),
        ("its vCPUs can't be looked at now: /proc/7 can't be read", "not-readable"),
        ("its tasks can't be listed now: /proc/7 can't be read", "not-readable"),
        (wish.read(vm({"hw:cache_ways": "two"})).problem, "bad-flavor"),
        (reasons.NO_BANDWIDTH, "no-bandwidth"),
        (reasons.NO_PERCENT_OF_GBPS, "bandwidth-unit"),
        (reasons.no_mbps(Capabilities()), "bandwidth-unit"),
        (reasons.NO_PERCENT, "bandwidth-unit"),
        (reasons.percent_raised(51, 60, BandwidthResource("MB", 8, 10, 10, True, (0,))), "rounded-up"),
        (reasons.mbps_changed(1, 125), "rounded-up"),
        (vcpu_limit.problem(frozenset({5}), {0, 1}), "no-vcpu"),
        (vcpu_limit.UNNAMED, "no-vcpu"),
        (wish.read(vm({}, cachetune=True)).remark, "cachetune"),
        (wish.read(vm({}, error="Nova's metadata are there 2 times")).problem, "bad-flavor"),
        ("Nova's metadata are there 2 times", "bad-metadata"),
        (str(unreadable.ProcessTooLong(pid=7, name="cmdline", most=8)), "unreadable"),
        (str(unreadable.TooManyThreads(pid=7, count=9, most=8)), "unreadable"),
        (str(unreadable.CgroupTooLarge(path="/a", most=8, what="cgroups")), "unreadable"),
        (str(unreadable.NoProcess(uuid="u")), "unreadable"),
        (str(unreadable.SearchTooLong(uuid="u", seconds=1.0)), "unreadable"),
        (str(unreadable.UnreadableDescription(error="it is longer than 8 characters")), "unreadable"),
        (str(exceptions.NotMounted(path="/sys/fs/resctrl", mend="mount it")), "no-resctrl"),
        (str(exceptions.NotSupported(path="/sys/fs/resctrl", cause="no flag")), "no-resctrl"),
        (str(exceptions.ReadOnly(path="/sys/fs/resctrl")), "no-resctrl"),
        (str(exceptions.DeadMount(path="/sys/fs/resctrl")), "no-resctrl"),
        (str(exceptions.NotResctrl(path="/mnt", fstype="ext4")), "no-resctrl"),
        ("something that nobody thought of", OTHER),
    ],
)
def test_a_reason_has_its_word(reason: str, code: str) -> None:
    assert code_of(reason) == code


@pytest.mark.parametrize("error", ["", "Nova can't be reached: refused", "flavor gold: no-ways"])
def test_a_flavor_that_nova_has_not_told_has_its_word(error: str) -> None:
    unknown = judge(wish.read(vm(), Found(None, error)), None, None, None)
    assert (unknown.state, code_of(unknown.reason)) == (PromiseState.PENDING, "flavor-unknown")


def test_what_went_wrong_with_tasks_or_the_kernel_has_its_word() -> None:
    wants = Wish(request=CacheRequest(ways=2), asked=CacheRequest(ways=2))
    tasks = frozenset({1, 2})
    missing = Placed(Target("g"), tasks, frozenset({1}))
    foreign = Placed(Target("g"), tasks, frozenset({1}), frozenset({2}))
    refused = exceptions.CommandFailed(
        action="write", path="schemata", data="", errno_name="EINVAL", last_cmd_status="mask f has no bits"
    )
    assert code_of(judge(wants, None, missing, None).reason) == "tasks-missing"
    assert code_of(judge(wants, None, foreign, None).reason) == "foreign-tasks"
    assert code_of(judge(wants, None, None, Failure(str(refused), 1, 0.0)).reason) == "refused"


def test_of_several_parts_the_weightiest_counts() -> None:
    assert code_of(f"{reasons.raised(1, 2, 2)}; {reasons.NO_SAFE_ORDER}") == "no-safe-order"


def test_the_set_of_words_is_small_and_fit_for_labels() -> None:
    assert len(CODES) == len(set(CODES)) < 40
    assert all(re.fullmatch(r"[a-z0-9-]*", code) for code in CODES)


def test_every_reason_that_the_guide_explains_has_a_word() -> None:
    table = SOURCE.joinpath("operator", "states.rst").read_text(encoding="utf-8")
    told = re.findall(r"^   \* - ``([^`]{12,})``$", table, re.MULTILINE)
    assert len(told) > 15
    unknown = {reason for reason in told if code_of(reason.replace("...", "EINVAL")) == OTHER}
    # That one goes on to say why.
    assert unknown == {"has 2 of 4 ways ..."}
