# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted into the agent: a judge must notice each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import libvirt
import pytest

from tests.campaign.trouble.verdicts import Kind
from tests.campaign.trouble.writes import CLASS_PREFIX, PREFIX
from vmqos.agent import early_start
from vmqos.agent import judge as agents_judge
from vmqos.agent.act import move_tasks
from vmqos.agent.act.control_groups import ControlGroups
from vmqos.agent.early_start import EarlyStart
from vmqos.agent.loop import Agent
from vmqos.agent.observe import flavor_request, running_vms
from vmqos.agent.observe.lost_vms import Lost, LostVms
from vmqos.agent.steps.act import ActStep
from vmqos.allocation import PromiseState, WriteMasks
from vmqos.hypervisor.connection import Connection

Patch = pytest.MonkeyPatch


def the_default_group_is_not_shrunk(patch: Patch) -> None:
    real = ControlGroups.execute

    def execute(self: Any, steps: Any) -> Any:
        return real(self, [step for step in steps if not (isinstance(step, WriteMasks) and not step.group)])

    patch.setattr(ControlGroups, "execute", execute)


def who_grows_comes_before_who_shrinks(patch: Patch) -> None:
    real = ControlGroups.execute

    def execute(self: Any, steps: Any) -> Any:
        masks = [step for step in steps if isinstance(step, WriteMasks)]
        others = [step for step in steps if not isinstance(step, WriteMasks)]
        return real(self, [*others, *reversed(masks)])

    patch.setattr(ControlGroups, "execute", execute)


def tasks_are_moved_to_some_other_vm(patch: Patch) -> None:
    real = move_tasks._move

    def move(filesystem: Any, target: Any, tids: Any) -> frozenset[int]:
        ours = [name for name in filesystem.directories() if name.startswith(PREFIX)]
        others = [name for name in ours if name != target.control and not name.startswith(CLASS_PREFIX)]
        return real(filesystem, move_tasks.TaskGroup(others[0]) if others and target.control else target, tids)

    patch.setattr(move_tasks, "_move", move)


def groups_are_left(patch: Patch) -> None:
    patch.setattr(ControlGroups, "retire", lambda self, plan, in_force: True)


def events_are_not_heard(patch: Patch) -> None:
    patch.setattr(Agent, "_on_change", lambda self, uuid: None)


def what_a_vm_has_is_taken_for_what_it_was_promised(patch: Patch) -> None:
    real = ActStep._note_successes

    def note(self: ActStep, planned: Any, *given: Any) -> None:
        # The time to try again comes between the plan and this.
        waiting = frozenset(uuid for uuid in planned.waiting if self.backoff.waits(uuid))
        real(self, dataclasses.replace(planned, waiting=waiting), *given)

    patch.setattr(ActStep, "_note_successes", note)


def every_promise_is_told_to_be_kept(patch: Patch) -> None:
    real = agents_judge.judge

    def judge(*given: Any) -> Any:
        return dataclasses.replace(real(*given), state=PromiseState.KEPT)

    patch.setattr(agents_judge, "judge", judge)


def a_flavor_breaks_the_agent(patch: Patch) -> None:
    def read(vm: Any, found: Any = None) -> Any:
        raise KeyError("a fault of ours")

    patch.setattr(flavor_request, "read", read)


def a_start_breaks_the_agent(patch: Patch) -> None:
    def record(self: EarlyStart, starting: Any) -> Any:
        raise KeyError("a fault of ours")

    patch.setattr(EarlyStart, "_record", record)


def a_start_is_taken_for_one_on_other_cpus(patch: Patch) -> None:
    real = early_start._cpus

    def cpus(text: str, every: frozenset[int]) -> frozenset[int]:
        return every - real(text, every) or every

    patch.setattr(early_start, "_cpus", cpus)


def a_vm_that_comes_is_moved_before_its_memory(patch: Patch) -> None:
    real = EarlyStart._move

    def move(self: EarlyStart, starting: Any) -> None:
        self._leaves_incoming = False
        real(self, starting)

    patch.setattr(EarlyStart, "_move", move)


def a_vm_that_migrates_is_given_up(patch: Patch) -> None:
    """As if libvirt's having a job on it were its end. This takes libvirtd, so no story within one process has it."""
    real, migrating = running_vms.lives, set[str]()

    def list_running(self: Connection) -> dict[str, int]:
        def ask(connection: Any) -> dict[str, int]:
            domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            migrating.clear()
            migrating.update(one.UUIDString() for one in domains if one.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE)
            return {one.UUIDString(): one.ID() for one in domains if one.UUIDString() not in migrating}

        return self._call("virConnectListAllDomains", ask)

    patch.setattr(Connection, "list_running", list_running)
    patch.setattr(running_vms, "lives", lambda vm: vm.uuid not in migrating and real(vm))
    patch.setattr(LostVms, "look", lambda self, *given, **named: Lost())


def a_vm_is_thrown_out_of_its_group(patch: Patch) -> None:
    patch.setattr(agents_judge, "still_in", lambda now, plan, uuid, last, given: given)


FAULTS: Mapping[Callable[[Patch], None], Kind] = {
    the_default_group_is_not_shrunk: Kind.OVERLAP,
    who_grows_comes_before_who_shrinks: Kind.OVERLAP,
    tasks_are_moved_to_some_other_vm: Kind.OVERLAP,
    groups_are_left: Kind.LEAK,
    events_are_not_heard: Kind.UNSERVED,
    every_promise_is_told_to_be_kept: Kind.WORD,
    a_flavor_breaks_the_agent: Kind.FAULT,
    a_start_breaks_the_agent: Kind.FAULT,
    a_start_is_taken_for_one_on_other_cpus: Kind.OVERLAP,
    a_vm_that_comes_is_moved_before_its_memory: Kind.OVERLAP,
}
