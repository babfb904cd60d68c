# SPDX-License-Identifier: Apache-2.0
"""What a flavor demands of a host."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vmqos.openstack import extra_specs
from vmqos.openstack.extra_specs import resources


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

    :ivar amount: what is counted; nothing, for a shared promise.
    :ivar traits: what the host must be able to do besides.
    :ivar placement: whether the flavor asks Placement for all of the amount, so that Placement counts.
    """

    amount: Amount
    traits: frozenset[str]
    placement: bool


def of_flavor(specs: Mapping[str, str]) -> Demand | None:
    """The demand of a flavor; ``None`` where it promises nothing.

    :raises vmqos.openstack.extra_specs.InvalidExtraSpecs: if its promise can't be kept anywhere.
    """
    request = extra_specs.parse_strict(specs)
    if request is None:
        return None
    taken = resources.requested(request)
    asked = resources.asked(specs)
    covered = bool(taken) and all(asked.get(name, 0) >= wanted for name, wanted in taken.items())
    return Demand(_amount(taken), resources.required_traits(request), covered)


def taken_by(specs: Mapping[str, str]) -> Amount:
    """What a server of such a flavor takes of the host that it is on; nothing where its extra specs are wrong."""
    return _taken(frozenset(specs.items())) if specs else NOTHING


@functools.lru_cache(maxsize=4096)
def _taken(specs: frozenset[tuple[str, str]]) -> Amount:
    """The servers of a cloud are many, and their flavors few."""
    return _amount(resources.requested(extra_specs.parse(dict(specs)).request))


def _amount(taken: Mapping[str, int]) -> Amount:
    return Amount(taken.get(resources.LLC_WAYS, 0), taken.get(resources.LLC_CLASSES, 0))
