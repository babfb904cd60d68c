# SPDX-License-Identifier: Apache-2.0
"""What a flavor demands of a host."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from vmqos import extra_specs
from vmqos.extra_specs import CacheRequest, resources


class Amount(NamedTuple):
    """What promises take of a host's provider.

    :ivar ways: exclusive ways on every L3.
    :ivar classes: control groups.
    """

    ways: int = 0
    classes: int = 0


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Demand:
    """What one server of a flavor needs of its host.

    :ivar request: the promise itself.
    :ivar taken: what it takes of the host's provider, by resource class.
    :ivar traits: the traits that the provider must have, as far as Placement was not asked for them.
    :ivar placement: whether the flavor asks Placement for all that is taken, so that Placement counts.
    """

    request: CacheRequest
    taken: Mapping[str, int]
    traits: frozenset[str]
    placement: bool

    @property
    def amount(self) -> Amount:
        """The ways and control groups that are the server's own; nothing, where a class serves it."""
        return _amount(self.taken)

    @property
    def shared_class(self) -> CacheRequest | None:
        """What the class grants that serves the server; ``None`` where it gets a control group of its own."""
        return resources.shared_class(self.request)

    @property
    def settled(self) -> bool:
        """Whether Placement's allocation candidates tell all that the filter needs."""
        return self.placement and not self.traits


class Taken(NamedTuple):
    """What a server takes of the host that it is on.

    :ivar amount: what is its own.
    :ivar shared_class: what the class grants that it shares with others; ``None`` where there is none.
    """

    amount: Amount = NOTHING
    shared_class: CacheRequest | None = None


NONE_TAKEN = Taken()


def of_flavor(specs: Mapping[str, str]) -> Demand | None:
    """The demand of a flavor; ``None`` where it promises nothing.

    :raises vmqos.extra_specs.InvalidExtraSpecs: if its promise can't be kept anywhere.
    """
    request = extra_specs.parse_strict(specs)
    if request is None:
        return None
    taken = resources.requested(request)
    asked = resources.asked(specs)
    covered = bool(taken) and all(asked.get(name, 0) >= wanted for name, wanted in taken.items())
    told = resources.required(specs) if covered else frozenset()
    if resources.LLC_WAYS in taken:
        # A provider that has ways to give has the trait.
        told |= {resources.L3_CAT}
    return Demand(request, taken, resources.required_traits(request) - told, covered)


def specs_of(flavor: Any) -> Mapping[str, str]:
    """The extra specs of a flavor of Nova's; none where its database has it without the field."""
    found: Mapping[str, str] = flavor.extra_specs if flavor.obj_attr_is_set("extra_specs") else {}
    return found


def taken_by(specs: Mapping[str, str]) -> Taken:
    """What a server of such a flavor takes of the host that it is on; nothing where its extra specs are wrong."""
    return _taken(frozenset(specs.items())) if specs else NONE_TAKEN


@functools.lru_cache(maxsize=4096)
def _taken(specs: frozenset[tuple[str, str]]) -> Taken:
    """The servers of a cloud are many, and their flavors few."""
    request = extra_specs.parse(dict(specs)).request
    if request is None:
        return NONE_TAKEN
    return Taken(_amount(resources.requested(request)), resources.shared_class(request))


def _amount(taken: Mapping[str, int]) -> Amount:
    return Amount(taken.get(resources.LLC_WAYS, 0), taken.get(resources.LLC_CLASSES, 0))
