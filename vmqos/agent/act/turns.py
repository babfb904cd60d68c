# SPDX-License-Identifier: Apache-2.0
"""Who is next where there is less of something than VMs that need it; pure.

The VMs stand in a line. Each turn serves those at its head, as many as there is room for, and they go to its end. So
with room for ``n`` of ``v`` VMs, each is served at least once in ``ceil(v / n)`` turns, whatever it was promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn.

    :ivar served: the UUIDs of the VMs whose turn it is.
    :ivar line: all VMs, in the order in which they are served from the next turn on.
    """

    served: frozenset[str]
    line: tuple[str, ...]


def line_up(line: Sequence[str], needs: Mapping[str, int]) -> tuple[str, ...]:
    """The line without the VMs that are gone, and with those that came at its end, in the order of ``needs``."""
    known = frozenset(line)
    return (*(uuid for uuid in line if uuid in needs), *(uuid for uuid in needs if uuid not in known))


def next_turn(line: Sequence[str], needs: Mapping[str, int], room: int) -> Turn:
    """Whose turn it is.

    A VM that needs more than is left lets others go first this time, and stays ahead of them in the line. One that
    needs more than there is at all is never served.

    :param line: the line that the last turn left.
    :param needs: how much each VM needs, 1 or more, by UUID.
    :param room: how much there is.
    """
    served = []
    waiting = []
    for uuid in line_up(line, needs):
        if needs[uuid] <= room:
            room -= needs[uuid]
            served.append(uuid)
        else:
            waiting.append(uuid)
    return Turn(frozenset(served), (*waiting, *served))
