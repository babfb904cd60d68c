# SPDX-License-Identifier: Apache-2.0
"""What is remembered of one sweep: a column for each series, with a number, or none, for each VM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.telemetry import RateColumns, Rates, Snapshot
from vmqos.telemetry.model import LLC_OCCUPANCY

Column = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Swept:
    """One sweep.

    :ivar when: seconds since 1970.
    :ivar uuids: the VMs, in the order of the columns.
    :ivar caches: the caches that are there, in ascending order.
    :ivar held: the bytes held on each of them.
    :ivar occupancy: the bytes held on all caches together.
    :ivar total: bytes a second to and from memory anywhere.
    :ivar local: the part to and from memory of the same socket.
    :ivar remote: the rest.
    """

    when: float
    uuids: Sequence[str]
    caches: tuple[int, ...]
    held: Sequence[Column]
    occupancy: Column
    total: Column
    local: Column
    remote: Column


def swept(now: Snapshot, found: Mapping[str, Rates]) -> Swept:
    """One sweep; pure.

    :param found: the bandwidths since the sweep before, by UUID.
    """
    caches = tuple(sorted(now.host.caches))
    if now.columns is not None and isinstance(found, RateColumns):
        held = [now.columns.caches[cache][0] for cache in caches]
        occupancy = list(map(sum, zip(*held, strict=True)))
        return Swept(now.wall, found.uuids, caches, held, occupancy, found.total, found.local, found.remote)
    vms = now.vms.values()
    rates = [found[uuid] for uuid in now.vms]
    return Swept(
        now.wall,
        tuple(now.vms),
        caches,
        [[vm.caches[cache][LLC_OCCUPANCY].value if cache in vm.caches else None for vm in vms] for cache in caches],
        [vm.totals[LLC_OCCUPANCY].value for vm in vms],
        [one.total.value for one in rates],
        [one.local.value for one in rates],
        [one.remote.value for one in rates],
    )
