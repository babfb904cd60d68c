# SPDX-License-Identifier: Apache-2.0
"""A resctrl with all who are compared on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks import rivals
from tests.benchmarks.contest import Side, nothing
from tests.benchmarks.figures import Action, timed
from tests.benchmarks.instructions import Counter, let_rmids_go
from tests.benchmarks.rivals import Pqos, SystemCalls
from vmqos.resctrl import groups, mount
from vmqos.resctrl.filesystem import Filesystem

OURS, LIMIT, PQOS, GORESCTRL = "vmqos", "the system calls in C", "pqos", "goresctrl"
GROUP = "vmqos.00000000-0000-0000-0000-0000000000be"


@dataclass(frozen=True, slots=True)
class Arena:
    """Where they meet.

    :ivar counters: of instructions, by side; empty where nobody counts them.
    :ivar pqos: ``None`` where it is not installed, or this is not the kernel's own resctrl.
    :ivar goresctrl: the program that reads counters by goresctrl (``goresctrl/main.go``); ``None`` where there is none.
    """

    filesystem: Filesystem
    counters: dict[str, Counter]
    pqos: Pqos | None
    goresctrl: str | None = None

    @contextlib.contextmanager
    def group(self) -> Iterator[str]:
        """A control group that all of them know: one of pqos's, which takes every CLOSID, where pqos is there."""
        if self.pqos:
            with rivals.groups_of_pqos(self.filesystem, self.pqos) as names:
                yield names[0]
            return
        groups.create(self.filesystem, GROUP)
        try:
            yield GROUP
        finally:
            groups.remove(self.filesystem, GROUP)

    def ours(self, action: Action) -> Side:
        """This process."""
        return Side(OURS, lambda: timed(action), self.counters.get(OURS), lambda: timed(nothing))

    def limit(self, calls: SystemCalls, queue: int = 0) -> Side:
        """One queue of the C program."""
        counter = self.counters.get(LIMIT)
        if counter:
            counter.watch(calls.pid)
        return Side(LIMIT, lambda: calls.go(queue), counter, calls.rest)

    def pqos_sides(self, *arguments: str) -> list[Side]:
        """pqos with these arguments; nobody where it is not there."""
        pqos = self.pqos
        return [Side(PQOS, lambda: pqos.run(*arguments), self.counters.get(PQOS))] if pqos else []


@contextlib.contextmanager
def arena(root: str, *, count: bool, goresctrl: str | None = None) -> Iterator[Arena]:
    """Prepare an empty resctrl, and leave it empty.

    :param count: whether its bandwidth counters count instructions, as in the kernel lab, and no bytes.
    """
    filesystem = Filesystem(root)
    with contextlib.ExitStack() as leaving:
        counters = {}
        if count:
            let_rmids_go(filesystem)
            for name in (OURS, LIMIT, PQOS, *([GORESCTRL] if goresctrl else [])):
                counters[name] = Counter(filesystem, name.split()[-1])
                leaving.callback(counters[name].close)
            counters[OURS].watch(os.getpid())
        with_pqos = rivals.pqos_is_there() and root == mount.DEFAULT_PATH and not mount.find(root).simulated
        yield Arena(filesystem, counters, Pqos(counters.get(PQOS)) if with_pqos else None, goresctrl)
