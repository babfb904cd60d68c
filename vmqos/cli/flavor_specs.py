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

    :param specs: the flavor's, as they are.
    :param wanted: extra specs of the grammar.
    :param placement: whether to ask Placement for what the promise takes; nothing is asked for otherwise.
    :param vcpus: how many vCPUs the flavor has.
    :raises vmqos.openstack.extra_specs.InvalidExtraSpecs: if the whole would not be a promise.
    """
    request = extra_specs.parse_strict({**specs, **wanted})
    if request is not None:
        extra_specs.check_vcpus(request, vcpus)
    asking = resources.as_extra_specs(resources.requested(request)) if placement else {}
    put = {key: value for key, value in {**wanted, **asking}.items() if specs.get(key) != value}
    return Edit(put, tuple(key for key in resources.asking(specs) if key not in asking))


def clearing(specs: Mapping[str, str]) -> Edit:
    """Remove a promise, and what is asked of Placement for it."""
    names = [key.name for key in extra_specs.KEYS]
    return Edit({}, (*(name for name in names if name in specs), *resources.asking(specs)))


def shown(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs that are about its promise."""
    keys = (*(key.name for key in extra_specs.KEYS), *resources.asking(specs))
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
    if wanted == asked or not (asked or placement):
        return []
    promise = _told(wanted) if parsed.request else "nothing: there is no promise"
    return [f"asks Placement for {_told(asked)}; the promise takes {promise}"]


def _told(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items(), reverse=True)) or "nothing"
