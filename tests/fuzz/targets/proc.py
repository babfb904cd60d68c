# SPDX-License-Identifier: Apache-2.0
"""What /proc says of processes."""

from __future__ import annotations

import contextlib
import functools
import os
import re

from tests.fuzz.table import Parse
from tests.fuzz.targets import parts
from vmqos.hypervisor import cgroup as cgroups
from vmqos.hypervisor import exceptions, processes
from vmqos.pseudo_lock import region_users
from vmqos.resctrl import lock

UUID = b"38c43823-3651-469c-b344-166d1c87d77b"

_STAT = b"1 (qemu) S 1 " + b"0 " * 17 + b"4711 0\n"


def _in_own_proc(parse: Parse) -> Parse:
    """Have the parser find its files in a folder of ours, for as long as it runs."""

    @functools.wraps(parse)
    def parse_there(data: bytes) -> bool:
        usual, processes.PROC = processes.PROC, str(parts.folder() / "proc")
        try:
            return parse(data)
        finally:
            processes.PROC = usual

    return parse_there


def mountinfo(data: bytes) -> bool:
    found = list(cgroups.parse_mounts(data.split(b"\n")))
    for mount in found:
        assert "rw" not in mount.controllers
        own = cgroups.Membership(mount.controllers, f"{mount.root.rstrip('/')}/a")
        below = cgroups.below(mount, own)
        assert below is None or below == f"{mount.path.rstrip('/')}/a"
    return bool(found)


@_in_own_proc
def cgroup(data: bytes) -> bool:
    files = parts.split(data)
    parts.lay_down("proc/1/cgroup", files.get("cgroup", b""))
    parts.lay_down("proc/self/mountinfo", files.get("mountinfo", b""))
    found = cgroups.vm_cgroup(1)
    assert found is None or isinstance(cgroups.libvirt_id(found), int)
    memberships = cgroups.parse_memberships(files.get("cgroup", b""))
    for own in cgroups.own_folders(memberships):
        assert isinstance(cgroups.libvirt_id(own.path), int)
        assert any(one.path == own.path or one.path.startswith(f"{own.path}/") for one in memberships)
    return bool(memberships)


@_in_own_proc
def cmdline(data: bytes) -> bool:
    parts.lay_down("proc/1/cmdline", data)
    found = processes.says(1, (b"-uuid", UUID))
    assert found is (b"\0-uuid\0" + UUID + b"\0" in b"\0" + data)
    return found


def locks(data: bytes) -> bool:
    files, usual = parts.split(data), lock.PROC
    held = os.open(parts.lay_down("held", b""), os.O_RDONLY)
    try:
        status = os.fstat(held)
        file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        parts.lay_down("proc/locks", files.get("locks", b"").replace(b"FILE", file.encode()))
        parts.lay_down("proc/4711/comm", files.get("comm", b""))
        lock.PROC = str(parts.folder() / "proc")
        pids, told = lock.pids_that_hold(held), lock.who_holds(held)
    finally:
        lock.PROC = usual
        os.close(held)
    assert {int(one.split(" ", 2)[1]) for one in told} <= set(pids)
    return bool(told)


def maps(data: bytes) -> bool:
    files = parts.split(data)
    for name in ("maps", "comm", "cmdline"):
        parts.lay_down(f"users/1/{name}", files.get(name, b""))
    proc = parts.folder() / "users"
    if not (proc / "1/fd").exists():
        (proc / "1/fd").mkdir()
        (proc / "1/map_files").mkdir()
        (proc / "1/map_files/1000-2000").symlink_to("/dev/null")
    is_mapped = any(
        re.match(rb"0{0,12}1000-0{0,12}2000 ", line) and line.endswith(b"/dev/null")
        for line in files.get("maps", b"").split(b"\n")
    )
    found = region_users.users("/dev/null", str(proc))
    # On a busy machine it may be doubted that the process answers.
    assert bool(found) is is_mapped or any(user.doubt for user in found)
    return bool(found)


@_in_own_proc
def stat(data: bytes) -> bool:
    parts.lay_down("proc/1/task/1/stat", data)
    try:
        process = processes.of_pid(1)
    except exceptions.HypervisorError:
        return False
    descriptor = os.open(f"{processes.PROC}/1", os.O_RDONLY | os.O_DIRECTORY)
    try:
        thread = processes.thread_of(descriptor, 1)
    finally:
        os.close(descriptor)
    assert thread is not None and thread.start_time == process.start_time
    assert processes.still(process) is (thread.state not in ("Z", "X"))
    return True


@_in_own_proc
def status(data: bytes) -> bool:
    parts.lay_down("proc/1/task/1/stat", _STAT)
    parts.lay_down("proc/1/status", data)
    taken = False
    with contextlib.suppress(exceptions.HypervisorError):
        taken = processes.identify(1).tgid >= 0
    with contextlib.suppress(exceptions.HypervisorError):
        taken = all(uid >= 0 for uid in processes.uids(1)) or taken
    return taken
