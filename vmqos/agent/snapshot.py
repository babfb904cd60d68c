# SPDX-License-Identifier: Apache-2.0
"""What the agent knew at the end of a pass: one immutable value, handed to the API's threads as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Policy, Request
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.topology import CacheTopology


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent's knowledge.

    :ivar resctrl: resctrl as it was left; ``None`` while it can't be read.
    :ivar last_read: while it can't be read, resctrl as it was last read: what is told of VMs is of that time.
    :ivar topology: where the caches are.
    :ivar policy: the operator's choices, as the last pass had them.
    :ivar vms: every VM by its UUID.
    :ivar requests: what the planner was last asked for.
    """

    resctrl: ResctrlState | None = None
    last_read: ResctrlState | None = None
    topology: CacheTopology = field(default_factory=CacheTopology)
    policy: Policy = field(default_factory=Policy)
    vms: Mapping[str, VmRecord] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """How well the loop itself works.

    :ivar looked: whether a pass has ended that knew from libvirt which VMs run.
    :ivar resctrl_error: why resctrl could not be read or written in the last pass; empty if it could.
    :ivar last_error: the last failure of a pass, however long ago.
    :ivar failed_at: when that was, by the monotonic clock; ``None`` where no pass has failed.
    :ivar last_pass_seconds: how long the last pass took.
    :ivar looked_at: when the last complete look at the VMs ended, by the monotonic clock: libvirt listed the VMs, and
        all of them could be looked at; ``None`` before the first.
    :ivar passed_at: when the last pass without an error ended, by the monotonic clock; ``None`` before the first.
    :ivar unserved: why a VM that libvirt lists is not served yet, by UUID.
    """

    passes: int = 0
    last_pass_seconds: float = 0.0
    resctrl_error: str = ""
    last_error: str = ""
    failed_at: float | None = None
    looked: bool = False
    looked_at: float | None = None
    passed_at: float | None = None
    unserved: Mapping[str, str] = field(default_factory=dict)
