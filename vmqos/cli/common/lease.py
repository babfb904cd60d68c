# SPDX-License-Identifier: Apache-2.0
"""Having something tried on a VM for as long as this process asks for it.

The agent does what is to be done, and undoes it when nobody has asked for some seconds (``agent.trial``). So whatever
ends this process, everything is as before soon after.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vmqos.cli import exceptions
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused, LocalApiError
from vmqos.version import version

PAUSE = 0.5
"""Seconds between two questions to the agent: a tenth of what it waits for one."""
PATIENCE = 10.0
"""Seconds that a trial takes to be in force, and to be undone, at most."""
ANSWER_TIME = 3.0
"""Seconds to wait for each answer during a trial."""

_WRONG_QUESTION = 400
_NO_SUCH_METHOD = 405


@dataclass(frozen=True, slots=True)
class Lease:
    """A trial on a VM.

    :ivar key: its name, which no other trial has.
    """

    client: AgentClient
    uuid: str
    key: str

    def begin(self, spec: str, *, may_fill_fewer: bool = False, confine: bool = False) -> contract.Trial:
        """Begin the trial, or its next step, and wait until it is in force.

        :param spec: what is tried, as an extra spec.
        :param may_fill_fewer: whether a VM that is promised no ways may have fewer to fill than it fills now.
        :param confine: whether the ways are to keep the VM from those that others fill.
        :raises vmqos.local_api.exceptions.AgentRefused: if it can't be; what was tried before goes on.
        :raises vmqos.cli.exceptions.AgentOfAnotherVersion: if it can't be, and an older agent may be why.
        :raises vmqos.cli.exceptions.TrialLost: if it ends before its time.
        """
        try:
            self.client.begin_trial(self.uuid, self.key, spec, may_fill_fewer=may_fill_fewer, confine=confine)
        except AgentRefused as error:
            status = error.values.get("status")
            if status == _NO_SUCH_METHOD:
                raise exceptions.NoTrials() from error
            if status == _WRONG_QUESTION and (agent := self.client.health()["version"]) != version():
                told = neutralise(agent)
                raise exceptions.AgentOfAnotherVersion(agent=told, command=version(), problem=error) from error
            raise
        running, deadline = self.renew(), time.monotonic() + PATIENCE
        while not running["in_force"]:
            if time.monotonic() > deadline:
                raise exceptions.TrialLost(
                    problem=f"{spec} is not in force after {PATIENCE:g} s", state="it is given back"
                )
            time.sleep(PAUSE / 5)
            running = self.renew()
        return running

    def left(self) -> float:
        """Renew the trial, and return the bytes that the VM still has where it was; NaN where nothing counts them.

        :raises vmqos.cli.exceptions.TrialLost: if it ended before its time.
        """
        left = self._renewed().get("left_bytes")
        return math.nan if left is None else float(left)

    def renew(self) -> contract.Trial:
        """Ask for the trial again.

        :raises vmqos.cli.exceptions.TrialLost: if it ended before its time.
        """
        running = self._renewed()["trial"]
        if running is None:
            raise exceptions.TrialLost(problem="it is over", state="the agent puts everything back")
        return running

    def _renewed(self) -> contract.RunningTrial:
        """Ask for the trial again.

        :raises vmqos.cli.exceptions.TrialLost: if it ended before its time.
        """
        try:
            return self.client.renew_trial(self.uuid, self.key)
        except AgentRefused as error:
            raise exceptions.TrialLost(problem=error, state="the agent puts everything back") from error
        except LocalApiError as error:
            state = "an agent that starts puts everything back, and one that hangs does when it goes on"
            raise exceptions.TrialLost(problem=error, state=state) from error


@contextlib.contextmanager
def lease(
    client: AgentClient, vm: contract.Vm, has: Callable[[contract.Vm], object], told: Callable[[contract.Vm], str]
) -> Iterator[Lease]:
    """Have something tried on a VM while the block runs; it is given back however the block ends.

    :param vm: the VM, as the agent told it before the trial.
    :param has: what the VM has to have again at the end.
    :param told: what it has, for people.
    :raises vmqos.cli.exceptions.NotPutBack: if the VM does not have again what it had.
    """
    held = Lease(replace(client, timeout=ANSWER_TIME), vm["uuid"], secrets.token_hex(16))
    try:
        yield held
    finally:
        # Where the agent is away, or has ended the trial itself, there is nothing to give back.
        with contextlib.suppress(LocalApiError):
            held.client.end_trial(held.uuid, held.key)
    _wait_until_it_is_as_before(held.client, vm, has, told)


def _wait_until_it_is_as_before(
    client: AgentClient,
    before: contract.Vm,
    has: Callable[[contract.Vm], object],
    told: Callable[[contract.Vm], str],
) -> None:
    deadline, problem = time.monotonic() + PATIENCE, ""
    while time.monotonic() < deadline:
        try:
            found = {vm["uuid"]: vm for vm in client.vms()}.get(before["uuid"])
        except LocalApiError as error:
            problem = str(error)
        else:
            # A VM that was started again meanwhile has nothing of the trial.
            if found is None or found["pid"] != before["pid"] or has(found) == has(before):
                return
            problem = told(found)
        time.sleep(PAUSE / 5)
    raise exceptions.NotPutBack(vm=display_name(before), problem=problem)
