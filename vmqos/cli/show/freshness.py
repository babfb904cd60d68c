# SPDX-License-Identifier: Apache-2.0
"""Whether what the agent knows is old, as the agent itself judges.

The agent answers from memory, so an answer is no sign that it still looks: libvirt, resctrl's lock or a counter may
hang.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from vmqos.cli.show import units
from vmqos.cli.show.safe_text import neutralise
from vmqos.local_api import contract, exceptions
from vmqos.local_api.client import AgentClient

OLD_STATUS = 3
"""The exit status of a command that printed what was old."""

PATIENCE = 2.0
"""Seconds to wait for the agent's health, without which what it tells can be shown too."""

_NEVER_FRESH = ("vms", "pass")
"""What is told is empty until these were done once, however short ago the agent was started."""

_LAST = {"vms": "looked at all VMs", "pass": "ended a pass without an error", "counters": "read the counters"}


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old what the agent knows is.

    :ivar stale: what is older than it should be, or was never known: ``vms``, ``pass`` and ``counters``; empty where
        nothing is, or where an older agent does not tell.
    :ivar ages: seconds since the last look of each kind; ``None`` before the first.
    :ivar unserved: why a VM that libvirt lists is not served, by UUID.
    :ivar hostname: the host's name; empty where an older agent does not tell.
    """

    stale: tuple[str, ...] = ()
    ages: Mapping[str, float | None] = field(default_factory=dict)
    unserved: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""

    @property
    def warning(self) -> str:
        """What is old, in a sentence; empty where nothing is."""
        parts = []
        for name in self.stale:
            age = self.ages.get(name)
            last = _LAST[name]
            parts.append(f"has not {last} yet" if age is None else f"last {last} {units.duration(age)} ago")
        if not parts:
            return ""
        listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
        return f"what follows is old, although vmqos-agent answers: it {listed}; see 'journalctl -u vmqos-agent'"

    @property
    def missing(self) -> tuple[str, ...]:
        """A sentence for each VM that is not served."""
        return tuple(
            f"VM {neutralise(uuid)} runs and is not served: {neutralise(reason)}"
            for uuid, reason in self.unserved.items()
        )


def ask(agent: AgentClient, parts: Collection[str] = tuple(_LAST)) -> Freshness:
    """How old what the agent knows is; nothing is known where it does not tell.

    :param parts: what the command shows, of ``vms``, ``pass`` and ``counters``: only that can be old.
    """
    health: contract.Health | None = None
    with contextlib.suppress(exceptions.LocalApiError):
        health = replace(agent, timeout=PATIENCE).health()
    if health is None:
        return Freshness()
    ages = health.get("ages") or {}
    old = {*(health.get("stale") or ()), *(name for name in _NEVER_FRESH if ages.get(name, 0.0) is None)}
    stale = tuple(name for name in _LAST if name in parts and name in old)
    return Freshness(stale, ages, health.get("unserved") or {}, health.get("hostname") or "")
