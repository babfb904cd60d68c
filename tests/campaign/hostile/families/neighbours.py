# SPDX-License-Identifier: Apache-2.0
"""Other programs of root's on resctrl: their groups with odd names, and what they write into groups of the agent's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.campaign.hostile.inputs import Attacker, Family, Harm, Hold, Input, Late, Refused
from tests.campaign.hostile.stage import AUDIT, Stage
from tests.campaign.hostile.witness import GIVE_UP, WITHIN, group_of
from tools.lab import processes

TOP_WAY = "80000"
"""The mask of the highest of 20 ways, which the hardware shares: what a decent neighbour takes."""

NOBODY = "11111111-2222-3333-4444-555555555555"

NAMES: dict[str, bytes] = {
    "escape sequences": b"\x1b[2J\x1b]0;x\x07",
    "a carriage return": b"a\rb",
    "a line feed": b"a\nb",
    "a tab and blanks": b" a\tb ",
    "bytes that are no UTF-8": b"\xff\xfe\xc0",
    "a right-to-left mark": "\u202egpj".encode(),
    "a next-line character": "a\x85b".encode(),
    "250 bytes": b"g" * 250,
    "300 bytes": b"g" * 300,
    "the UUID of no VM": f"vmqos.{NOBODY}".encode(),
    "a UUID in capital letters": f"vmqos.{NOBODY}".upper().encode(),
    "our prefix alone": b"vmqos.",
    "a class that is none": b"vmqos.shared-",
    "a class of 99999 ways": b"vmqos.shared-ways99999",
    "a class with escape sequences": b"vmqos.shared-\x1b[2J",
    "a lock that is none": b"vmqos.lock-\x1b[31mx",
    "HTML": b"<img src=x onerror=alert(1)>",
    "quotes and backslashes": b"\"'\\",
    "a label of a metric": b'x",group="y"} 1',
    "dots": b"...",
    "info": b"info",
}


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the lock that decent programs hold."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(path: bytes) -> None:
    try:
        os.mkdir(path)
    except OSError as error:
        raise Refused(f"mkdir: {error.strerror}") from error


def _leave_ways(stage: Stage, path: bytes) -> None:
    """Give back the ways that the kernel gives a new group: all that no exclusive group has."""
    with open(path + b"/schemata", "w") as file:
        file.write("".join(f"L3:{cache}={TOP_WAY}\n" for cache in stage.tree.masks()))


def _remove(path: bytes) -> None:
    # Of groups that look like the agent's, it removes those of VMs that are gone.
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _group(stage: Stage, name: bytes) -> Hold:
    root = stage.simulator.root
    path = bytes(root) + b"/" + name
    with locked(root):
        _make(path)
        _leave_ways(stage, path)
    try:
        yield
    finally:
        _remove(path)


def _monitoring_group(stage: Stage, name: bytes) -> Hold:
    path = bytes(stage.simulator.root) + b"/mon_groups/" + name
    _make(path)
    try:
        yield
    finally:
        _remove(path)


def _all_rmids(stage: Stage) -> Hold:
    """Every RMID that is left is taken: a VM that needs a control group must have it none the less.

    The agent gives up a plain VM's monitoring group for it. How long that group's lines stay in the cache is the plain
    VM's affair, so the kernel is told to count an RMID as drained whatever it has left there.
    """
    threshold = stage.simulator.root / "info" / "L3_MON" / "max_threshold_occupancy"
    size = (stage.simulator.sysfs / "cpu0" / "cache" / "index3" / "size").read_text().strip()
    before, made = threshold.read_text(), []
    threshold.write_text(f"{int(size.removesuffix('K')) << 10}\n")
    try:
        for number in range(10_000):
            path = stage.simulator.root / "mon_groups" / f"foreign-{number}"
            if not _made_in_time(path.mkdir):
                break
            made.append(path)
        yield
    finally:
        for path in made:
            path.rmdir()
        threshold.write_text(before)


def _made_in_time(make: Callable[[], None]) -> bool:
    """Make a group, also where the kernel first has to look at RMIDs that were given back."""
    until = time.monotonic() + 3 * LIMBO
    while True:
        try:
            make()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


LIMBO = 1.0
"""Seconds between two looks of the kernel at RMIDs that were given back (``CQM_LIMBOCHECK_INTERVAL``). The agent may
ask for one just before such a look, and waits as long until it asks again."""

TOLD_WITHIN = AUDIT + WITHIN
"""Seconds in which the agent must say that a promise is broken that it must not mend. The kernel tells nobody of a task
that was moved, so the agent learns of it by its next audit."""

Touch = Callable[[Stage], None]


def _write(where: str, text: str) -> Touch:
    def touch(stage: Stage) -> None:
        group = where.replace("STEADY", group_of(stage.witness.steady))
        path = stage.simulator.root / group
        try:
            path.write_text(text)
        except OSError as error:
            raise Refused(f"write: {error.strerror}") from error

    return touch


def _masks(where: str, mask: str) -> Touch:
    return _write(where, f"L3:0={mask};1={mask}\n")


def _overlap(stage: Stage) -> None:
    """The class's mask is put over the exclusive VM's."""
    masks = stage.tree.masks(group_of(stage.witness.steady))
    text = ";".join(f"{cache}={mask:x}" for cache, mask in masks.items())
    _write("vmqos.shared-ways2/schemata", f"L3:{text}\n")(stage)


def _move_tasks(where: str) -> Touch:
    def touch(stage: Stage) -> None:
        for tid in stage.witness.steady.tasks():
            with contextlib.suppress(OSError):
                (stage.simulator.root / where / "tasks").write_text(f"{tid}\n")

    return touch


def _move_class(stage: Stage) -> None:
    for tid in stage.witness.classmate.tasks():
        with contextlib.suppress(OSError):
            (stage.simulator.root / "tasks").write_text(f"{tid}\n")


def _remove_group(where: str) -> Touch:
    def touch(stage: Stage) -> None:
        group = where.replace("STEADY", group_of(stage.witness.steady))
        os.rmdir(stage.simulator.root / group)

    return touch


def _close(stage: Stage) -> None:
    for path in (stage.simulator.root, stage.simulator.root / "schemata"):
        mode = path.stat().st_mode
        path.chmod(0)
        path.chmod(mode & 0o777)


def _rename(stage: Stage) -> None:
    old = stage.simulator.root / "vmqos.shared-ways2/mon_groups" / group_of(stage.witness.classmate)
    try:
        os.rename(old, stage.simulator.root / "mon_groups" / "renamed")
    except OSError as error:
        raise Refused(f"rename: {error.strerror}") from error


TOUCHES: dict[str, Touch] = {
    "an exclusive VM's mask made small": _masks("STEADY/schemata", "1"),
    "an exclusive VM's mask made large": _masks("STEADY/schemata", "fffff"),
    "an exclusive VM's mask on one cache alone": _write("STEADY/schemata", "L3:1=fffff\n"),
    "the default group's mask made large": _masks("schemata", "fffff"),
    "the default group's mask made small": _masks("schemata", "1"),
    "a class's mask put over an exclusive VM's": _overlap,
    "a class's mask made large": _masks("vmqos.shared-ways2/schemata", "fffff"),
    "an empty mask": _masks("STEADY/schemata", "0"),
    "a mask of a cache that does not exist": _write("STEADY/schemata", "L3:7=1\n"),
    "schemata of 100 000 bytes": _write("STEADY/schemata", "L3:0=1;" * 14_000 + "\n"),
    "schemata of zero bytes": _write("STEADY/schemata", "\0\0\0\n"),
    "an exclusive VM's tasks moved to the default group": _move_tasks(""),
    "an exclusive VM's tasks moved to a class": _move_tasks("vmqos.shared-ways2"),
    "a class's tasks moved to the default group": _move_class,
    "an exclusive VM's group removed": _remove_group("STEADY"),
    "a class removed": _remove_group("vmqos.shared-ways2"),
    "a VM's monitoring group removed": lambda stage: os.rmdir(
        stage.simulator.root / "vmqos.shared-ways2/mon_groups" / group_of(stage.witness.classmate)
    ),
    "a VM's monitoring group renamed": _rename,
    "permissions taken away for a moment": _close,
}


def _touched(stage: Stage, touch: Touch) -> Hold:
    touch(stage)
    yield


def taken(stage: Stage, name: str) -> Hold:
    """The tasks of an innocent VM are put into a foreign group, which is removed after the agent has told of it.

    As long as there is such a group, the agent leaves the tasks in it: groups of other programs are theirs.
    """
    path = f"/v1/vms/{stage.witness.steady.uuid}"
    folder = stage.simulator.root / name

    def make() -> None:
        with locked(stage.simulator.root):
            folder.mkdir()
            # While it has all ways that are free, no VM can get more.
            _leave_ways(stage, bytes(folder))

    if not _made_in_time(make):
        raise RuntimeError("no RMID became free for the foreign group")
    try:
        _move_tasks(name)(stage)
        began = time.monotonic()
        try:
            processes.wait_until(
                lambda: stage.agent.get(path, GIVE_UP)["state"] == "degraded", "the agent telling of it", GIVE_UP
            )
        except TimeoutError as error:
            raise Harm(str(error)) from error
        if (took := stage.stalls.took(began)) > TOLD_WITHIN:
            raise Late(f"the agent telling of it took {took:.1f} s, {TOLD_WITHIN:.1f} s are allowed")
        missing = stage.witness.steady.tasks().keys() - stage.tree.tasks(name)
        # A thread that has ended between the two looks was not taken out.
        if missing := missing & stage.witness.steady.tasks().keys():
            raise Harm(f"the agent took {len(missing)} tasks out of another program's group")
    finally:
        folder.rmdir()
    yield


def _inputs() -> Iterator[Input]:
    for number, (what, name) in enumerate(NAMES.items()):
        yield Input(
            f"a group called {what}", Attacker.NEIGHBOUR, partial(_group, name=name), f"groups {number // 4 + 1}"
        )
        act = partial(_monitoring_group, name=name)
        yield Input(f"a monitoring group called {what}", Attacker.NEIGHBOUR, act, "monitoring groups")
    yield Input("all RMIDs taken", Attacker.NEIGHBOUR, _all_rmids, kernel_waits=2 * LIMBO)
    for what, touch in TOUCHES.items():
        act = partial(_touched, touch=touch)
        yield Input(what, Attacker.NEIGHBOUR, act, "others' writes", may_touch_promises=True)
    act = partial(taken, name="foreign")
    yield Input("an exclusive VM's tasks moved to a foreign group", Attacker.NEIGHBOUR, act, may_touch_promises=True)


FAMILY = Family("neighbours", "other programs of root's on resctrl", tuple(_inputs()))
