# SPDX-License-Identifier: Apache-2.0
"""The stage of a replay: the simulated machine, the process that acts on it, and what stands for what."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from tests.functional.replay.processes import Peer, StandIns, actor, machine_server
from tests.functional.replay.recording import Record, refused
from tests.functional.replay.verdict import Difference
from vmqos.simulator.hardware.profiles import Profile

RECORDED_ROOT = "/sys/fs/resctrl"
_ABOUT_TASKS = re.compile(r"No task|processing task|to move task|parsing error pid|Invalid pid")
_OPEN = "-open-fd-of-removed"
_NOT_GROUPS = {"info", "mon_groups", "mon_data"}
_OF_THE_ROOT = _NOT_GROUPS | {
    *("cpus", "cpus_list", "ctrl_hw_id", "mba_MBps_event", "mode", "mon_hw_id", "schemata", "size", "tasks")
}


class Stage:
    """Everything a replay needs.

    :param mountpoint: a directory that every user may enter.
    """

    def __init__(self, profile: Profile, mountpoint: str) -> None:
        self.profile = profile
        self.root = mountpoint
        self.machine: Peer = machine_server(profile)
        self.actor: Peer = actor()
        self.ids = StandIns()
        self.mounted = False
        self._later: Sequence[Record] = ()

    def close(self) -> None:
        """End everything that was started and leave no mount."""
        self.actor.end()
        self.ids.end()
        with contextlib.suppress(OSError):
            if self.mounted:
                os.system(f"umount -l {self.root}")
        self.machine.end()

    def path(self, recorded: str) -> str:
        """Where a recorded path is here."""
        if recorded.startswith(RECORDED_ROOT):
            recorded = recorded[len(RECORDED_ROOT) :].lstrip("/")
        return recorded if recorded.startswith("/") else os.path.join(self.root, recorded)

    # -- what the recording does not say ------------------------------------------------------------------------

    def prepare(self, records: Sequence[Record], number: int) -> None:
        """Do what the recording's script did, or what its machine had seen, between two records."""
        record = records[number]
        previous = records[number - 1] if number else None
        self._later = records[number + 1 :]
        if previous is not None and previous["op"] == "zombie":
            self.ids.reap()
        if self.mounted and record["op"] != "umount":
            self._sweep(records, number, previous)
        if record["op"] == "rmdir" and refused(record) is None:
            self._hold(records, number)
        leaves_lock_setup = record["op"] == "write" and record["path"].endswith("/mode")
        if (record["op"] in ("mkdir", "mkdir-until") or leaves_lock_setup) and self.mounted:
            self._let_limbo_pass(record, previous)

    def _sweep(self, records: Sequence[Record], number: int, previous: Record | None) -> None:
        """Remove every group where the script did so without a record.

        It does at the end of a section, unless the next one goes on with a group; before it makes a group that exists;
        and before it lists the root's groups or monitoring groups and finds none.
        """
        record = records[number]
        if previous is not None and previous["sec"] != record["sec"]:
            if not self._goes_on(records, number):
                self.remove_groups()
            return
        made_again = record["op"] == "mkdir" and refused(record) is None and os.path.isdir(self.path(record["path"]))
        none_listed = record["op"] == "listdir" and record["path"] in ("", "mon_groups") and not _groups_listed(record)
        if made_again or none_listed:
            self.remove_groups()

    def _goes_on(self, records: Sequence[Record], number: int) -> bool:
        """Whether a section uses a group that exists before it makes one of that name."""
        made: set[str] = set()
        existing = set(self.groups_in(""))
        for record in records[number:]:
            if record["sec"] != records[number]["sec"]:
                break
            first = str(record.get("path", "")).split("/")[0]
            if record["op"] == "mkdir":
                made.add(first)
            elif first in existing and first not in made:
                return True
        return False

    def _hold(self, records: Sequence[Record], number: int) -> None:
        """Open the files, or enter the directory, that a later record has open in the group removed now."""
        path = records[number]["path"]
        for later in records[number + 1 :]:
            if later["op"] in ("mkdir", "rmdir") and later["path"] == path:
                break
            if later["op"].endswith(_OPEN) and later["path"].startswith(path + "/"):
                self.actor.do("open", self.path(later["path"]), os.O_RDWR)
            if later["op"] == "getcwd" and later["path"] == path:
                self.actor.do("chdir", self.path(path))
        if "device open" in str(records[number].get("note")):
            self.machine.do("hold_device", path, True)

    def _let_limbo_pass(self, record: Record, previous: Record | None) -> None:
        """Let RMIDs leave limbo where the recording shows that they had.

        When lines have drained is the hardware's matter, and when the kernel looks is the clock's. So time stands
        still until a free RMID is needed; then all are let go, or, if the recording shows later that some were still
        in limbo, no more than are needed.
        """
        rmids = self.machine.do("rmids")
        none_was_in_limbo = record["op"] == "mkdir-until" or (
            refused(record) == "ENOSPC" and _says_out_of_rmids(record, previous)
        )
        if none_was_in_limbo:
            self.machine.do("leave_limbo", None)
        elif refused(record) is None and not rmids["free"]:
            self.machine.do("leave_limbo", 1 if self._some_are_still_in_limbo() else None)

    def _some_are_still_in_limbo(self) -> bool:
        """Whether a later record is refused for that before one shows that limbo was empty."""
        for later in self._later:
            if later["op"] == "mkdir-until":
                return False
            no_rmid = later["op"] == "mkdir" and "Out of RMIDs" in (later.get("last_cmd_status") or "")
            if no_rmid and refused(later) in ("EBUSY", "ENOSPC"):
                return refused(later) == "EBUSY"
        return False

    def attributes_later(self, path: str) -> Record:
        """What a later listing shows of a path whose mode or owner is changed now; anything, if it does not exist."""
        shown = (record for record in self._later if record["op"] == "tree" and record["path"] == path)
        return next(shown, {"mode": "644", "uid": 0, "gid": 0})

    def finish(self, records: Sequence[Record], number: int) -> None:
        """Clear up after a record."""
        following = records[number + 1]["op"] if number + 1 < len(records) else ""
        if records[number]["op"].endswith(_OPEN) and not following.endswith(_OPEN):
            self.actor.do("close_all")

    # -- groups -------------------------------------------------------------------------------------------------

    def groups_in(self, folder: str) -> list[str]:
        """The groups in the root or in a ``mon_groups``."""
        path = self.path(folder)
        if not os.path.isdir(path):
            return []
        return [
            name
            for name in os.listdir(path)
            if os.path.isdir(os.path.join(path, name)) and (folder or name not in _NOT_GROUPS)
        ]

    def remove_groups(self) -> None:
        """What the script's ``reset`` does."""
        for folder in ("", "mon_groups"):
            for name in self.groups_in(folder):
                os.rmdir(os.path.join(self.path(folder), name))

    def mount(self, options: str) -> str | None:
        """Mount the simulated machine.

        :return: the name of the error if it refuses.
        """
        _, failed = self.machine.call("mount", self.root, options)
        if failed is None:
            deadline = time.monotonic() + 60
            while not os.path.ismount(self.root):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the simulator did not appear at {self.root}")
                time.sleep(0.005)
            self.mounted = True
        return failed

    def umount(self) -> tuple[Any, str | None]:
        """Unmount it, and wait until the machine knows."""
        result, failed = self.actor.call("umount", self.root)
        if failed is None:
            self.mounted = False
            deadline = time.monotonic() + 60
            while self.machine.do("is_mounted"):
                if time.monotonic() > deadline:
                    raise RuntimeError("the simulator did not see its umount")
                time.sleep(0.005)
        return result, failed

    # -- answers ------------------------------------------------------------------------------------------------

    def status(self) -> str | None:
        """``last_cmd_status``; ``None`` if it cannot be read."""
        text, failed = self.actor.call("read", self.path("info/last_cmd_status"))
        return None if failed else str(text)

    def expected_status(self, recorded: str | None) -> str | None:
        """A recorded status with the stand-ins' ids."""
        return self.ids.translate(recorded) if recorded and _ABOUT_TASKS.search(recorded) else recorded

    def compare(self, record: Record, result: Any, failed: str | None, expected: Any = None) -> list[Difference]:
        """Compare an operation's outcome, the status after it, and the files that were read after it.

        :param expected: the return value, if it is another one than was recorded.
        """
        found = []
        if refused(record) != failed:
            found.append(Difference(record, "errno", refused(record), failed))
        wanted = record.get("ret") if expected is None else expected
        if failed is None and refused(record) is None and wanted != result:
            found.append(Difference(record, "ret", wanted, result))
        if record.get("last_cmd_status") is not None:
            status, ours = self.expected_status(record["last_cmd_status"]), self.status()
            if status != ours:
                found.append(Difference(record, "last_cmd_status", status, ours))
        for path, content in (record.get("after") or {}).items():
            found.extend(self.compare_file(record, f"after {path}", path, content))
        return found

    def compare_file(self, record: Record, what: str, path: str, recorded: Any) -> list[Difference]:
        """Compare a file's content, or the error that reading it gives."""
        if path.endswith("/cpu_resctrl_groups"):
            ours, failed = self.membership(path), None
        else:
            ours, failed = self.actor.call("read", self.path(path))
        if isinstance(recorded, dict) or failed:
            told = recorded["errno"] if isinstance(recorded, dict) else recorded
            return [] if told == failed else [Difference(record, what, recorded, failed or ours)]
        if os.path.basename(path) == "tasks":
            recorded, ours = self._comparable_tasks(path, recorded, str(ours))
        return [] if recorded == ours else [Difference(record, what, recorded, ours)]

    def _comparable_tasks(self, path: str, recorded: str, ours: str) -> tuple[Any, Any]:
        """Both lists as sets of recorded ids.

        Of the default group's, only the tasks that were recorded in it and somebody here stands for: the rest
        are the machine's own, or had ended when it was recorded.
        """
        real = {self.ids.recorded_of().get(int(tid), -int(tid)) for tid in ours.split()}
        wanted = {int(tid) for tid in recorded.split()}
        if path == "tasks":
            wanted &= set(self.ids.recorded_of().values())
            real &= wanted
        return sorted(wanted), sorted(real)

    def membership(self, path: str) -> str:
        """What ``/proc/PID/cpu_resctrl_groups`` would say, told from the ``tasks`` files."""
        if not self.mounted:
            return "res:\nmon:\n"
        part = path.split("/")[-2]
        tid = self.actor.do("pid") if part == "self" else self.ids.real(int(part))
        for group in [*self.groups_in(""), ""]:
            # Where nothing can be allocated, the default group has every task and lists none.
            if self._lists(group, tid) or not (group or self.profile.can_allocate):
                folder = f"{group}/mon_groups".lstrip("/")
                mon = next((name for name in self.groups_in(folder) if self._lists(f"{folder}/{name}", tid)), "")
                return f"res:{group or '/'}\nmon:{mon}\n"
        return "nowhere"

    def _lists(self, group: str, tid: int) -> bool:
        try:
            with open(os.path.join(self.path(group), "tasks"), encoding="ascii") as file:
                return str(tid) in file.read().split()
        except PermissionError:
            return False

    def task_data(self, path: str, data: str) -> str:
        """What to write where the recording wrote ``data``: to a ``tasks`` file, the stand-ins' ids."""
        return self.ids.translate(data) if os.path.basename(path) == "tasks" else data


def _groups_listed(record: Record) -> set[str]:
    """The groups in a recorded listing of the root or its ``mon_groups``."""
    return set() if refused(record) else set(record["ret"]) - _OF_THE_ROOT


def _says_out_of_rmids(record: Record, previous: Record | None) -> bool:
    """Whether a refused mkdir added the message about RMIDs."""
    before = (previous or {}).get("last_cmd_status") or ""
    now = record.get("last_cmd_status") or ""
    return now.count("Out of RMIDs") > before.count("Out of RMIDs") or now == "Out of RMIDs\n"
