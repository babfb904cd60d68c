# SPDX-License-Identifier: Apache-2.0
"""A story: what happens in a guest, from a seed; and playing it."""

from __future__ import annotations

import itertools
import os
import random
import time
from dataclasses import dataclass

from tests.campaign.trouble.story import Outcome
from tests.kernel.agent.trouble.events import EVENTS, Event
from tests.kernel.agent.trouble.stage import Stage

SEED = int(os.environ.get("VMQOS_TROUBLE_SEED", "1"))
"""Of the first story; that of the next one is one more."""
STORIES = int(os.environ.get("VMQOS_TROUBLE_STORIES", "4"))
ONLY = os.environ.get("VMQOS_TROUBLE_ONLY", "")
"""The numbers of the events that happen, such as ``0,3,5``; all where empty."""

BYSTANDER = {"hw:cache_ways": "2"}
"""What a VM asks for to which nothing happens: its promise can be broken at any time."""
BEGINNING = (Event("start", 0, 1, 0), Event("start", 0, 3, 0))
"""With what each story begins."""
EVENTS_OF_A_STORY = 12
BETWEEN_TWO_QUIETS = 4
"""Events, from one quiet moment to the next; the first one comes after the beginning."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happens in one guest.

    :ivar guest: its machine and kernel, such as ``cascade-lake-6.12``.
    """

    guest: str
    seed: int

    def events(self) -> list[tuple[int, Event]]:
        """The events, with their numbers."""
        luck = random.Random(self.seed)
        names, weights = list(EVENTS), [entry.weight for entry in EVENTS.values()]
        every = list(BEGINNING)
        for name in luck.choices(names, weights, k=EVENTS_OF_A_STORY):
            every.append(Event(name, luck.randrange(10080), luck.randrange(10080), luck.randrange(10080)))
        chosen = set(map(int, ONLY.split(","))) if ONLY else range(len(every))
        return [(number, event) for number, event in enumerate(every) if number in chosen]

    @property
    def command(self) -> str:
        """What plays it again, as root."""
        settings = f"VMQOS_TROUBLE_SEED={self.seed} VMQOS_TROUBLE_STORIES=1"
        settings += f" VMQOS_TROUBLE_ONLY={ONLY}" if ONLY else ""
        return f"{settings} python -m pytest tests/kernel/agent/trouble/test_trouble.py -k {self.guest}"


def play(story: Story, stage: Stage) -> Outcome:
    """Let everything happen; the first violation ends the story."""
    began = time.monotonic()
    stage.start_vm(BYSTANDER)
    for _, part in itertools.groupby(story.events(), lambda numbered: _part(numbered[0])):
        for number, event in part:
            print(f"{time.monotonic() - began:6.1f} s {number:3} {event}")
            event.happen(stage)
            stage.outcome.events += 1
            if stage.violations():
                return stage.verdict()
        stage.be_quiet()
        if stage.violations():
            break
    return stage.verdict()


def _part(number: int) -> int:
    """Which part of a story an event is in: there is a quiet moment after each, whichever events are left out."""
    return (number - len(BEGINNING)) // BETWEEN_TWO_QUIETS


def told(story: Story, outcome: Outcome) -> str:
    """A story that failed, for people: what was wrong, and how to play it again."""
    return "\n".join([*map(str, outcome.violations[:5]), f"play it again: {story.command}"])
