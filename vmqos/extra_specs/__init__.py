# SPDX-License-Identifier: Apache-2.0
"""The grammar of the flavor extra specs that vmqos knows, and the promise they make."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vmqos.extra_specs import cpu_spec, misspelt


class CachePolicy(enum.Enum):
    """The values of ``hw:cache_policy``."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What a flavor's extra specs ask for; every field ``None`` where the flavor is silent.

    :ivar ways: L3 ways on every L3 the VM may run on (``hw:cache_ways``).
    :ivar policy: whether the VM has the ways alone, or a cap within the shared pool (``hw:cache_policy``).
    :ivar code_ways: L3 ways for code (``hw:cache_code_ways``), always with ``data_ways``, never with ``ways``.
    :ivar data_ways: L3 ways for data (``hw:cache_data_ways``).
    :ivar l2_ways: L2 ways (``hw:l2_cache_ways``).
    :ivar bandwidth_percent: 1 to 100 (``hw:mem_bandwidth_percent``).
    :ivar bandwidth_mbps: MB/s (``hw:mem_bandwidth_mbps``), never with ``bandwidth_percent``.
    :ivar vcpus: the vCPUs that get the ways (``hw:cache_vcpus``); all tasks of the VM where ``None``.
    """

    ways: int | None = None
    policy: CachePolicy = CachePolicy.EXCLUSIVE
    code_ways: int | None = None
    data_ways: int | None = None
    l2_ways: int | None = None
    bandwidth_percent: int | None = None
    bandwidth_mbps: int | None = None
    vcpus: frozenset[int] | None = None

    @property
    def l3_ways(self) -> int:
        """How many L3 ways are asked for, those for code and for data together; 0 for none."""
        return (self.ways or 0) + (self.code_ways or 0) + (self.data_ways or 0)


@dataclass(frozen=True, slots=True)
class SpecError:
    """One extra spec that can't be followed.

    :ivar key: the extra spec's key.
    :ivar value: its value, as found.
    :ivar allowed: what is allowed instead, a clause that ends without a full stop.
    """

    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        key = _shortened(self.key)
        # Quotes show a blank at the end of a key, or a line break in it.
        shown = key if key.isprintable() and key == "".join(key.split()) else repr(key)
        return f"{shown}={_shortened(self.value)!r}: {self.allowed}"


class InvalidExtraSpecs(ValueError):
    """Extra specs that can't be followed.

    :ivar errors: what is wrong, never empty.
    """

    def __init__(self, errors: tuple[SpecError, ...]) -> None:
        self.errors = errors
        super().__init__("; ".join(map(str, errors)))


@dataclass(frozen=True, slots=True)
class ParsedSpecs:
    """What :func:`parse` made of a flavor's extra specs.

    :ivar request: what is asked for; ``None`` where nothing is, or where anything is wrong: half a promise is none.
    :ivar errors: everything that is wrong, in the order of :data:`KEYS`, misspelt keys last.
    """

    request: CacheRequest | None
    errors: tuple[SpecError, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One extra spec of the grammar.

    :ivar name: its key.
    :ivar field: the field of :class:`CacheRequest` that it fills.
    :ivar option: the option of ``vmqos flavor set`` that sets it.
    :ivar description: what it promises, for Nova's reference of extra specs.
    :ivar pattern: a regular expression (ASCII, whole value) that every allowed value matches.
    :ivar allowed: what is allowed, for error messages.
    :ivar convert: makes the field's value of a text that matches; raises ``ValueError`` for a text that matches and is
        not allowed.
    :ivar words: all allowed values where they are a few words, else none.
    """

    name: str
    field: str
    option: str
    description: str
    pattern: str
    allowed: str
    convert: Callable[[str], object] = int
    words: tuple[str, ...] = ()

    def read(self, text: str) -> object:
        """The field's value of an extra spec's value.

        :raises ValueError: if ``text`` is not allowed.
        """
        if not re.fullmatch(self.pattern, text):
            raise ValueError(text)
        return self.convert(text)

    def takes(self, text: str) -> bool:
        """Whether ``text`` is an allowed value."""
        try:
            self.read(text)
        except ValueError:
            return False
        return True


