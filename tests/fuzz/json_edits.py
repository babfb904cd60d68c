# SPDX-License-Identifier: Apache-2.0
"""Changing one value of the JSON in a text: a change of its bytes mostly leaves no JSON at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**64, 1.5, -0.0, 1e308, float("inf"), float("nan"),
    "", "x", "0", "ff", "\ud800", "\x1b[2J", "38c43823-3651-469c-b344-166d1c87d77b", [], {}, [[]], {"a": {}},
)  # fmt: skip
"""What may stand anywhere."""


def edited(data: bytes, seed: int) -> bytes | None:
    """The text with one value changed; ``None`` where it has no line of JSON.

    :param data: lines; each that begins with a bracket is JSON.
    :param seed: which value is changed, and to what.
    """
    lines, chance = data.split(b"\n"), random.Random(seed)
    of_json = [number for number, line in enumerate(lines) if line[:1] in (b"{", b"[")]
    if not of_json:
        return None
    number = chance.choice(of_json)
    try:
        value = json.loads(lines[number])
        places = list(_places(value))
        if not places:
            return None
        _change(*chance.choice(places), places, chance)
        lines[number] = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value that holds another one: the container and the key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _change(container: Any, key: Any, places: list[tuple[Any, Any]], chance: random.Random) -> None:
    elsewhere, there = chance.choice(places)
    match chance.randrange(5):
        case 0:
            del container[key]
        case 1:
            # A copy: a container that held itself would be no JSON.
            container[key] = json.loads(json.dumps(elsewhere[there]))
        case 2 if isinstance(container, dict):
            container[str(there)] = container.pop(key)
        case _:
            container[key] = chance.choice(VALUES)
