# SPDX-License-Identifier: Apache-2.0
"""Which VMs ``vmqos vm list`` lists. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import get_args

from vmqos.cli.show.safe_text import neutralise
from vmqos.local_api import contract

STATES: tuple[str, ...] = get_args(contract.State)


def choose(vms: Iterable[contract.Vm], states: Collection[str], flavors: Collection[str]) -> list[contract.Vm]:
    """The VMs in one of these states and of one of these flavors, in the order given.

    :param states: any state if empty.
    :param flavors: whole names as the agent tells them; any flavor if empty.
    """
    return [vm for vm in vms if (not states or vm["state"] in states) and (not flavors or vm["flavor"] in flavors)]


def none_of(
    vms: Collection[contract.Vm], states: Collection[str], flavors: Collection[str], is_old: bool = False
) -> str:
    """A sentence for people where :func:`choose` finds none: for whom the list is empty.

    :param is_old: whether the agent does not look any more, or not yet, or could not look at a VM: it can't say then
        that no VM runs.
    """
    known = {vm["flavor"] for vm in vms}
    if not vms:
        return "No VM is known." if is_old else "No VM runs here."
    if flavors and known.isdisjoint(flavors):
        # A VM that Nova did not make has none.
        running = ", ".join(sorted(map(neutralise, filter(None, known))))
        others = f"the flavors that do are: {running}" if running else "no VM here has a flavor"
        return f"No VM of the flavor {_either(flavors)} runs here; {others}."
    of = f" of the flavor {_either(flavors)}" if flavors else ""
    return f"No running VM{of} is in the state {_either(states)}."


def _either(words: Collection[str]) -> str:
    return " or ".join(f"'{neutralise(word)}'" for word in words)