_LONGEST_SHOWN = 80
_COUNT = r"[1-9][0-9]{0,8}"
_COUNT_ALLOWED = "an integer from 1 up is allowed, in plain decimal digits"

WAYS = Key(
    "hw:cache_ways",
    "ways",
    "--cache-ways",
    "How many L3 cache ways the server gets on every L3 cache that it may run on.",
    _COUNT,
    _COUNT_ALLOWED,
)
POLICY = Key(
    "hw:cache_policy",
    "policy",
    "--policy",
    "Whether the VM has the L3 cache ways alone, or a cap within the pool that all others fill too.",
    "exclusive|shared",
    "'exclusive' or 'shared' is allowed",
    CachePolicy,
    tuple(policy.value for policy in CachePolicy),
)
CODE_WAYS = Key(
    "hw:cache_code_ways",
    "code_ways",
    "--code-ways",
    "How many L3 cache ways the server gets for code, where the host keeps code and data apart.",
    _COUNT,
    _COUNT_ALLOWED,
)
DATA_WAYS = Key(
    "hw:cache_data_ways",
    "data_ways",
    "--data-ways",
    "How many L3 cache ways the server gets for data, where the host keeps code and data apart.",
    _COUNT,
    _COUNT_ALLOWED,
)
L2_WAYS = Key(
    "hw:l2_cache_ways",
    "l2_ways",
    "--l2-ways",
    "How many L2 cache ways the server gets, on the CPUs that it is pinned to.",
    _COUNT,
    _COUNT_ALLOWED,
)
BANDWIDTH_PERCENT = Key(
    "hw:mem_bandwidth_percent",
    "bandwidth_percent",
    "--bandwidth-percent",
    "The share of the memory bandwidth that the server may use, in per cent.",
    "[1-9][0-9]?|100",
    "an integer from 1 to 100 is allowed, in plain decimal digits",
)
BANDWIDTH_MBPS = Key(
    "hw:mem_bandwidth_mbps",
    "bandwidth_mbps",
    "--bandwidth-mbps",
    "The memory bandwidth that the server may use, in MB/s.",
    _COUNT,
    _COUNT_ALLOWED + " (MB/s)",
)
VCPUS = Key(
    "hw:cache_vcpus",
    "vcpus",
    "--vcpus",
    "The vCPUs that get the cache ways; the emulator and all others share the pool.",
    cpu_spec.PATTERN,
    "a list of vCPU numbers (0 to 9999) and ranges that leaves at least one is allowed, such as '0-3,^2'",
    cpu_spec.parse,
)

KEYS = (WAYS, POLICY, CODE_WAYS, DATA_WAYS, L2_WAYS, BANDWIDTH_PERCENT, BANDWIDTH_MBPS, VCPUS)
"""The whole grammar."""

_NAMES = tuple(key.name for key in KEYS)

_MOST_NAMED = 8
"""Misspelt keys of a flavor that get a text of their own, at most. A flavor is read in each pass, and its errors go to
the log, the API and the metrics: thousands of misspelt keys must not cost more than a few."""


def parse(specs: Mapping[str, str]) -> ParsedSpecs:
    """Read a flavor's extra specs; it raises nothing, whatever they say.

    Keys that are not of vmqos are ignored. A key that looks like one of ours and is none (:mod:`.misspelt`) is an
    error, because a promise must not be dropped silently.

    :param specs: all extra specs of the flavor.
    """
    values: dict[str, Any] = {}
    errors: list[SpecError] = []
    for key in KEYS:
        if key.name not in specs:
            continue
        text = specs[key.name]
        try:
            values[key.field] = key.read(text)
        except ValueError:
            errors.append(SpecError(key.name, text, key.allowed))
        misplaced = _misplaced(key, specs)
        if misplaced:
            errors.append(SpecError(key.name, text, misplaced))
    suspects = misspelt.suspects(specs, _NAMES) if specs.keys() - _NAMES else []
    errors += [unknown(name, specs[name]) for name in suspects[:_MOST_NAMED]]
    if further := suspects[_MOST_NAMED:]:
        text = f"there is no such extra spec, and {len(further) - 1} more of this flavor are none either"
        errors.append(SpecError(further[0], specs[further[0]], text))
    if errors or not values:
        return ParsedSpecs(None, tuple(errors))
    return ParsedSpecs(replace(CacheRequest(), **values))


