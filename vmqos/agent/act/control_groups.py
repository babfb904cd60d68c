# SPDX-License-Identifier: Apache-2.0
"""Carrying out a plan on the control groups, and noting the VMs that a refusal of the kernel concerns."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from vmqos.agent.act import plan_steps
from vmqos.agent.act.plan_steps import StepFailed
from vmqos.allocation import Allocation, CreateGroup, Plan, SetExclusive
from vmqos.daemon.backoff import Backoff
from vmqos.reason import of_error
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

LIMBO = 1.0
"""Seconds between two looks of the kernel at RMIDs that were given back (``CQM_LIMBOCHECK_INTERVAL``). Where no RMID is
free yet for a group, the agent tries again as often."""


class ControlGroups:
    """Carries out plans.

    :param filesystem: resctrl.
    :param backoff: failures, by VM UUID.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._unguarded: set[str] = set()

    def forget(self) -> None:
        """Let the next plan ask the kernel again for the mode ``exclusive`` where the kernel has refused it."""
        self._unguarded.clear()

    def without_refused(self, plan: Plan) -> Plan:
        """The plan without the modes ``exclusive`` that the kernel refused and would refuse again."""
        kept = (
            step
            for step in plan.prepare
            if not (isinstance(step, SetExclusive) and step.exclusive and step.group in self._unguarded)
        )
        return replace(plan, prepare=tuple(kept))

    def prepare(self, plan: Plan) -> StepFailed | None:
        """Make every group ready for tasks.

        :returns: the step that failed, if one did; the steps after it were not tried.
        """
        try:
            self._unguarded |= plan_steps.execute(self._filesystem, plan.prepare)
        except StepFailed as failure:
            LOG.error("%s: %s", plan_steps.describe(failure.step), failure)
            return failure
        return None

    def blame(self, plan: Plan, in_force: Mapping[str, Allocation], failure: StepFailed) -> bool:
        """Note the failure for each VM of the step's group that lacks something now; if it has none, for all such VMs.

        :param in_force: the part of its allocation that each VM really has now, by UUID.
        :returns: whether the failure concerns the VMs of one group only, so that a pass without them gets further.
        """
        group = failure.step.group
        concerned = [uuid for uuid, given in plan.allocations.items() if given.group == group != ""]
        blamed = [uuid for uuid in concerned or in_force if in_force[uuid] is not plan.allocations[uuid]]
        at_most = LIMBO if isinstance(failure.error, exceptions.RmidsInLimbo) else math.inf
        for uuid in blamed:
            self._backoff.fail(uuid, of_error(failure), at_most)
        return bool(concerned and blamed)

    def retire(self, plan: Plan, in_force: Mapping[str, Allocation]) -> bool:
        """Remove the groups that no VM needs, unless a VM is in another group than planned.

        :returns: whether all of them were removed.
        """
        if any(given.group != plan.allocations[uuid].group for uuid, given in in_force.items()):
            return False
        try:
            plan_steps.execute(self._filesystem, plan.retire)
        except StepFailed as failure:
            LOG.error("%s: %s", plan_steps.describe(failure.step), failure)
            return False
        return True


def created(plan: Plan) -> set[str]:
    """The names of the control groups that the plan creates."""
    return {step.group for step in plan.prepare if isinstance(step, CreateGroup)}
