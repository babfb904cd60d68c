# SPDX-License-Identifier: Apache-2.0
"""Keys of a flavor that are no extra specs of ours and look like one: a promise must not be dropped silently."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable

# "hw_cache_ways" is how an image's property is written, and Nova's API takes blanks and capitals in keys.
_SEPARATOR = r"[\s_.\x3a-]"
_PREFIX = rf"{_SEPARATOR}*(hw|wh){_SEPARATOR}*"
_STEMS = (
    "cache",
    "llc",
    rf"l[23]{_SEPARATOR}*(cache|way)",
    rf"mem(ory)?{_SEPARATOR}*(bandwidth|bw)",
    rf"bandwidth{_SEPARATOR}*(percent|mbps)",
    rf"((code|data){_SEPARATOR}*)?ways?$",
)

FAMILY = rf"(?is){_PREFIX}({'|'.join(_STEMS)}).*"
"""A regular expression (whole key) of the keys that are about a promise, whatever they end with.

Every key of the grammar matches it, and every key that begins as these do: ``hw:cache``, ``hw:llc``, ``hw:l2_cache``,
``hw:mem_bandwidth``, ``hw:memory_bandwidth``. None of Nova's own does. There is no colon in the expression, because
Nova takes what stands before one for a namespace whose unknown keys it has to refuse
(``nova.api.validation.extra_specs.validators.load_validators``).
"""

_FAMILY = re.compile(FAMILY)
_HW = re.compile(rf"(?is){_PREFIX}(?P<stem>.+)")
_WORDS = (("l3_cache", "cache"), ("llc", "cache"), ("memory", "mem"), ("bw", "bandwidth"))
_LONGEST_OF_NOVA = 255
"""Characters of a key, as Nova's API has it (``nova.api.validation.parameter_types.metadata``)."""

_LONGEST = 64
"""Characters of a key that is still compared with ours: the time it takes grows with the square."""

_MOST_COMPARED = 256
"""Keys of a flavor that are compared with ours by similarity, which takes some tenths of a millisecond each. A
flavor has some dozen; of a flavor with more, the other keys are told by :data:`FAMILY` alone."""

_CLOSE = 0.8
"""How much alike two keys are, as :mod:`difflib` has it, of which one stands for the other.

The nearest of Nova's own are ``hw:cpu_policy`` and ``hw:cache_policy``, by 0.73.
"""

_VAGUE = 0.4
"""How much alike they are at least where the key is of our family, and the value one that the other takes."""


def suspects(names: Iterable[str], ours: tuple[str, ...]) -> list[str]:
    """The keys that look like one of ours and are none, in their order.

    :param names: all keys of a flavor.
    :param ours: the keys of the grammar.
    """
    found = []
    for number, name in enumerate(names):
        key = name[:_LONGEST_OF_NOVA]
        if key not in ours and (_FAMILY.fullmatch(key) or (number < _MOST_COMPARED and _is_near(key, ours))):
            found.append(name)
    return found


def meant(name: str, ours: tuple[str, ...], fitting: tuple[str, ...]) -> str:
    """The key that a suspect one probably stands for; empty where none is near.

    :param ours: the keys of the grammar.
    :param fitting: those of them that take the value that was found.
    """
    return _nearest(name, ours, _CLOSE) or _nearest(name, fitting, _VAGUE)


# Each VM's flavor is read in each pass, and the keys are few.
@functools.lru_cache(maxsize=1024)
def _is_near(name: str, ours: tuple[str, ...]) -> bool:
    return bool(_nearest(name, ours, _CLOSE))


def _nearest(name: str, ours: tuple[str, ...], least: float) -> str:
    found = _HW.fullmatch(name) if len(name) <= _LONGEST else None
    if found is None:
        return ""
    stem = re.sub(rf"{_SEPARATOR}+", "_", found["stem"].lower()).strip("_")
    for word, instead in _WORDS:
        stem = stem.replace(word, instead)
    stems = {key.removeprefix("hw:"): key for key in ours}
    close = difflib.get_close_matches(stem, sorted(stems), n=1, cutoff=least)
    return stems[close[0]] if close else ""