def relevant(specs: Mapping[str, str]) -> dict[str, str]:
    """Those of a flavor's extra specs that :func:`parse` looks at: our keys, and at most a few that look like them."""
    names = (*(name for name in _NAMES if name in specs), *misspelt.suspects(specs, _NAMES)[: 2 * _MOST_NAMED])
    return {name: specs[name] for name in names}


def unknown(name: str, text: str) -> SpecError:
    """What is wrong with a key that looks like one of ours and is none.

    :param name: the key.
    :param text: its value, which may tell what is meant: ``shared`` is a policy.
    """
    meant = misspelt.meant(name, _NAMES, tuple(key.name for key in KEYS if key.takes(text)))
    instead = f", did you mean {meant}?" if meant else f"; those of vmqos are {', '.join(_NAMES)}"
    return SpecError(name, text, f"there is no such extra spec{instead}")


def parse_strict(specs: Mapping[str, str]) -> CacheRequest | None:
    """Read a flavor's extra specs; ``None`` where they ask for nothing.

    :raises InvalidExtraSpecs: if anything is wrong with them.
    """
    parsed = parse(specs)
    if parsed.errors:
        raise InvalidExtraSpecs(parsed.errors)
    return parsed.request


def check_vcpus(request: CacheRequest, count: int) -> None:
    """Check that a VM has all vCPUs that its promise names; the grammar does not know how many it has.

    :param count: how many vCPUs the VM has.
    :raises InvalidExtraSpecs: if it lacks one.
    """
    if request.vcpus is None or max(request.vcpus) < count:
        return
    vcpus, numbers = ("vCPU", "the number 0 is") if count == 1 else ("vCPUs", f"numbers from 0 to {count - 1} are")
    allowed = f"the flavor has {count} {vcpus}, so only {numbers} allowed"
    raise InvalidExtraSpecs((SpecError(VCPUS.name, cpu_spec.show(request.vcpus), allowed),))


def asks_for(request: CacheRequest) -> bool:
    """Whether the request asks for anything; a policy or vCPUs alone ask for nothing."""
    return any(getattr(request, key.field) is not None for key in KEYS if key not in (POLICY, VCPUS))


def _misplaced(key: Key, specs: Mapping[str, str]) -> str:
    """Why the key may not stand beside the other ones, or without them; empty where it may."""
    l3_ways = (WAYS, CODE_WAYS, DATA_WAYS)
    if key is POLICY and not _any_of(specs, *l3_ways):
        return f"allowed only together with {WAYS.name}, or with {CODE_WAYS.name} and {DATA_WAYS.name}"
    if key in (CODE_WAYS, DATA_WAYS):
        other = DATA_WAYS if key is CODE_WAYS else CODE_WAYS
        if WAYS.name in specs:
            return f"allowed only instead of {WAYS.name}, not beside it"
        if other.name not in specs:
            return f"allowed only together with {other.name}"
    if key is BANDWIDTH_MBPS and BANDWIDTH_PERCENT.name in specs:
        return f"allowed only instead of {BANDWIDTH_PERCENT.name}, not beside it"
    if key is VCPUS and not _any_of(specs, *l3_ways, L2_WAYS):
        return f"allowed only together with {WAYS.name} or another key that asks for ways"
    return ""


def _any_of(specs: Mapping[str, str], *keys: Key) -> bool:
    return any(key.name in specs for key in keys)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
