# SPDX-License-Identifier: Apache-2.0
"""A flavor's extra specs: the promise, and what is asked of Placement for it, kept in step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.openstack import extra_specs
from vmqos.openstack.extra_specs import InvalidExtraSpecs, resources


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
    :raises vmqos.openstack.extra_specs.InvalidExtraSpecs: if the whole would not be a promise.
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
    if parsed.errors:
        return [str(error) for error in parsed.errors]
    if parsed.request is not None:
        try:
            extra_specs.check_vcpus(parsed.request, vcpus)
        except InvalidExtraSpecs as error:
            return [str(error)]
    wanted, asked = resources.requested(parsed.request), resources.asked(specs)
    lonely = sorted(resources.required(specs))
    if lonely and not asked:
        return [
            f"requires {', '.join(lonely)} of the host's provider of cache, from which it asks for no resource: "
            "Placement finds no host then; 'vmqos flavor set' mends it"
        ]
    is_shared = parsed.request is not None and resources.shared_resource(parsed.request) is not None
    if wanted == asked or not (asked or (placement and not is_shared)):
        return []
    promise = _told(wanted) if parsed.request else "nothing: there is no promise"
    return [f"asks Placement for {_told(asked)}; the promise takes {promise}"]


def _told(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items(), reverse=True)) or "nothing"
