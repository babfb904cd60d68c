# SPDX-License-Identifier: Apache-2.0
"""The text of ``schemata`` files.

Linux 6.12 pads what it prints (``    L3:0=003``, ``MB:0= 50``), 7.2 does not; so texts are parsed and never compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask

Schemata = dict[str, dict[int, str]]
"""Each resource's values by cache id, as the kernel wrote them but for the padding."""

_UNINITIALIZED = "uninitialized"

_NEEDED = re.compile(r" *(?:L[0-9]+(?:CODE|DATA)?|MB)(?![A-Za-z0-9_])")
"""How the lines begin that promises are kept by. To pass over one of them would be to take its ways for free."""

_CACHE_ID = re.compile(r"[0-9]{1,10}")
_NUMBER = re.compile(r"[0-9]{1,20}")
"""What the kernel prints of 32 and 64 bits. Python itself refuses to make a number of thousands of digits."""


def parse(text: str) -> Schemata:
    """Read a ``schemata`` file.

    A resource of a group that is about to be pseudo-locked has no values yet (``L3:uninitialized``): it is there, and
    empty. A line of another form is passed over, for later kernels may have such, but not one of a cache or of ``MB``.

    :raises vmqos.resctrl.exceptions.InvalidSchemata: if the line of a cache or of ``MB`` can't be understood.
    """
    found: Schemata = {}
    for line in filter(str.strip, text.split("\n")):
        try:
            resource, values = _parse_line(line)
        except exceptions.InvalidSchemata:
            if _NEEDED.match(line):
                raise
        else:
            found[resource] = values
    return found


def _parse_line(line: str) -> tuple[str, dict[int, str]]:
    resource, colon, values = line.partition(":")
    if not colon or not resource.strip():
        raise exceptions.InvalidSchemata(line=line)
    if values.strip() in ("", _UNINITIALIZED):
        return resource.strip(), {}
    found = {}
    for entry in values.split(";"):
        cache, equals, value = map(str.strip, entry.partition("="))
        if not equals or not _CACHE_ID.fullmatch(cache) or not value:
            raise exceptions.InvalidSchemata(line=line)
        found[int(cache)] = value
    return resource.strip(), found


def masks_of(schemata: Mapping[str, Mapping[int, str]], resource: str) -> dict[int, CapacityBitmask]:
    """The capacity bitmasks of one resource by cache id; none where the schemata does not have it.

    :raises vmqos.resctrl.exceptions.InvalidBitmask: if its values are no masks.
    """
    return {cache: CapacityBitmask.parse(value) for cache, value in schemata.get(resource, {}).items()}


def code_and_data(
    schemata: Mapping[str, Mapping[int, str]], level: int
) -> dict[int, tuple[CapacityBitmask, CapacityBitmask]]:
    """The masks for code and for data of the caches of a level by cache id; the same mask twice without CDP.

    :raises vmqos.resctrl.exceptions.InvalidBitmask: if its values are no masks.
    """
    if f"L{level}CODE" not in schemata:
        return {cache: (mask, mask) for cache, mask in masks_of(schemata, f"L{level}").items()}
    data = masks_of(schemata, f"L{level}DATA")
    return {cache: (mask, data.get(cache, mask)) for cache, mask in masks_of(schemata, f"L{level}CODE").items()}


def numbers_of(schemata: Mapping[str, Mapping[int, str]], resource: str) -> dict[int, int]:
    """The numbers of one resource, such as ``MB``, by cache id; none where the schemata does not have it.

    :raises vmqos.resctrl.exceptions.InvalidSchemata: if its values are no numbers.
    """
    values = schemata.get(resource, {})
    for value in values.values():
        if not _NUMBER.fullmatch(value):
            raise exceptions.InvalidSchemata(line=f"{resource}: {value}")
    return {cache: int(value) for cache, value in values.items()}


def parse_masks(text: str, resource: str) -> dict[int, CapacityBitmask]:
    """The masks of one resource by cache id, read from the text of a schemata file.

    :raises vmqos.resctrl.exceptions.InvalidSchemata: if a line is none of a schemata file.
    :raises vmqos.resctrl.exceptions.InvalidBitmask: if the resource's values are no masks.
    """
    return masks_of(parse(text), resource)


def format_values(resource: str, values: Mapping[int, CapacityBitmask] | Mapping[int, int]) -> str:
    """The line that sets these caches' masks or limits and leaves all others alone.

    :param values: at least one value by cache id.
    :raises ValueError: if ``values`` is empty: the kernel refuses a line that sets nothing.
    """
    if not values:
        raise ValueError(f"nothing to write for {resource}")
    return f"{resource}:" + ";".join(f"{cache}={value}" for cache, value in sorted(values.items()))
