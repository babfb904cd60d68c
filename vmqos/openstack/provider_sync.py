# SPDX-License-Identifier: Apache-2.0
"""Bringing one child provider in Placement to what it should be, by as few requests as that takes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from vmqos.openstack import exceptions
from vmqos.openstack.placement import Conflict, Inventory, Placement, Provider

LOG = logging.getLogger(__name__)

ATTEMPTS = 6
"""How often the provider is read and changed anew when others change it at the same time."""

LONGEST_PAUSE = 0.2
"""Seconds before such an attempt, at most: a random part of them, lest two go on in step."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The provider as it should be.

    :ivar compute_node: the name of the root provider that it is a child of.
    :ivar name: its own name.
    :ivar inventories: by resource class; others that it has are left to it.
    :ivar traits: the traits that it has.
    :ivar known_traits: the traits that are ours; others that it has are left to it.
    :ivar withdrawn_prefix: how the names of those resource classes begin of which the provider gives no more where they
        are not among ``inventories``; empty for none. They stay, all reserved, because servers may hold them.
    """

    compute_node: str
    name: str
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]
    known_traits: frozenset[str]
    withdrawn_prefix: str = ""

    def told(self, there: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """All inventories as they should be.

        :param there: as they are.
        """
        gone = [name for name in there if self.withdrawn_prefix and name.startswith(self.withdrawn_prefix)]
        return {**there, **{name: Inventory(total=1, reserved=1) for name in gone}, **self.inventories}


@dataclass(frozen=True, slots=True)
class Synced:
    """The provider as it was left.

    :ivar wanted: what it was brought to.
    :ivar changed: whether that took any change.
    :ivar overdrawn: how much is allocated beyond what there is, by resource class.
    :ivar widened: the resource classes whose ``max_unit`` is greater than wanted, because a consumer holds more.
    :ivar left: our inventories as they were left.
    :ivar changed_by_other: what another client had changed of what the last call left, as a clause; empty for nothing.
    """

    provider: Provider
    wanted: Wanted
    changed: bool
    overdrawn: Mapping[str, int] = field(default_factory=dict)
    widened: frozenset[str] = frozenset()
    left: Mapping[str, Inventory] = field(default_factory=dict)
    changed_by_other: str = ""


def synchronize(placement: Placement, wanted: Wanted, last: Synced | None = None) -> Synced:
    """Make the provider, or change it, where it is not what it should be.

    :param last: what the last call returned. If nothing has happened to the provider since, one request finds it out.
    :raises vmqos.openstack.exceptions.CloudError: if Placement does not answer, or refuses.
    """
    before = last
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, LONGEST_PAUSE))
        try:
            return _attempt(placement, wanted, last, before)
        except Conflict:
            last = None
            if before is not None:
                # An attempt may have written a part. What is there is not what was left, then, and says nothing.
                before = replace(before, left={})
    raise exceptions.StillConflicting(wanted.name, ATTEMPTS)


def _attempt(placement: Placement, wanted: Wanted, last: Synced | None, before: Synced | None) -> Synced:
    provider = placement.find(wanted.name)
    # Allocations that go leave the generation as it is.
    is_settled = last is not None and not last.overdrawn and not last.widened
    if last is not None and is_settled and (last.provider, last.wanted) == (provider, wanted):
        return replace(last, changed=False, changed_by_other="")
    provider, changed = _in_place(placement, wanted, provider)
    generation, inventories = placement.inventories(provider)
    by_other = _changed_by_other(before, provider, inventories)
    due = wanted.told(inventories)
    told = _widened(placement, provider, inventories, due)
    if told != inventories:
        for name in sorted(told.keys() - inventories.keys()):
            placement.ensure_class(name)
        generation = placement.set_inventories(provider, generation, told)
        changed = True
        LOG.info("Placement has it that %s gives %s", provider.name, _described(told))
    later, traits = placement.traits(provider)
    if later != generation:
        # The inventories may not be what was read or written above. They would be taken for settled.
        raise Conflict
    marked = traits - wanted.known_traits | wanted.traits
    if marked != traits:
        for name in sorted(marked - traits):
            placement.ensure_trait(name)
        generation = placement.set_traits(provider, generation, marked)
        changed = True
    overdrawn = {
        name: used - told[name].capacity
        for name, used in placement.usages(provider).items()
        if name in wanted.inventories and used > told[name].capacity
    }
    for name, excess in overdrawn.items() if last is None or overdrawn != last.overdrawn else ():
        LOG.warning(
            "%s of %s is allocated to more than there is, by %d: no further VM gets any of it, and some that run may "
            "be pending",
            name,
            provider.name,
            excess,
        )
    widened = frozenset(name for name in told if told[name] != due[name])
    ours = {name: told[name] for name in wanted.inventories}
    return Synced(replace(provider, generation=generation), wanted, changed, overdrawn, widened, ours, by_other)


def _changed_by_other(before: Synced | None, provider: Provider, there: Mapping[str, Inventory]) -> str:
    """What another client changed of our inventories since they were left; empty for nothing, or if all are reserved.

    A provider has nothing that tells who wrote it: its generation rises with each allocation, too. So it is told by
    what stands there. ``vmqos placement withdraw`` reserves all of it, and is none of these.

    :param there: the inventories as they are.
    """
    if before is None or before.provider.uuid != provider.uuid:
        return ""
    if all(name in there and there[name].reserved >= there[name].total for name in before.left):
        return ""
    parts = []
    for name, left in sorted(before.left.items()):
        found = there.get(name)
        if found is None:
            parts.append(f"{name} is gone")
        elif found != left:
            differing = [one.name for one in fields(left) if getattr(left, one.name) != getattr(found, one.name)]
            told = ", ".join(f"{one} {getattr(left, one)} is {getattr(found, one)} now" for one in differing)
            parts.append(f"of {name} {told}")
    return "; ".join(parts)


def _widened(
    placement: Placement, provider: Provider, there: Mapping[str, Inventory], due: Mapping[str, Inventory]
) -> dict[str, Inventory]:
    """The inventories with no ``max_unit`` below what a consumer holds.

    Placement checks what a consumer holds against ``max_unit`` whenever Nova writes it anew
    (``_check_capacity_exceeded`` in placement.objects.allocation), so a lower one would keep Nova from moving that
    server to another host. Consumers are asked for only where a ``max_unit`` is to be lowered.

    :param there: the inventories as they are.
    :param due: the inventories as they should be.
    """
    lowered = [name for name in there if due[name].max_unit < there[name].max_unit]
    found = dict(due)
    claims = placement.claims(provider) if lowered else ()
    for name in lowered:
        most = max((amounts.get(name, 0) for amounts in claims), default=0)
        found[name] = replace(due[name], max_unit=max(due[name].max_unit, most))
    return found


def _in_place(placement: Placement, wanted: Wanted, provider: Provider | None) -> tuple[Provider, bool]:
    """The provider under the compute node's own, and whether it had to be made or moved."""
    root = placement.find(wanted.compute_node)
    if root is None:
        raise exceptions.NoComputeNode(wanted.compute_node)
    if provider is None:
        # The compute node may have had another name: a second provider would have each way counted twice.
        suffix = wanted.name.removeprefix(wanted.compute_node)
        former = next((child for child in placement.children(root) if child.name.endswith(suffix)), None)
        if former is not None:
            LOG.warning("the resource provider %s is given the name %s", former.name, wanted.name)
            return placement.move(former, root.uuid, wanted.name), True
        LOG.info("make the resource provider %s under %s", wanted.name, wanted.compute_node)
        return placement.create(wanted.name, root.uuid), True
    if provider.parent != root.uuid:
        LOG.warning("the resource provider %s is put under %s", wanted.name, wanted.compute_node)
        return placement.move(provider, root.uuid), True
    return provider, False


def _described(inventories: Mapping[str, Inventory]) -> str:
    return ", ".join(f"{name}={inventory.capacity}" for name, inventory in sorted(inventories.items())) or "nothing"
