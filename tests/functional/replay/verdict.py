# SPDX-License-Identifier: Apache-2.0
"""Where the simulator's answers agree with a recording, where they may differ, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.functional.replay.recording import Record


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was recorded and came out differently.

    :ivar record: the whole record.
    :ivar what: which part of it: ``errno``, ``ret``, ``last_cmd_status``, ``content``, ``after PATH`` …
    :ivar recorded: the recorded value, task ids already replaced by those of the stand-ins.
    :ivar ours: the simulator's.
    """

    record: Record
    what: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        record = self.record
        data = f" {record['data']!r:.60}" if "data" in record else ""
        note = f" # {record['note']}" if record.get("note") else ""
        return (
            f"{record.get('n')} [{record['sec']}] {record['op']} {record.get('path', '')!r}{data}{note}\n"
            f"    {self.what}: recorded {self.recorded!r}\n    {' ' * len(self.what)}  ours     {self.ours!r}"
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of difference that does not tell against the simulator.

    :ivar name: a few words for the summary.
    :ivar why: the reason, for people.
    :ivar covers: whether a difference is of this kind.
    """

    name: str
    why: str
    covers: Callable[[Difference], bool]


@dataclass(slots=True)
class Tally:
    """What came of the records of one section."""

    agreed: int = 0
    excepted: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def take(self, differences: list[Difference], rules: tuple[Rule, ...]) -> None:
        """Count one record by the differences it showed."""
        told = []
        for difference in differences:
            rule = next((rule for rule in rules if rule.covers(difference)), None)
            if rule is None:
                self.differences.append(difference)
            told.append(rule)
        if not told:
            self.agreed += 1
        elif None not in told:
            self.excepted.update({rule.name for rule in told if rule is not None})


def summary(name: str, tallies: dict[str, Tally]) -> str:
    """A table of a recording's sections."""
    lines = [f"{name}: {'section':18} agree  except  unjudged  differ"]
    for section, tally in tallies.items():
        excepted, unjudged = sum(tally.excepted.values()), sum(tally.unjudged.values())
        reasons = ", ".join(f"{reason}: {count}" for reason, count in (tally.excepted + tally.unjudged).items())
        lines.append(
            f"{name}: {section:18} {tally.agreed:5} {excepted:7} {unjudged:9} {len(tally.differences):7}"
            + (f"  ({reasons})" if reasons else "")
        )
    totals = [sum(tally.agreed for tally in tallies.values())]
    totals.append(sum(sum(tally.excepted.values()) for tally in tallies.values()))
    totals.append(sum(sum(tally.unjudged.values()) for tally in tallies.values()))
    totals.append(sum(len(tally.differences) for tally in tallies.values()))
    lines.append(f"{name}: {'all':18} {totals[0]:5} {totals[1]:7} {totals[2]:9} {totals[3]:7}")
    return "\n".join(lines)
