# SPDX-License-Identifier: Apache-2.0
"""One function for each operation that recordings know."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.functional.replay.recording import Record, refused
from tests.functional.replay.stage import RECORDED_ROOT, Stage
from tests.functional.replay.verdict import Difference
from tools.lab import mounts

Handler = Callable[[Stage, Record], list[Difference]]

MS_REMOUNT = 32
BUSY = 60.0
"""Seconds; a mount is busy for a moment while any process of the machine walks over it, such as one that lists them."""
_NO_TASK = re.compile(r"No task (\d+)")


def _read(stage: Stage, record: Record) -> list[Difference]:
    if "QM_CTR says " in str(record.get("note")):
        word = record["note"].rpartition(" ")[2]
        stage.machine.do("fault", _domain_of_cpu_0(stage), word)
    elif record.get("note") == "normal again":
        stage.machine.do("fault", _domain_of_cpu_0(stage), None)
    recorded = {"errno": refused(record)} if refused(record) else record["ret"]
    if record.get("note") == "thread gone":
        stage.actor.do("stop_thread")
    found = stage.compare_file(record, "ret", record["path"], recorded)
    if record.get("note") == "thread gone":
        stage.actor.do("end_children")
    return found


def _domain_of_cpu_0(stage: Stage) -> int:
    return next(cache.id for cache in stage.profile.topology.l3 if 0 in cache.cpus)


def _write(stage: Stage, record: Record) -> list[Difference]:
    data = _stand_in_data(stage, record)
    result, failed = stage.actor.call("write", stage.path(record["path"]), [data], os.O_TRUNC)
    expected = len(data) if record["ret"] == len(record["data"]) else record["ret"]
    return stage.compare(record, result, failed, expected)


def _stand_in_data(stage: Stage, record: Record) -> str:
    """The data of a write, somebody standing for each task id that was alive."""
    path, data = record["path"], record["data"]
    if os.path.basename(path) != "tasks":
        return str(data)
    dead = set(_NO_TASK.findall(record.get("last_cmd_status") or ""))
    understood = "parsing error" not in (record.get("last_cmd_status") or "")
    for word in re.findall(r"0[xX][0-9a-fA-F]+|\d+", data):
        number = int(word, 16) if word[:2].lower() == "0x" else int(word)
        if understood and number and word not in dead and not stage.ids.known(number):
            stage.ids.start(number)
        if stage.ids.known(number):
            stage.ids.last = number
    return stage.ids.translate(data)


def _write_pieces(*pieces: str, flags: int = 0) -> Handler:
    def handler(stage: Stage, record: Record) -> list[Difference]:
        result, failed = stage.actor.call("write", stage.path(record["path"]), list(pieces), flags)
        return stage.compare(record, result, failed)

    return handler


def _path_only(name: str, *arguments: Any) -> Handler:
    def handler(stage: Stage, record: Record) -> list[Difference]:
        return stage.compare(record, *stage.actor.call(name, stage.path(record["path"]), *arguments))

    return handler


def _rename(stage: Stage, record: Record) -> list[Difference]:
    old, new = stage.path(record["path"]), stage.path(record["data"])
    return stage.compare(record, *stage.actor.call("rename", old, new))


def _chmod(stage: Stage, record: Record) -> list[Difference]:
    mode = int(stage.attributes_later(record["path"])["mode"], 8) & 0o7777
    return stage.compare(record, *stage.actor.call("chmod", stage.path(record["path"]), mode))


def _chown(stage: Stage, record: Record) -> list[Difference]:
    later = stage.attributes_later(record["path"])
    return stage.compare(record, *stage.actor.call("chown", stage.path(record["path"]), later["uid"], later["gid"]))


def _symlink(stage: Stage, record: Record) -> list[Difference]:
    return stage.compare(record, *stage.actor.call("symlink", "g0", stage.path(record["path"])))


def _mount(stage: Stage, record: Record) -> list[Difference]:
    failed = stage.mount(record["data"])
    return stage.compare(record, None if failed else 0, failed)


def _remount(stage: Stage, record: Record) -> list[Difference]:
    return stage.compare(record, *stage.actor.call("mount_again", stage.root, MS_REMOUNT, record["data"]))


def _umount(stage: Stage, record: Record) -> list[Difference]:
    if refused(record) == "EBUSY":
        stage.actor.do("open", stage.path("tasks"), os.O_RDONLY)
    result, failed = stage.umount()
    until = time.monotonic() + BUSY
    while failed == "EBUSY" != refused(record) and time.monotonic() < until:
        time.sleep(0.02)
        result, failed = stage.umount()
    stage.actor.do("close_all")
    return stage.compare(record, result, failed)


def _proc_mounts(stage: Stage, record: Record) -> list[Difference]:
    recorded = record["line"][0].split()[3].split(",")[2:]
    source = next(line[0] for line in mounts.fields("/proc/mounts") if line[1] == stage.root)
    ours = source.split("+")[1:]
    return [] if recorded == ours else [Difference(record, "options", recorded, ours)]


def _statvfs(stage: Stage, record: Record) -> list[Difference]:
    ours = stage.actor.do("statvfs", stage.root)
    ours["stat_f"] = stage.actor.do("run", ["stat", "-f", "-c", "%t %T", stage.root], "/")["stdout"]
    return [Difference(record, name, record[name], value) for name, value in ours.items() if record[name] != value]


def _tree(stage: Stage, record: Record) -> list[Difference]:
    path = "" if record["path"] == "." else record["path"]
    found = []
    status, failed = stage.actor.call("stat", stage.path(path))
    if failed:
        return [Difference(record, "stat", None, failed)]
    for name, value in status.items():
        if record[name] != value:
            found.append(Difference(record, name, record[name], value))
    if "entries" in record:
        entries = stage.actor.do("listdir", stage.path(path))
        if entries != record["entries"]:
            found.append(Difference(record, "entries", record["entries"], entries))
        return found
    recorded = {"errno": refused(record)} if refused(record) else record["content"]
    return found + stage.compare_file(record, "content", path, recorded)


def _listdir(stage: Stage, record: Record) -> list[Difference]:
    return stage.compare(record, *stage.actor.call("listdir", stage.path(record["path"])))


def _note(stage: Stage, record: Record) -> list[Difference]:
    for name, number in re.findall(r"(\w+)=(\d+)", record["text"]):
        if name == "self":
            stage.ids.name(int(number), stage.actor.do("pid"))
        else:
            stage.ids.start(int(number))
    return []


def _as_user(stage: Stage, record: Record) -> list[Difference]:
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    return _run(stage, record, user)


def _shell(stage: Stage, record: Record) -> list[Difference]:
    if "data" in record:
        return _shell_writes_itself(stage, record)
    return _run(stage, record, [])


def _run(stage: Stage, record: Record, before: list[str]) -> list[Difference]:
    """A shell command; a number that is written to a ``tasks`` file is a task id."""
    command = record["path"]
    written = re.fullmatch(r"echo ([\d ]+) > \S*tasks", command)
    if written:
        for word in written[1].split():
            if not stage.ids.known(int(word)):
                stage.ids.start(int(word))
        command = command.replace(written[1], stage.ids.translate(written[1]))
    result, failed = stage.actor.call("run", [*before, "sh", "-c", command], stage.root)
    expected = {**record["ret"], "stdout": stage.expected_status(record["ret"]["stdout"])}
    return stage.compare(record, result, failed, expected)


def _shell_writes_itself(stage: Stage, record: Record) -> list[Difference]:
    """``echo 0 > tasks``: the shell moves itself, and what it starts inherits that.

    The recording's shell also showed its ``/proc/self/cpu_resctrl_groups``, which is not simulated.
    """
    path = stage.path(record["path"])
    result = stage.actor.do("run", ["sh", "-c", f"echo 0 > {path}; echo rc=$?; cat {path}"], "/")
    recorded = re.sub(r"^(res|mon):.*\n", "", record["ret"], flags=re.MULTILINE).replace(RECORDED_ROOT, stage.root)
    outcome = [
        re.sub(r"^\d+$", "id", text, flags=re.MULTILINE) for text in (recorded, result["stdout"] + result["stderr"])
    ]
    found = [] if outcome[0] == outcome[1] else [Difference(record, "ret", *outcome)]
    return found + stage.compare({**record, "ret": None}, None, None)


def _fork(stage: Stage, record: Record) -> list[Difference]:
    return _inherit(stage, record, "fork", "child")


def _thread(stage: Stage, record: Record) -> list[Difference]:
    return _inherit(stage, record, "start_thread", "tid")


def _inherit(stage: Stage, record: Record, act: str, name: str) -> list[Difference]:
    tid = stage.actor.do(act)
    recorded = record["ret"]
    stage.ids.name(recorded[name], tid)
    listed = str(tid) in stage.actor.do("read", stage.path(record["path"])).split()
    ours = {name: recorded[name], "in_tasks": listed, "proc": stage.membership(f"/proc/{recorded[name]}/x")}
    return stage.compare(record, ours, None)


def _thread_stays(stage: Stage, record: Record) -> list[Difference]:
    recorded = record["ret"]
    listed = stage.actor.do("read", stage.path(record["path"])).split()
    ours = {
        "tid": recorded["tid"],
        "in_t1": str(stage.ids.real(recorded["tid"])) in listed,
        "leader_in_t1": str(stage.actor.do("pid")) in listed,
    }
    return stage.compare(record, ours, None)


def _zombie(stage: Stage, record: Record) -> list[Difference]:
    for tid in record["ret"].split():
        stage.ids.kill(int(tid))
    found = stage.compare_file(record, "ret", record["path"], record["ret"])
    return found + stage.compare({**record, "ret": None}, None, None)


def _last_task_died(stage: Stage, record: Record) -> list[Difference]:
    path = stage.path(record["path"])
    found = stage.compare({**record, "ret": os.path.isdir(path)}, record["ret"]["exists"], None)
    for name in ("tasks", "schemata", "mode"):
        found.extend(stage.compare_file(record, name, f"{record['path']}/{name}", record["ret"][name]))
    return found


def _in_default(stage: Stage, record: Record) -> list[Difference]:
    listed = stage.actor.do("read", stage.path(record["path"])).split()
    return stage.compare(record, str(stage.ids.real(stage.ids.last)) in listed, None)


def _write_removed(stage: Stage, record: Record) -> list[Difference]:
    data = f"{stage.ids.real(stage.ids.last)}\n" if record["path"].endswith("tasks") else "L3:0=3\n"
    return stage.compare(record, *stage.actor.call("write_open", stage.path(record["path"]), data))


def _getcwd(stage: Stage, record: Record) -> list[Difference]:
    return stage.compare(record, *stage.actor.call("getcwd"))


def _hotplug(online: bool) -> Handler:
    def handler(stage: Stage, record: Record) -> list[Difference]:
        stage.machine.do("set_online", int(record["path"].removeprefix("cpu")), online)
        return stage.compare(record, 1, None)

    return handler


def _count(stage: Stage, record: Record) -> list[Difference]:
    ours = len(stage.actor.do("listdir", stage.path("mon_groups")))
    return [] if ours == record["value"] else [Difference(record, "value", record["value"], ours)]


def _mkdir_until(stage: Stage, record: Record) -> list[Difference]:
    made, failed = 0, None
    while failed is None:
        _, failed = stage.actor.call("mkdir", stage.path(f"mon_groups/m{made}"), 0o777)
        made += failed is None
    found = [] if made == record["made"] else [Difference(record, "made", record["made"], made)]
    return found + stage.compare(record, None, failed)


def _mon(stage: Stage, record: Record) -> list[Difference]:
    group = "" if record["group"] == "." else record["group"] + "/"
    found = []
    for folder, files in record["values"].items():
        names = stage.actor.do("listdir", stage.path(f"{group}mon_data/{folder}"))
        if names != sorted(files):
            found.append(Difference(record, folder, sorted(files), names))
        for name, value in files.items():
            path = f"{group}mon_data/{folder}/{name}"
            found.extend(stage.compare_file(record, f"after {path}", path, value))
    return found


def _mbm_stopped(stage: Stage, record: Record) -> list[Difference]:
    path = stage.path("A/mon_data/mon_L3_00/mbm_total_bytes")
    for group in ("A", "B"):
        for tid in stage.actor.do("read", stage.path(f"{group}/tasks")).split():
            stage.ids.kill(stage.ids.recorded_of()[int(tid)])
    stage.ids.reap()
    before, after = stage.actor.do("read", path), stage.actor.do("read", path)
    same = record["before"] == record["after"]
    return [] if same == (before == after) else [Difference(record, "after", same, (before, after))]


def _pseudo_lock_state(stage: Stage, record: Record) -> list[Difference]:
    """The group's mode; the device is not resctrl's file."""
    if refused(record) is None and isinstance(record["ret"], Mapping) and "mode" in record["ret"]:
        path = f"{record['path']}/mode"
        return stage.compare_file(record, path, path, record["ret"]["mode"])
    return stage.compare({**record, "ret": None}, None, None)


HANDLERS: Mapping[str, Handler] = {
    "read": _read,
    "write": _write,
    "append-write": _write_pieces("L3:0=7\n", flags=os.O_APPEND),
    "write-twice-one-fd": _write_pieces("L3:0=1\n", "L3:0=3\n"),
    "write-split-one-fd": _write_pieces("L3:0=", "f\n"),
    "mkdir": _path_only("mkdir", 0o755),
    "rmdir": _path_only("rmdir"),
    "rename": _rename,
    "creat": _path_only("create"),
    "unlink": _path_only("unlink"),
    "symlink": _symlink,
    "chmod": _chmod,
    "chown": _chown,
    "chown-group": _chown,
    "flock-dir": _path_only("flock", os.O_RDONLY | os.O_DIRECTORY),
    "flock-file": _path_only("flock", os.O_RDWR),
    "mount": _mount,
    "remount": _remount,
    "umount": _umount,
    "proc-mounts": _proc_mounts,
    "statvfs": _statvfs,
    "tree": _tree,
    "listdir": _listdir,
    "note": _note,
    "as-uid-1000": _as_user,
    "shell": _shell,
    "inherit-fork": _fork,
    "inherit-thread": _thread,
    "thread-stays": _thread_stays,
    "zombie": _zombie,
    "last-task-died": _last_task_died,
    "in-default": _in_default,
    "read-open-fd-of-removed": _path_only("read_open"),
    "write-open-fd-of-removed": _write_removed,
    "getcwd": _getcwd,
    "offline": _hotplug(False),
    "online": _hotplug(True),
    "count": _count,
    "mkdir-until": _mkdir_until,
    "mon": _mon,
    "mbm-stopped": _mbm_stopped,
    "pl-state": _pseudo_lock_state,
    "pl-after-close": _pseudo_lock_state,
}
"""The operations that can be replayed; any other is reported as not judged."""
