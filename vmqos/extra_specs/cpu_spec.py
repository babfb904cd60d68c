# SPDX-License-Identifier: Apache-2.0
"""Nova's notation for a set of CPUs, such as ``0-3,^2``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RULE = r" *(\^?)([0-9]{1,4})(?: *- *([0-9]{1,4}))? *"

PATTERN = f"{_RULE}(?:,{_RULE})*"
"""What every CPU spec looks like; that it names any CPU at all is for :func:`parse` to say."""


def parse(text: str) -> frozenset[int]:
    """Read a CPU spec: comma-separated numbers and ranges; ``^`` takes CPUs away, whatever the order.

    The grammar is that of ``nova.virt.hardware.parse_cpu_spec``. CPU numbers are 0 to 9999, so that a range can't
    exhaust the memory.

    :raises ValueError: if ``text`` is no CPU spec, has a range that runs backwards, or leaves no CPU.
    """
    included, excluded = set[int](), set[int]()
    for part in text.split(","):
        rule = re.fullmatch(_RULE, part)
        if rule is None:
            raise ValueError(f"{part!r} is neither a CPU number nor a range")
        first, last = int(rule[2]), int(rule[3] or rule[2])
        if first > last:
            raise ValueError(f"the range {part!r} runs backwards")
        (excluded if rule[1] else included).update(range(first, last + 1))
    if not included - excluded:
        raise ValueError(f"{text!r} leaves no CPU")
    return frozenset(included - excluded)


def show(cpus: Iterable[int]) -> str:
    """CPUs as the shortest list that :func:`parse` reads, such as ``0-3,8``; it is the kernel's notation, too."""
    found: list[list[int]] = []
    for cpu in sorted(cpus):
        if found and cpu == found[-1][1] + 1:
            found[-1][1] = cpu
        else:
            found.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
