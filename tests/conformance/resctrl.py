# SPDX-License-Identifier: Apache-2.0
"""One machine's resctrl as a case sees it: what its files and registers say, and that nothing of it is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.answer import Answer
from tests.conformance.differences import IO_ALLOC, Difference
from tests.conformance.operations import Operations, content_of
from tests.conformance.registers import registers_of
from tests.conformance.target import Target
from vmqos.simulator.hardware.profiles import Profile

_PATIENCE = 300
"""How often a case that needs an RMID lets limbo pass."""


class Resctrl(Operations):
    """A machine's resctrl, for one case.

    :param profile: the machine.
    """

    def __init__(self, target: Target, profile: Profile) -> None:
        super().__init__(target)
        self.profile = profile
        self._steers_bandwidth = False

    def has(self, difference: Difference) -> bool:
        """Whether its kernel does it the newer way."""
        return difference.is_in(self.profile.kernel.version)

    def cache_ids(self, level: int) -> list[int]:
        """The ids of the caches of a level, ascending."""
        return [cache.id for cache in self.profile.topology.caches(level)]

    def mount(self, options: str = "") -> str | None:
        """See :meth:`.Operations.mount`."""
        failed = super().mount(options)
        if failed is None:
            self._steers_bandwidth = "mba_MBps" in options.split(",")
            self._let_rmids_drain()
        return failed

    def group(self, path: str) -> str:
        """Make a group that the case needs, however long the RMIDs of those before stay in limbo.

        :return: ``path``.
        """
        self._make(path, 0o755)
        self.record("group", path, "", None)
        return path

    def mkdir(self, path: str, mode: int = 0o755, *, at_once: bool = False) -> Answer:
        """See :meth:`.Operations.mkdir`; RMIDs that are in limbo are waited for.

        :param at_once: do not wait: the case is about limbo.
        """
        if at_once:
            return super().mkdir(path, mode)
        return self._act("mkdir", path, f"{mode:o}", lambda: self._make(path, mode))

    def _make(self, path: str, mode: int) -> None:
        """Make a group, once there is an RMID out of limbo; what was said until then is forgotten."""
        for attempt in range(_PATIENCE):
            try:
                os.mkdir(self.path(path), mode)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                self.target.let_limbo_pass()
                continue
            if attempt:
                self._forget_messages()
            return
        raise TimeoutError(f"no RMID left limbo for {path}")

    @contextmanager
    def lasting_limbo(self) -> Iterator[None]:
        """See :meth:`.Target.lasting_limbo`."""
        with self.target.lasting_limbo(self.profile.num_rmids):
            yield

    # -- what files say -----------------------------------------------------------------------------------------

    def lines(self, path: str) -> dict[str, dict[int, str]]:
        """``schemata`` or ``size``: by the line's name and the cache's id, without the blanks."""
        found = {}
        for line in self.read(path).splitlines():
            name, _, values = line.partition(":")
            pairs = (value.partition("=") for value in values.split(";"))
            found[name.strip()] = {int(number): value.strip() for number, _, value in pairs}
        return found

    def masks(self, name: str, group: str = "") -> dict[int, int]:
        """The masks of a line of a group's ``schemata``, by the cache's id."""
        return {number: int(value, 16) for number, value in self.lines(_in(group, "schemata"))[name].items()}

    def bandwidths(self, group: str = "") -> dict[int, int]:
        """The values of the line ``MB`` of a group's ``schemata``, by the cache's id."""
        return {number: int(value) for number, value in self.lines(_in(group, "schemata"))["MB"].items()}

    def usage(self, name: str) -> dict[int, str]:
        """``bit_usage``, by the cache's id."""
        pairs = (value.partition("=") for value in self.read(f"info/{name}/bit_usage").strip().split(";"))
        return {int(number): letters for number, _, letters in pairs}

    def tasks(self, group: str = "") -> set[int]:
        """Those of a group's tasks that the case has named (:class:`.Tasks`)."""
        return {int(word) for word in self.read(_in(group, "tasks")).split()} & self.names.tids()

    def cpus(self, group: str = "") -> str:
        """The CPUs of a group as a list."""
        return self.read(_in(group, "cpus_list")).strip()

    # -- what registers say -------------------------------------------------------------------------------------

    def register(self, level: int, cache: int, number: int) -> int | str:
        """What is in a register of a cache: every CPU of it has to say the same.

        :return: the value, or the name of the error if there is no such register.
        """
        topology = self.profile.topology
        cpus = next(sorted(one.cpus) for one in topology.caches(level) if one.id == cache)
        values = set(self.target.registers([(cpu, number) for cpu in cpus]))
        self.record("rdmsr", f"L{level} {cache}", f"{number:#x}", None, sorted(map(str, values)))
        assert len(values) == 1, f"the CPUs of L{level} {cache} do not agree on {number:#x}: {values}"
        return values.pop()

    def record_registers(self) -> None:
        """Record what is in every register of allocation.

        Under ``mba_MBps`` those of bandwidth are left out: the kernel changes them every second by what it measures
        (``update_mba_bw()`` in ``fs/resctrl/monitor.c``).
        """
        steered = self._steers_bandwidth
        wanted = [one for one in registers_of(self.profile) if not (steered and one.cache.startswith("MB "))]
        values = self.target.registers([(one.cpu, one.number) for one in wanted])
        content = {
            f"{one.cache} {one.number:#x}": f"{value:#x}" if isinstance(value, int) else value
            for one, value in zip(wanted, values, strict=True)
        }
        self.record("registers", "", "", None, content)

    # -- the end ------------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Record the registers, whether or not it is still mounted, and leave nothing mounted.

        :raises AssertionError: if it cannot be unmounted.
        """
        self.record_registers()
        if self.is_mounted:
            self._unlock_regions()
            self._free_devices()
            failed = self.target.umount()
            self.is_mounted = failed is not None
            assert failed is None, f"umount: {failed}"

    def _unlock_regions(self) -> None:
        """Remove pseudo-locked groups: to unmount while there is one hangs newer kernels (see ``differences``)."""
        if not self.profile.pseudo_lock:
            return
        for name in os.listdir(self.root):
            mode = self.path(f"{name}/mode")
            if os.path.exists(mode) and content_of(mode) == "pseudo-locked\n":
                os.rmdir(self.path(name))

    def _free_devices(self) -> None:
        """Confine devices to no ways any more: umount leaves that as it is."""
        if self.profile.l3 is None or not self.profile.l3.io_alloc or not self.has(IO_ALLOC):
            return
        for name in ("L3", "L3CODE"):
            switch = self.path(f"info/{name}/io_alloc")
            if os.path.exists(switch) and content_of(switch) == "enabled\n":
                with open(switch, "w", encoding="ascii") as file:
                    file.write("0\n")

    def _let_rmids_drain(self) -> None:
        """Raise the threshold of limbo where it is 0 at boot: no RMID would ever be free again."""
        threshold = self.path("info/L3_MON/max_threshold_occupancy")
        if self.profile.monitoring and self.profile.threshold == 0 and content_of(threshold) == "0\n":
            with open(threshold, "w", encoding="ascii") as file:
                file.write(f"{self.profile.threshold_limit}\n")

    def _forget_messages(self) -> None:
        """Clear ``last_cmd_status``, as a write of no tasks does on every kernel."""
        with open(self.path("tasks"), "w", encoding="ascii") as file:
            file.write("\n")


def _in(group: str, file: str) -> str:
    return f"{group}/{file}" if group else file
