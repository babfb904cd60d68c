# SPDX-License-Identifier: Apache-2.0
"""A flavor's extra specs: the promise, and what is asked of Placement for it, kept in step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vmqos import extra_specs
from vmqos.cli.flavor import request_groups
from vmqos.cli.show import units
from vmqos.extra_specs import L2_WAYS, CacheRequest, InvalidExtraSpecs, SpecError, cpu_spec, resources

_PINNED = (
    "allowed only where each vCPU that gets the ways is pinned: set hw:cpu_policy=dedicated; an image with "
    "hw_cpu_policy=dedicated would do that for its own servers alone"
)
_PCPU = re.compile(r"resources([1-9][0-9]*)?:PCPU")


@dataclass(frozen=True, slots=True)
class Edit:
    """How to change a flavor's extra specs.

    :ivar put: the extra specs to add or overwrite.
    :ivar drop: the keys to remove.
    """

    put: Mapping[str, str]
    drop: tuple[str, ...] = ()


def change(specs: Mapping[str, str], wanted: Mapping[str, str], *, placement: bool, vcpus: int) -> Edit:
    """Add to a promise, or overwrite it; the other keys stay.

    Placement is asked for what the promise takes, and that the provider which gives it has the traits that the promise
    needs. Without resources there are no traits: Placement takes a trait of a child provider into account only if that
    provider gives something to the same request group, so that such a flavor would fit nowhere.

    :param specs: the flavor's, as they are.
    :param wanted: extra specs of the grammar.
    :param placement: whether to ask Placement; if not, nothing is asked for.
    :param vcpus: how many vCPUs the flavor has.
    :raises vmqos.extra_specs.InvalidExtraSpecs: if the whole would not be a promise.
    """
    request = extra_specs.parse_strict({**specs, **wanted})
    asking: dict[str, str] = {}
    if request is not None:
        extra_specs.check_vcpus(request, vcpus)
        if placement:
            asking = resources.as_extra_specs(resources.requested(request))
            asking |= resources.as_required(resources.required_traits(request))
    put = {key: value for key, value in {**wanted, **asking}.items() if specs.get(key) != value}
    settled = resources.as_required(resources.PROMISED) if asking else resources.requiring(specs)
    drop = (*resources.asking(specs), *(key for key in resources.requiring(specs) if key in settled))
    return Edit(put, tuple(key for key in drop if key not in asking))


def shared_to_ask_for(specs: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """The resource class of the shared class that serves the promise; ``None`` where none does, or it is asked for.

    :param specs: the flavor's, as they are.
    :param wanted: extra specs that are added to them.
    """
    request = extra_specs.parse({**specs, **wanted}).request
    shared = None if request is None else resources.shared_resource(request)
    return None if shared in resources.asked(specs) else shared


def clearing(specs: Mapping[str, str]) -> Edit:
    """Remove a promise, and what is asked of Placement for it."""
    names = [key.name for key in extra_specs.KEYS]
    asked = (*resources.asking(specs), *resources.requiring(specs))
    return Edit({}, (*(name for name in names if name in specs), *asked))


def shown(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs that are about its promise."""
    keys = (*(key.name for key in extra_specs.KEYS), *resources.asking(specs), *resources.requiring(specs))
    return {key: specs[key] for key in keys if key in specs}


def problems(specs: Mapping[str, str], *, placement: bool, vcpus: int) -> list[str]:
    """What is wrong with a flavor; empty for one that promises nothing and asks for nothing.

    :param placement: whether a promise that takes something must ask Placement for it; if not, it may.
    :param vcpus: how many vCPUs the flavor has.
    """
    parsed = extra_specs.parse(specs)
    found = [str(error) for error in parsed.errors]
    if parsed.request is not None:
        found += _errors_of_vcpus(specs, parsed.request, vcpus)
    found += request_groups.problems(specs, parsed.request)
    if parsed.errors:
        return found
    wanted, asked = resources.requested(parsed.request), resources.asked(specs)
    is_shared = parsed.request is not None and resources.shared_resource(parsed.request) is not None
    if wanted != asked and (asked or (placement and not is_shared)):
        promise = units.amounts(wanted) if parsed.request else "nothing: there is no promise"
        found.append(f"asks Placement for {units.amounts(asked)}; the promise takes {promise}")
    return found


def exclusive_ways(specs: Mapping[str, str]) -> int:
    """How many L3 ways of its own a flavor promises; 0 for none, or where the promise is not understood."""
    return resources.requested(extra_specs.parse(specs).request).get(resources.LLC_WAYS, 0)


def _errors_of_vcpus(specs: Mapping[str, str], request: CacheRequest, vcpus: int) -> list[str]:
    try:
        extra_specs.check_vcpus(request, vcpus)
    except InvalidExtraSpecs as error:
        return [str(error)]
    getting = request.vcpus or frozenset(range(vcpus))
    if request.l2_ways is None or getting <= _pinned(specs, vcpus):
        return []
    return [str(SpecError(L2_WAYS.name, str(request.l2_ways), _PINNED))]


def _pinned(specs: Mapping[str, str], vcpus: int) -> frozenset[int]:
    """The vCPUs that a flavor alone pins, as ``nova.virt.hardware.numa_get_constraints`` has it."""
    every = frozenset(range(vcpus))
    policy = specs.get("hw:cpu_policy")
    if policy == "mixed":
        return _masked(specs.get("hw:cpu_dedicated_mask") or specs.get("hw:cpu_realtime_mask") or "", vcpus)
    pcpus = any(_PCPU.fullmatch(key) and value != "0" for key, value in specs.items())
    return every if policy == "dedicated" or (policy is None and pcpus) else frozenset()


def _masked(mask: str, vcpus: int) -> frozenset[int]:
    """The vCPUs of such a mask; one that begins with ``^`` takes vCPUs away from all of them."""
    try:
        return cpu_spec.parse(f"0-{vcpus - 1},{mask}" if mask.strip().startswith("^") else mask)
    except ValueError:
        return frozenset()
