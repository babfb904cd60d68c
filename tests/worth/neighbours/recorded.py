# SPDX-License-Identifier: Apache-2.0
"""What was counted of a mix in a guest, as text: another law can judge it, and the guest is not needed again."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tests.worth.native import Counters
from tests.worth.neighbours.machine import Run
from tests.worth.neighbours.mixes import Mix

Key = tuple[tuple[int, ...], bool]
"""Which run of a mix it is: the VMs that did nothing, in order, and whether the culprit did what it was planted for."""
WHOLE: Key = ((), True)


class NotRunError(Exception):
    """A run that a judgement needs was not made in the guest: what is accused now was not accused then."""

    def __init__(self, absent: Collection[int], planted: bool) -> None:
        super().__init__(f"no run without {sorted(absent)}" if absent else f"no run with planted={planted}")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The runs of a mix.

    :ivar runs: what the model of the caches counted in each; who lost how many lines to whom is not kept.
    :ivar seen: what the agent read in the whole one.
    """

    runs: Mapping[Key, Run]
    seen: Run

    def run(self, mix: Mix, absent: Collection[int] = (), planted: bool = True) -> Run:
        """One of the runs. See :class:`tests.worth.neighbours.machine.Runner`.

        :raises NotRunError: if it was not made.
        """
        found = self.runs.get((tuple(sorted(absent)), planted))
        if found is None:
            raise NotRunError(absent, planted)
        return found


def packed(recorded: Recorded) -> str:
    """As text: it goes through the console of the guest."""
    runs = [[absent, planted, _plain(run)] for (absent, planted), run in recorded.runs.items()]
    text = json.dumps({"runs": runs, "seen": _plain(recorded.seen)})
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> Recorded:
    """What was packed."""
    read: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return Recorded(
        {(tuple(absent), planted): _run(vms) for absent, planted, vms in read["runs"]},
        _run(read["seen"]),
    )


def _plain(run: Run) -> list[list[tuple[int, ...]]]:
    return [[astuple(second) for second in of] for of in run.vms]


def _run(vms: list[list[list[int]]]) -> Run:
    return Run([[Counters(*second) for second in of] for of in vms], {})
