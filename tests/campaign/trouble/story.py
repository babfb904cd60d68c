# SPDX-License-Identifier: Apache-2.0
"""A story: what happens to one host, from a seed; playing it, and finding the shortest part of it that fails."""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.campaign.trouble.events import EVENTS, Event
from tests.campaign.trouble.host import Host
from tests.campaign.trouble.judge import Judge
from tests.campaign.trouble.killing import Killer
from tests.campaign.trouble.quiet_host import STEP
from tests.campaign.trouble.verdicts import Violation
from vmqos.conf.libvirt import DEFAULT_GROUP, OWN_WAYS

LOG = logging.getLogger(__name__)

EVENTS_OF_A_STORY = 60
BETWEEN_TWO_QUIETS = 12
"""Events, from one quiet moment to the next."""
EVENT_TAKES = 0.05
"""Seconds of the host's clock that pass with each event, so that some time to try again comes between two of them."""
QUIET = 1.0
"""Seconds of quiet after which every VM must be served."""
QUIET_COMES = Event("quiet", 0, 0, 0)
PARTS = (16, 8, 4, 2, 1)
"""Events that the search leaves out at once, to find the shortest part of a story that fails."""

MACHINES = {
    "cascade-lake": ("cascade-lake", ""),
    "broadwell-cdp": ("broadwell", "cdp"),
    "sapphire-rapids": ("sapphire-rapids", ""),
    "milan": ("milan", ""),
    "minimal": ("minimal", ""),
}
"""The machines on which stories are played: the simulator's profile, and the options of the mount."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to one host.

    :ivar machine: one of :data:`MACHINES`.
    :ivar only: the numbers of the events that happen; ``None``: all.
    """

    machine: str
    seed: int
    only: tuple[int, ...] | None = None

    def events(self) -> list[tuple[int, Event]]:
        """The events, with their numbers."""
        luck = random.Random(f"{self.machine} {self.seed}")
        names, weights = list(EVENTS), [entry.weight for entry in EVENTS.values()]
        every = list[Event]()
        for name in luck.choices(names, weights, k=EVENTS_OF_A_STORY):
            every.append(Event(name, luck.randrange(10080), luck.randrange(10080), luck.randrange(10080)))
            if len(every) % BETWEEN_TWO_QUIETS == 0:
                every.append(QUIET_COMES)
        return [(number, event) for number, event in enumerate(every) if self.only is None or number in self.only]

    @property
    def incoming_memory(self) -> str:
        """``[libvirt] incoming_memory`` of the agent's."""
        return random.Random(f"{self.machine} {self.seed} incoming").choice((OWN_WAYS, DEFAULT_GROUP))

    @property
    def command(self) -> str:
        """What plays it again."""
        only = "" if self.only is None else f" --only {','.join(map(str, self.only))}"
        return f"python -m tests.campaign.trouble --machine {self.machine} --seed {self.seed}{only}"


@dataclass
class Outcome:
    """What came of one story, or of many.

    :ivar violations: what was wrong, of all stories.
    :ivar places: the places in the agent's code where it was killed.
    :ivar longest: the longest that it took after all was quiet until all was settled, in seconds.
    """

    stories: int = 0
    events: int = 0
    kills: int = 0
    writes: int = 0
    passes: int = 0
    quiets: int = 0
    longest: float = 0.0
    places: set[str] = field(default_factory=set)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add what came of another story."""
        for name in ("stories", "events", "kills", "writes", "passes", "quiets"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.places |= other.places
        self.violations += other.violations


def play(story: Story) -> Outcome:
    """Let everything happen; the first violation ends the story."""
    try:
        return _play(story)
    except Exception as error:
        error.add_note(f"play it again: {story.command}")
        raise


def _play(story: Story) -> Outcome:
    killer, outcome = Killer(), Outcome(stories=1)
    profile, options = MACHINES[story.machine]
    with tempfile.TemporaryDirectory(prefix="vmqos-trouble-") as folder:
        host = Host(Path(folder), profile, options, killer, story.incoming_memory)
        try:
            judge = Judge(host)
            host.run(2)
            for number, event in story.events():
                LOG.info("%d %s", number, event)
                outcome.events += 1
                if event is QUIET_COMES:
                    be_quiet(host, judge, outcome)
                else:
                    event.happen(host)
                    host.let_pass(EVENT_TAKES)
                if judge.violations:
                    break
            else:
                be_quiet(host, judge, outcome)
            outcome.violations += judge.violations
            outcome.writes, outcome.passes = judge.writes, host.passes
        finally:
            host.close()
    outcome.kills, outcome.places = killer.kills, killer.places
    return outcome


def be_quiet(host: Host, judge: Judge, outcome: Outcome) -> None:
    """End all trouble; then everything must be settled within :data:`QUIET`.

    Time is what the agent waits for and the CPU time of its passes: a busy machine of the test's costs nothing, nor do
    looks that the machine has no CPU for.
    """
    host.calm()
    debt, host.debt = host.debt, 0.0
    host.let_pass(debt)
    took, left, rounds = 0.0, list[Violation](), 0
    while took <= QUIET:
        rounds += 1
        began = time.thread_time()
        host.run()
        took += time.thread_time() - began
        if judge.violations:
            return
        left = judge.unsettled()
        if not left:
            break
        took += STEP
        host.let_pass(STEP)
        host.let_looks_end()
    outcome.quiets += 1
    outcome.longest = max(outcome.longest, took)
    told = f"the agent after {rounds} passes and {took:.2f} s: {host.waiting()}"
    judge.violations += [replace(one, text=f"{one.text}; {told}") for one in left]


def shortest(story: Story, seconds: float = 120.0) -> Story:
    """The shortest part of a story that fails as the whole does, as far as the time suffices.

    :param seconds: how long to search.
    """
    until = time.monotonic() + seconds
    kinds = {violation.kind for violation in play(story).violations}
    kept = [number for number, _ in story.events()]
    for size in PARTS:
        start = 0
        while start < len(kept) and time.monotonic() < until:
            shorter = kept[:start] + kept[start + size :]
            if _fails(Story(story.machine, story.seed, tuple(shorter)), kinds):
                kept = shorter
            else:
                start += size
    return Story(story.machine, story.seed, tuple(kept))


def _fails(story: Story, kinds: Collection[object]) -> bool:
    return any(violation.kind in kinds for violation in play(story).violations)


def told(story: Story, outcome: Outcome) -> str:
    """A story that failed, for people: what was wrong, how to play it again, and what happened until then."""
    events = [f"  {number:3} {event}" for number, event in story.events()][: outcome.events]
    return "\n".join([*map(str, outcome.violations[:5]), f"play it again: {story.command}", *events])
