# SPDX-License-Identifier: Apache-2.0
"""One word of a fixed set for each reason: sentences are for people, and make no labels of metrics."""

from __future__ import annotations

from typing import NamedTuple


class _Rule(NamedTuple):
    code: str
    phrase: str


OTHER = "other"
"""What stands for a reason that no rule knows."""

RULES = (
    _Rule("no-resctrl", "resctrl can't be used"),
    _Rule("no-resctrl", "resctrl is not mounted"),
    _Rule("no-resctrl", "is mounted read-only"),
    _Rule("no-resctrl", "offers no resctrl"),
    _Rule("no-resctrl", "and no resctrl"),
    _Rule("no-resctrl", "the process behind the FUSE mount"),
    _Rule("agent-fault", "failed unexpectedly"),
    _Rule("not-readable", "can't be looked at now"),
    _Rule("not-readable", "can't be listed now"),
    _Rule("flavor-unknown", "Nova's API has not told"),
    _Rule("no-l3", "this host's L3 cache can't be partitioned"),
    _Rule("cdp", "to be mounted with cdp"),
    _Rule("no-l2", "this host's L2 caches can't be partitioned"),
    _Rule("not-pinned", "needs each vCPU to be pinned"),
    _Rule("no-cache", "none of the L3 caches"),
    _Rule("no-cache", "none of the L2 caches"),
    _Rule("no-bandwidth", "memory bandwidth can't be throttled"),
    _Rule("bandwidth-unit", "hw:mem_bandwidth_mbps needs"),
    _Rule("bandwidth-unit", "hw:mem_bandwidth_percent needs"),
    _Rule("bandwidth-unit", "hw:mem_bandwidth_percent would be"),
    _Rule("waits-for-closid", "that is just being freed"),
    _Rule("no-closid", "no class of service (CLOSID) is left"),
    _Rule("no-safe-order", "can't be moved to make room without an overlap"),
    _Rule("io-ways", "I/O fills ways"),
    _Rule("overlapped", "ways of this VM's mask"),
    _Rule("overlapped", "another program gave ways of this VM to"),
    _Rule("changed-outside", "another program changed the control group"),
    _Rule("changed-outside", "another program removed the control group"),
    _Rule("pool-too-small", "that is all there is in the pool"),
    _Rule("no-ways", "asked for: of its"),
    _Rule("no-ways", "with no other VM there"),
    _Rule("more-than-all", "cache of this host has"),
    _Rule("cachetune", "libvirt placed this VM by cachetune or memorytune"),
    _Rule("no-vcpu", "and the VM has no vCPU"),
    _Rule("no-vcpu", "hw:cache_vcpus can't be followed"),
    _Rule("bad-flavor", "flavor "),
    _Rule("bad-flavor", "there is no such extra spec"),
    _Rule("bad-metadata", "Nova's metadata"),
    _Rule("no-extra-specs", "Nova wrote no extra specs"),
    _Rule("unreadable", "than the kernel lets a program begin with"),
    _Rule("unreadable", "that a VM may have. Look at"),
    _Rule("unreadable", "Look at what made them"),
    _Rule("unreadable", "the QEMU process of VM"),
    _Rule("unreadable", "the domain XML can't be read"),
    _Rule("foreign-tasks", "in a control group that somebody else made"),
    _Rule("refused", "failed with E"),
    _Rule("tasks-missing", "tasks are not in place yet"),
    _Rule("reserved-ways", "has reserved ways"),
    _Rule("parts-overlap", "code and data both fill"),
    _Rule("rounded-up", "a mask has at least"),
    _Rule("rounded-up", "this machine throttles in steps"),
)
"""In the order of their weight: of a reason with several parts the first one that is found here counts."""

CODES = ("", *dict.fromkeys(rule.code for rule in RULES), OTHER)
"""Every word that :func:`code_of` may return."""


def code_of(reason: str) -> str:
    """The word for a reason as :attr:`vmqos.agent.outcome.Outcome.reason` has it; empty for none."""
    if not reason:
        return ""
    return next((rule.code for rule in RULES if rule.phrase in reason), OTHER)
