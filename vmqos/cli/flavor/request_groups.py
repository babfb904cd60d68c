# SPDX-License-Identifier: Apache-2.0
"""What a flavor asks Placement for that no host can give, or that changes nothing. Pure.

A host's ways and control groups are given by one resource provider, a child of the compute node's own, and the traits
of vmqos are that child's. Placement takes all of a numbered request group from one provider, and looks at traits only
where the same group takes something (``placement.objects.allocation_candidate``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vmqos.extra_specs import CacheRequest, SpecError, resources

REQUIRED, FORBIDDEN = "required", "forbidden"

_GROUP_POLICY = "group_policy"
_POLICIES = ("none", "isolate")

# nova.scheduler.utils.ResourceRequest.XS_KEYPAT
_KEY = re.compile(r"(?P<kind>resources|trait)(?P<group>[a-zA-Z0-9_-]{1,64})?:(?P<name>.*)")
_AMOUNT = re.compile(r"0|[1-9][0-9]{0,8}")
_CLASS_FAMILY, _TRAIT_FAMILY, _CUSTOM = "CUSTOM_LLC_", "CUSTOM_VMQOS_", "CUSTOM_"
_CLOSE = 0.8


@dataclass(slots=True)
class Group:
    """A request group, as Nova makes it of a flavor.

    :ivar name: what stands behind ``resources`` and ``trait``; empty for the un-numbered group.
    :ivar amounts: how much is taken, by resource class; more than 0 each.
    :ivar traits: ``required`` or ``forbidden``, by trait.
    """

    name: str
    amounts: dict[str, int] = field(default_factory=dict)
    traits: dict[str, str] = field(default_factory=dict)

    @property
    def takes_cache(self) -> bool:
        """Whether it takes anything of a provider of cache."""
        return any(map(_is_ours, self.amounts))

    @property
    def our_traits(self) -> list[str]:
        """The traits of vmqos that it requires or forbids."""
        return [trait for trait in self.traits if trait in resources.TRAITS]

    def key_of(self, trait: str) -> str:
        """The extra spec about a trait."""
        return f"trait{self.name}:{trait}={self.traits[trait]}"


def problems(specs: Mapping[str, str], request: CacheRequest | None) -> list[str]:
    """What is wrong with what a flavor asks Placement for; empty where none of it is about vmqos.

    :param specs: all extra specs of the flavor.
    :param request: the promise; ``None`` where there is none, or where it is not understood.
    """
    found = [str(error) for key, value in specs.items() for error in _errors_of_key(key, value)]
    groups = _groups(specs)
    needed = _needed([group for group in groups if group.takes_cache], request)
    for group in groups:
        found += _in_group(group, needed)
    if any(group.takes_cache or group.our_traits for group in groups):
        found += _between_groups([group for group in groups if group.name], specs.get(_GROUP_POLICY))
    return found


def _groups(specs: Mapping[str, str]) -> list[Group]:
    """The request groups that ask for anything, as ``nova.scheduler.utils.ResourceRequest`` reads them."""
    found: dict[str, Group] = {}
    for key, value in specs.items():
        asked = _KEY.fullmatch(key)
        if asked is None:
            continue
        name = asked["group"] or ""
        group = found.setdefault(name, Group(name))
        if asked["kind"] == "trait":
            if value in (REQUIRED, FORBIDDEN):
                group.traits[asked["name"]] = value
        elif (amount := _amount(value)) > 0:
            group.amounts[asked["name"]] = amount
    return [group for group in found.values() if group.amounts or group.traits]


def _amount(text: str) -> int:
    """The amount as Nova reads it, which ignores what is no number."""
    try:
        return int(text)
    except ValueError:
        return 0


def _errors_of_key(key: str, value: str) -> Iterable[SpecError]:
    asked = _KEY.fullmatch(key)
    if asked is None:
        return
    name = asked["name"]
    if asked["kind"] == "trait":
        if name not in resources.TRAITS:
            yield from _unknown(key, value, name, "trait", _TRAIT_FAMILY, resources.TRAITS)
        elif value not in (REQUIRED, FORBIDDEN):
            yield SpecError(key, value, f"'{REQUIRED}' or '{FORBIDDEN}' is allowed, and Nova ignores everything else")
    elif not _is_ours(name):
        yield from _unknown(key, value, name, "resource class", _CLASS_FAMILY, resources.CLASSES)
    elif not _AMOUNT.fullmatch(value):
        yield SpecError(key, value, "a number is allowed, in plain decimal digits")


def _unknown(key: str, value: str, name: str, what: str, family: str, known: Sequence[str]) -> Iterable[SpecError]:
    """What is wrong with a name that looks like one of ours and is none."""
    likely = _CUSTOM + re.sub(r"[\s.-]+", "_", name.strip().upper()).removeprefix(_CUSTOM)
    close = difflib.get_close_matches(likely, known, n=1, cutoff=_CLOSE)
    if close or likely.startswith(family):
        instead = f"did you mean {close[0]}?" if close else f"those of vmqos are {', '.join(known)}"
        yield SpecError(key, value, f"vmqos has no such {what}, {instead}")


def _in_group(group: Group, needed: Collection[str]) -> Iterable[str]:
    ours = group.our_traits
    if group.name and ours and not group.amounts:
        yield (
            f"{', '.join(map(group.key_of, ours))}: Placement refuses a numbered request group that takes nothing; "
            f"write it without the {group.name}"
        )
        return
    if not group.takes_cache:
        yield from (_out_of_reach(group, trait) for trait in ours)
        return
    yield from (
        f"{group.key_of(trait)}: no host passes, because the promise, or what is asked for, needs that trait; remove it"
        for trait in ours
        if group.traits[trait] == FORBIDDEN and trait in needed
    )
    others = [name for name in group.amounts if not name.startswith(_CUSTOM)]
    if group.name and others:
        beside = ", ".join(f"resources{group.name}:{name}" for name in others)
        yield (
            f"{beside}: Placement takes all of a numbered request group from one provider, and that of the cache has "
            f"no {' and no '.join(others)}; write the resources of the cache without the {group.name}"
        )


def _out_of_reach(group: Group, trait: str) -> str:
    if group.traits[trait] == FORBIDDEN:
        return (
            f"{group.key_of(trait)}: it keeps no server away from any host, because a trait counts only where the same "
            f"request group takes something of the provider of cache; a host aggregate can do that"
        )
    return (
        f"{group.key_of(trait)}: no host passes, because a trait counts only where the same request group takes "
        f"something of the provider of cache; let 'vmqos flavor set' ask for it, with the promise repeated, or remove "
        f"the trait"
    )


def _needed(taking: Collection[Group], request: CacheRequest | None) -> set[str]:
    """The traits that a provider has which gives what the groups take, and can keep the promise.

    A host has one provider of cache, so what one group requires of it binds all of them.
    """
    needed = set(resources.required_traits(request)) if request is not None else set()
    needed |= {trait for group in taking for trait in group.our_traits if group.traits[trait] == REQUIRED}
    if needed & {resources.MBA_PERCENT, resources.MBA_MBPS}:
        needed.add(resources.MBA)
    if resources.L3_CDP in needed or any(resources.LLC_WAYS in group.amounts for group in taking):
        needed.add(resources.L3_CAT)
    return needed


def _between_groups(numbered: list[Group], policy: str | None) -> Iterable[str]:
    taking = [group.name for group in numbered if group.takes_cache]
    if len(numbered) < 2:
        return
    if policy not in _POLICIES:
        names = ", ".join(sorted(group.name for group in numbered))
        given = "" if policy is None else f", not {policy!r}"
        yield f"the request groups {names} need {_GROUP_POLICY}=none{given}: Placement refuses several without it"
    elif policy == "isolate" and len(taking) > 1:
        yield (
            f"{_GROUP_POLICY}=isolate: it wants another provider for each of the request groups "
            f"{', '.join(sorted(taking))}, and a host has one provider of cache; set it to none"
        )


def _is_ours(resource_class: str) -> bool:
    return bool(resources.asking({f"resources:{resource_class}": "1"}))
