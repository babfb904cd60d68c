# SPDX-License-Identifier: Apache-2.0
"""Trying inputs while the witness looks on, and finding out which of them did harm."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.campaign.hostile import table
from tests.campaign.hostile.inputs import Family, Harm, Input, Late, Outcome, Refused, Result, in_force
from tests.campaign.hostile.stage import FULL_AUDIT, Stage
from tests.campaign.hostile.witness import WITHIN, Sight, Time, Witness

LOG = logging.getLogger(__name__)

RECOVERY = 10.0
"""Seconds in which the agent may recover from harm before the next input is tried; then it is started anew."""


@dataclass(slots=True)
class _Trial:
    """What one trial of some inputs showed.

    :ivar said: the evidence of those that were refused, and the harm that inputs saw themselves, by input.
    :ivar sights: harm that the witness saw, whichever input did it.
    """

    refused: dict[str, str] = field(default_factory=dict)
    harmed: dict[str, list[Sight]] = field(default_factory=dict)
    sights: list[Sight] = field(default_factory=list)

    @property
    def is_harmless(self) -> bool:
        return not self.harmed and not self.sights

    @property
    def is_only_late(self) -> bool:
        """Whether something took too long, and nothing else was wrong."""
        return bool(self.seen) and all(sight.is_late for sight in self.seen)

    @property
    def seen(self) -> list[Sight]:
        """Everything that must not be."""
        return [*(sight for sights in self.harmed.values() for sight in sights), *self.sights]


class Campaign:
    """Tries inputs on one stage, and keeps what came of them.

    :ivar outcomes: of all inputs so far.
    :ivar late_once: what took too long in a trial, and not when the same inputs were tried again.
    :ivar longest: the longest time of each operation of the witness in a trial without harm, and the inputs' names.
    """

    def __init__(self, stage: Stage, witness: Witness) -> None:
        self.stage = stage
        self.witness = witness
        self.outcomes: list[Outcome] = []
        self.late_once: list[str] = []
        self.longest: dict[str, tuple[Time, str]] = {}
        self._family: Family | None = None

    def try_batch(self, family: Family, inputs: Sequence[Input]) -> list[Outcome]:
        """Try these inputs at the same time, and, where harm was done, one by one; the result is what came of each."""
        if self._family is not family:
            self.stage.clear()
            self._family = family
        refused: dict[str, str] = {}
        blamed: dict[str, list[Sight]] = {}
        self._search(inputs, refused, blamed)
        outcomes = [self._outcome(family, one, blamed, refused) for one in inputs]
        self.outcomes.extend(outcomes)
        for one in outcomes:
            LOG.info("%s", table.described(one))
        return outcomes

    def _search(self, inputs: Sequence[Input], refused: dict[str, str], blamed: dict[str, list[Sight]]) -> None:
        """Try these inputs at the same time; if harm is done, search for the inputs that do it, half by half.

        Inputs that only make something late are tried once more. A machine of two CPUs has moments of its own, which do
        not come back; what an input does, it does again.
        """
        trial = self.trial(inputs)
        if trial.is_only_late:
            late, trial = trial, self.trial(inputs)
            if trial.is_harmless:
                self.late_once.append(f"{late.seen[0].what} ({', '.join(one.name for one in inputs)[:80]})")
        refused |= trial.refused
        for name, sights in trial.harmed.items():
            blamed.setdefault(name, []).extend(sights)
        if not trial.sights:
            return
        if len(inputs) == 1:
            blamed.setdefault(inputs[0].name, []).extend(trial.sights)
        else:
            middle = len(inputs) // 2
            for half in (inputs[:middle], inputs[middle:]):
                self._search(half, refused, blamed)
            if not any(blamed.get(one.name) for one in inputs):
                for one in inputs:
                    blamed[one.name] = [Sight(f"only together with others: {trial.sights[0].what}")]

    def _outcome(self, family: Family, one: Input, blamed: dict[str, list[Sight]], refused: dict[str, str]) -> Outcome:
        if blamed.get(one.name):
            evidence = "; ".join(dict.fromkeys(sight.what for sight in blamed[one.name]))
            return Outcome(family.name, one.name, one.attacker, Result.HARMED, evidence)
        if one.name in refused:
            return Outcome(family.name, one.name, one.attacker, Result.REFUSED, refused[one.name])
        return Outcome(family.name, one.name, one.attacker, Result.HARMLESS)

    def trial(self, inputs: Sequence[Input]) -> _Trial:
        """Hold all of these inputs in force while the witness resizes, starts and stops VMs."""
        began = time.monotonic()
        trial = _Trial()
        gauges = self.witness.usage.gauges()
        threads = sum(one.threads for one in inputs)
        rounds = 0
        looks_on = not any(one.stops_service for one in inputs)
        watch = None
        with contextlib.ExitStack() as stack:
            kernel_waits = max(one.kernel_waits for one in inputs)
            simulator_works = any(one.simulator_works for one in inputs)
            watch = stack.enter_context(self.witness.watching(kernel_waits, simulator_works)) if looks_on else None
            held = [(one, begun) for one in inputs if (begun := self._begin(one, trial)) is not None]
            in_force_since = time.monotonic()
            if watch is not None:
                watch.see_a_start()
                # The agent must have read the inputs' traces in full.
                time.sleep(max(0.0, in_force_since + FULL_AUDIT + 0.3 - time.monotonic()))
            if not any(one.may_touch_promises for one in inputs):
                trial.sights.extend(map(Sight, self.witness.broken()))
            for one, begun in reversed(held):
                self._end(one, begun, trial)
            if watch is not None:
                watch.end()
                trial.sights.extend(watch.sights)
                rounds = watch.rounds
        if dead := self._dead():
            trial.sights.append(Sight(f"{dead} has ended"))
        else:
            trial.sights.extend(map(Sight, self.witness.usage.excesses(gauges, rounds, len(inputs), threads)))
        names = ", ".join(one.name for one in inputs)
        LOG.info("tried %s in %.1f s", names, time.monotonic() - began)
        if watch is not None:
            seen = (f"{what} {each}" for what, each in watch.took.items())
            LOG.info("longest: %s", ", ".join(seen))
        if not trial.is_harmless:
            LOG.info("harm: %s", [*trial.harmed.items(), *trial.sights])
            self._recover()
            return trial
        if threads and self.witness.usage.memory_is_lost():
            # These threads were allowed to take it, and an interpreter gives back little: the next input is not blamed.
            self._recover()
        if watch is not None:
            for operation, time_ in watch.took.items():
                if operation not in self.longest or time_.took > self.longest[operation][0].took:
                    self.longest[operation] = (time_, names)
        return trial

    def _begin(self, one: Input, trial: _Trial) -> contextlib.AbstractContextManager[None] | None:
        """Have an input in force; ``None`` where it is over already."""
        begun, held = in_force(one.act, self.stage), True
        try:
            begun.__enter__()
        except Refused as refused:
            trial.refused[one.name] = str(refused)
            held = False
        except (Harm, TimeoutError) as harm:
            trial.harmed.setdefault(one.name, []).append(Sight(str(harm), isinstance(harm, Late)))
            return None
        if one.may_touch_promises:
            self._see_restored(one, trial)
        elif not one.stops_service and (broken := self.witness.broken()):
            trial.harmed.setdefault(one.name, []).extend(map(Sight, broken))
        return begun if held else None

    def _see_restored(self, one: Input, trial: _Trial) -> None:
        limit = self.witness.restore_limit
        try:
            took = self.witness.restored()
        except TimeoutError as error:
            trial.harmed.setdefault(one.name, []).append(Sight(str(error)))
            return
        if took > limit:
            text = f"what was promised was restored after {took:.1f} s, {limit:.1f} s are allowed"
            trial.harmed.setdefault(one.name, []).append(Sight(text, is_late=True))

    def _end(self, one: Input, begun: contextlib.AbstractContextManager[None], trial: _Trial) -> None:
        try:
            begun.__exit__(None, None, None)
        except Refused as refused:
            trial.refused[one.name] = str(refused)
        except (Harm, TimeoutError) as harm:
            trial.harmed.setdefault(one.name, []).append(Sight(str(harm), isinstance(harm, Late)))

    def _dead(self) -> str:
        """Which program has ended; empty where both live."""
        if self.stage.agent.pid is None:
            return "the agent"
        return "the gateway" if self.stage.agent.gateway.pid is None else ""

    def _recover(self) -> None:
        """See to it that the next input finds the witness's VMs served."""
        if not self._dead() and not self.witness.usage.memory_is_lost():
            until = time.monotonic() + RECOVERY
            while time.monotonic() < until:
                with contextlib.suppress(Exception):
                    if not self.witness.broken() and self.witness.resize() < WITHIN:
                        return
        self.stage.agent.end()
        self.stage.agent.start()
        with contextlib.suppress(Exception):
            self.stage.fetch("/metrics")
            self.witness.restored()
            self.witness.resize()
