# SPDX-License-Identifier: Apache-2.0
"""Having Nova give nothing more of a provider, while servers keep what they hold of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from vmqos.openstack import exceptions
from vmqos.openstack.placement import Conflict, Placement, Provider
from vmqos.openstack.provider_sync import ATTEMPTS, LONGEST_PAUSE


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A provider that gives nothing more.

    :ivar provider: its name.
    :ivar reserved: how much was reserved that could be had before, by resource class; empty where nothing could.
    :ivar traits: the traits that it lost.
    :ivar used: how much servers still hold, by resource class.
    """

    provider: str
    reserved: dict[str, int]
    traits: frozenset[str]
    used: dict[str, int]

    @property
    def changed(self) -> bool:
        """Whether anything had to be changed."""
        return bool(self.reserved or self.traits)


def withdraw(
    placement: Placement,
    name: str,
    is_ours: Callable[[str], bool],
    traits: frozenset[str],
    *,
    dry_run: bool = False,
) -> Withdrawn | None:
    """Reserve all of a provider's inventories that are ours, and take our traits from it.

    The totals and units stay. Placement checks what a consumer holds against ``max_unit`` whenever Nova writes it anew
    (``_check_capacity_exceeded`` in placement.objects.allocation), so a lower one would keep Nova from moving a server
    away from the host.

    :param name: the name of the provider.
    :param is_ours: whether a resource class is ours.
    :param traits: the traits that are ours.
    :param dry_run: whether to write nothing.
    :returns: what was done; ``None`` where there is no such provider.
    :raises vmqos.openstack.exceptions.CloudError: if Placement does not answer, or refuses.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, LONGEST_PAUSE))
        provider = placement.find(name)
        if provider is None:
            return None
        try:
            return _attempt(placement, provider, is_ours, traits, dry_run)
        except Conflict:
            continue
    raise exceptions.StillConflicting(name, ATTEMPTS)


def _attempt(
    placement: Placement, provider: Provider, is_ours: Callable[[str], bool], traits: frozenset[str], dry_run: bool
) -> Withdrawn:
    generation, inventories = placement.inventories(provider)
    left = {name: found for name, found in inventories.items() if is_ours(name) and found.reserved < found.total}
    if left and not dry_run:
        reserved = {name: replace(found, reserved=found.total) for name, found in left.items()}
        placement.set_inventories(provider, generation, {**inventories, **reserved})
    generation, tagged = placement.traits(provider)
    if tagged & traits and not dry_run:
        placement.set_traits(provider, generation, tagged - traits)
    used = {name: amount for name, amount in placement.usages(provider).items() if is_ours(name) and amount}
    given = {name: found.capacity for name, found in left.items()}
    return Withdrawn(provider.name, given, tagged & traits, used)
