# SPDX-License-Identifier: Apache-2.0
"""Which VMs ``vmqos vm list`` lists. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import get_args

from vmqos.local_api import contract

STATES: tuple[str, ...] = get_args(contract.State)


def choose(vms: Iterable[contract.Vm], states: Collection[str], flavors: Collection[str]) -> list[contract.Vm]:
    """The VMs in one of these states and of one of these flavors, in the order given.

    :param states: any state if empty.
    :param flavors: whole names as the agent tells them; any flavor if empty.
    """
    return [vm for vm in vms if (not states or vm["state"] in states) and (not flavors or vm["flavor"] in flavors)]
