# SPDX-License-Identifier: Apache-2.0
"""Mending claims in Placement, one consumer at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from vmqos.cli.placement import audit
from vmqos.cli.placement.audit import Finding
from vmqos.cli.placement.state import State
from vmqos.openstack.consumers import Consumer, NoRoom
from vmqos.openstack.exceptions import Refused
from vmqos.openstack.placement import Conflict

ATTEMPTS = 6
"""How often a consumer is read and judged anew when others change it, or its host, at the same time."""

LONGEST_PAUSE = 0.5
"""Seconds before such an attempt, at most."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a finding.

    :ivar result: ``mended``, ``would mend``, or ``left``.
    :ivar detail: what was wrong; and why it was left, where it was.
    """

    finding: Finding
    result: str
    detail: str


def heal(state: State, uuid: str, *, dry_run: bool) -> list[Done]:
    """Look at a consumer again, and mend its claim; nothing where nothing is wrong with it any more.

    :param dry_run: whether to write nothing.
    :raises vmqos.openstack.exceptions.CloudError: if a service does not answer, or refuses a question.
    """
    found: list[Finding] = []
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, LONGEST_PAUSE))
        consumer, found = state.look(uuid)
        mend = next((finding.mend for finding in found if finding.mend is not None), None)
        if mend is None:
            return [Done(finding, "left", finding.detail) for finding in found]
        if dry_run:
            return list(_told(found, "would mend"))
        try:
            state.consumers.replace(consumer, audit.after(consumer.held, mend))
        except Conflict:
            continue
        except NoRoom as error:
            return list(_left(found, _no_room(state, consumer, mend, str(error))))
        except Refused as error:
            return list(_left(found, str(error)))
        return list(_told(found, "mended"))
    return list(_left(found, f"others changed it {ATTEMPTS} times meanwhile"))


def first_to_free(findings: list[Finding]) -> int:
    """A key to sort consumers by: those that give back come before those that need room."""
    return int(not any(finding.problem in _FREEING for finding in findings))


_FREEING = frozenset({audit.Problem.ORPHAN, audit.Problem.TOO_MUCH, audit.Problem.DOUBLE})


def _told(found: list[Finding], result: str) -> Iterator[Done]:
    for finding in found:
        yield Done(finding, result if finding.mend is not None else "left", finding.detail)


def _left(found: list[Finding], reason: str) -> Iterator[Done]:
    for finding in found:
        detail = finding.detail if finding.mend is None else f"{finding.detail}; not mended: {reason}"
        yield Done(finding, "left", detail)


def _no_room(state: State, consumer: Consumer, mend: audit.Mend, said: str) -> str:
    """Which provider has too little left, by what it has now; Placement's word where none has."""
    hosts, claim = state.hosts, audit.claim_of(consumer.held)
    for provider, amounts in mend.claim.items():
        host = hosts.by_provider.get(provider)
        if host is None:
            continue
        held = state.consumers.of_provider(provider).values()
        for name, inventory in sorted(state.consumers.inventories(provider).items(), reverse=True):
            more = amounts.get(name, 0) - claim.get(provider, {}).get(name, 0)
            left = inventory.capacity - sum(one.get(name, 0) for one in held)
            if more > left:
                return (
                    f"no room on {host.hostname}: it takes {more} more {name} of {host.name_of(provider)}, where "
                    f"{max(0, left)} are left; move a server away"
                )
    return said
