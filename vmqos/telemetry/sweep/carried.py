# SPDX-License-Identifier: Apache-2.0
"""What a group's traffic counters had counted before hardware counters were taken from it: the next ones begin at 0.

VMs may take turns to have hardware counters (:mod:`vmqos.agent.act.mbm_counters`). What they moved while they had none
is in no counter, and here it is not made up: a VM's bytes are those that were counted in its turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.resctrl.monitoring import Missing, Value

Carried = Mapping[int, int | float]
"""The bytes that earlier hardware counters had counted, by the counter's position among the group's values; less than
0 where the bytes are told from a later moment on."""

NOTHING: Carried = {}


def carry(carried: Carried, before: Sequence[Value], now: Sequence[Value], positions: Sequence[int]) -> Carried:
    """What is to be added to the values of this sweep and later ones; the same object where nothing changed.

    :param carried: what was added before.
    :param before: the group's values in the sweep before.
    :param now: those of this sweep.
    :param positions: the traffic counters among them.
    """
    found = dict(carried)
    for at in positions:
        was, value = before[at], now[at]
        if isinstance(was, Missing):
            continue
        # A turn that passed between two sweeps shows as a counter that is less than it was.
        began_anew = at in carried and not isinstance(value, Missing) and value < was
        if value is Missing.UNASSIGNED or began_anew:
            found[at] = found.get(at, 0) + was
    return carried if found == carried else found


def begin(now: Sequence[Value], positions: Sequence[int]) -> Carried:
    """What has the traffic counters begin at 0 with this sweep."""
    return {at: -value for at in positions if not isinstance(value := now[at], Missing)}


def more(carried: Carried, then: Carried, now: Carried) -> Carried:
    """What is carried to the default group, after what is carried to a VM in it became more.

    :param then: what was carried to the VM before.
    """
    return {**carried, **{at: carried.get(at, 0) + count - then.get(at, 0) for at, count in now.items()}}


def add(values: Sequence[Value], carried: Carried) -> Sequence[Value]:
    """The values with what was carried to them; one that is missing stays so."""
    if not carried:
        return values
    found = list(values)
    for at, before in carried.items():
        value = found[at]
        if not isinstance(value, Missing):
            found[at] = value + before
    return found
