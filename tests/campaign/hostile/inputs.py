# SPDX-License-Identifier: Apache-2.0
"""What a hostile input is, and what can come of it."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.campaign.hostile.stage import Stage


class Attacker(enum.Enum):
    """Who sends an input."""

    TENANT = "a tenant whose QEMU is taken over"
    CLOUD_USER = "a user of the cloud, who chooses names and flavors"
    ACCOUNT = "a local account without rights"
    NEIGHBOUR = "another program of root's"


class Refused(Exception):
    """The kernel, libvirt or the agent said no. The message is the evidence."""


class Harm(Exception):
    """The input itself saw harm that only it can see, such as a name that was printed raw."""


class Late(Harm):
    """Something took too long, and nothing else was wrong."""


Hold = Iterator[None]
"""What an act yields once the input is in force; it ends the input after that."""

Act = Callable[["Stage"], Hold]
"""Try an input: a generator that yields once while the input is in force.

It raises :class:`Refused` where the input was refused, and :class:`Harm` where it sees harm.
"""


@dataclass(frozen=True, slots=True)
class Input:
    """One hostile input.

    :ivar name: unique within its family; a reader of the table understands it.
    :ivar attacker: who sends it.
    :ivar act: how it is sent.
    :ivar batch: inputs of a family with the same batch are tried at the same time.
    :ivar may_touch_promises: whether the input itself, with root's rights, changes what others were promised: then the
        agent is to restore the promises in the time in which it serves a VM.
    :ivar stops_service: whether no VM can be served while the input is in force (root holds the lock on resctrl):
        the input then asks by itself whether VMs are served in time after it.
    :ivar threads: threads that VMs have for it; the agent needs some memory for each.
    :ivar kernel_waits: seconds that the kernel itself lets a VM wait that starts while the input is in force: it gives
        no RMID to anybody before it has looked at those that were given back.
    :ivar simulator_works: whether the simulator works for seconds for it where a kernel needs milliseconds. It is a
        program in Python, and asks /proc for each of a VM's thousands of threads: where the one resize took 2.76 s, it
        worked for 2.65 s of them. What it works longer than without an attack is added to the limit.
    """

    name: str
    attacker: Attacker
    act: Act
    batch: str = ""
    may_touch_promises: bool = False
    stops_service: bool = False
    threads: int = 0
    kernel_waits: float = 0.0
    simulator_works: bool = False


class Result(enum.Enum):
    """What came of an input."""

    REFUSED = "refused"
    HARMLESS = "harmless"
    HARMED = "harmed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one input.

    :ivar family: the name of its family.
    :ivar input: the name of the input.
    :ivar evidence: who refused it and how; or what was harmed; may be empty for a harmless input.
    """

    family: str
    input: str
    attacker: Attacker
    result: Result
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Inputs of one kind.

    :ivar title: what they are, for the table.
    """

    name: str
    title: str
    inputs: tuple[Input, ...]

    def batches(self) -> dict[str, list[Input]]:
        """The inputs that are tried at the same time, by the name of the batch."""
        found: dict[str, list[Input]] = {}
        for one in self.inputs:
            found.setdefault(one.batch or one.name, []).append(one)
        return found


@contextlib.contextmanager
def in_force(act: Act, stage: Stage) -> Iterator[None]:
    """Hold an input in force for the duration of the block."""
    with contextlib.contextmanager(act)(stage):
        yield
