# SPDX-License-Identifier: Apache-2.0
"""How large the house is, and how far it is from a VM's start to the first write: figures to hold a redesign to.

From the top of the source tree, as any user, with ``vmqos[agent,simulator,test]`` installed::

    python -m tools.measure_house --save before.json
    python -m tools.measure_house --before before.json

The agent's own loop makes the pass, over the simulator's machine in this process (:mod:`tests.unit.agent.machine`): a
VM with two ways starts on a host where no other VM runs. Counted are the functions of vmqos that the pass enters before
its first write of a schemata and before its first move of a task, and the files of these functions. libvirt is played,
so the domain XML is not parsed on the way. The early way begins with libvirt's status file, which is parsed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from tests.unit.agent.machine import PlayedLibvirt, SimulatedResctrl  # noqa: E402
from tools.lab.vms import Flavor, Vm, domain_xml  # noqa: E402
from vmqos.agent import loop  # noqa: E402
from vmqos.agent.loop import Agent  # noqa: E402
from vmqos.conf import loader  # noqa: E402
from vmqos.daemon.directory_watch import FileEvent  # noqa: E402
from vmqos.resctrl import mount  # noqa: E402

PACKAGES = ("vmqos", "nova_plugin", "ceilometer_pollster", "watcher_plugin")
PLANNER = "vmqos/allocation/"
KERNEL = "vmqos/simulator/"
"""What plays the kernel is not on the way."""
WRITES = {"schemata": "first write of a schemata", "tasks": "first move of a task"}

Figures = dict[str, int | str]
Ways = dict[str, list[tuple[str, str]]]
"""What is counted, to the path and the name of each function on the way to it, in the order of entering."""
Watch = Callable[[Callable[[CodeType], Any]], None]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Measure the size of the source tree, and the way to the first write.")
    parser.add_argument("--save", metavar="FILE", help="write the figures to this file, as JSON")
    parser.add_argument("--before", metavar="FILE", help="show the figures of this file beside those of now")
    parser.add_argument(
        "--list", action="store_true", help="print the functions that are counted, in order of entering"
    )
    asked = parser.parse_args()
    ways: Ways = {}
    now = size() | walk(ways) | walk_early(ways)
    before: Figures = json.loads(Path(asked.before).read_text()) if asked.before else {}
    table = Table("Figure", *(["before"] if before else []), "now")
    for name, value in now.items():
        table.add_row(name, *([str(before.get(name, "-"))] if before else []), str(value))
    Console().print(table)
    for what, way in ways.items() if asked.list else ():
        print(f"\n{what}:", *(f"{path:45} {name}" for path, name in way), sep="\n    ")
    if asked.save:
        Path(asked.save).write_text(json.dumps(now, indent=2) + "\n")


def size() -> Figures:
    """Files, lines, types, the longest function and the fullest folder of the packages that are installed."""
    files = [path for package in PACKAGES for path in sorted((CHECKOUT / package).rglob("*.py"))]
    lines = types = 0
    longest, folders = (0, ""), dict[str, int]()
    for path in files:
        text = path.read_text()
        lines += text.count("\n")
        folder = str(path.parent.relative_to(CHECKOUT))
        folders[folder] = folders.get(folder, 0) + (path.name != "__init__.py")
        for node in ast.walk(ast.parse(text)):
            types += isinstance(node, ast.ClassDef)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                place = f"{path.relative_to(CHECKOUT)}:{node.name}"
                longest = max(longest, (node.end_lineno - node.lineno + 1, place))
    fullest = max(folders, key=lambda folder: folders[folder])
    return {
        "files": len(files),
        "lines": lines,
        "types": types,
        "longest function, lines": f"{longest[0]} ({longest[1]})",
        "fullest folder, files": f"{folders[fullest]} ({fullest})",
    }


def walk(ways: Ways) -> Figures:
    """The files and functions on the way from libvirt's word of a VM's start to the first writes."""
    with _host() as (agent, resctrl, libvirt, watch):
        uuid = libvirt.boot({"hw:cache_ways": "2"})
        found = _watched(resctrl, watch, ways, "")
        agent._on_change(uuid)
        agent.run_passes()
        return found


def walk_early(ways: Ways) -> Figures:
    """The same from libvirt's status file of a VM that it is starting: once before QEMU is forked, and once after."""
    with _host() as (agent, resctrl, _, watch):
        vm = Vm("early", Flavor("flavor", {"hw:cache_ways": "2"}))
        file = Path(agent.conf.libvirt.run_dir, f"{vm.name}.xml")
        found = _watched(resctrl, watch, ways, "early, ")
        for pid in (0, os.getpid()):
            file.write_text(f"<domstatus state='paused' reason='starting up' pid='{pid}'>{domain_xml(vm)}</domstatus>")
            agent.start_watch._take([FileEvent(file.name, is_gone=False)])
        return found


def _watched(resctrl: SimulatedResctrl, watch: Watch, ways: Ways, prefix: str) -> Figures:
    """What was entered before the first writes, of those that are made from now on."""
    entered: dict[CodeType, None] = {}
    found: Figures = {}

    def written(path: str) -> None:
        what = f"{prefix}{WRITES.get(os.path.basename(path), '')}"
        # A read goes the same way, and only what is written now was opened to be written.
        if what != prefix and _is_in_write() and f"{what}: files" not in found:
            ways[what] = _ours(list(entered))
            found.update(_counts(what, ways[what]))

    resctrl.before = written
    watch(lambda code: entered.setdefault(code))
    return found


def _is_in_write() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is SimulatedResctrl.write.__code__:
            return True
        frame = frame.f_back
    return False


def _ours(entered: Sequence[CodeType]) -> list[tuple[str, str]]:
    """The path and the name of each function that counts, in the order of entering."""
    ours = [code for code in entered if code.co_filename.startswith(f"{CHECKOUT}/vmqos/")]
    # Comprehensions and lambdas are part of the function that they are in.
    named = [(os.path.relpath(code.co_filename, CHECKOUT), code.co_qualname) for code in ours if code.co_name[0] != "<"]
    return [(path, name) for path, name in dict.fromkeys(named) if not path.startswith(KERNEL)]


def _counts(what: str, named: Sequence[tuple[str, str]]) -> Figures:
    planner = {(path, name) for path, name in named if path.startswith(PLANNER)}
    others = set(named) - planner
    return {
        f"{what}: files": len({path for path, _ in others}),
        f"{what}: functions": len(others),
        f"{what}: files of the planner": len({path for path, _ in planner}),
        f"{what}: functions of the planner": len(planner),
    }


@contextlib.contextmanager
def _host() -> Iterator[tuple[Agent, SimulatedResctrl, PlayedLibvirt, Watch]]:
    """An agent that is at rest on a host without a VM, and a function that has each call told from then on."""
    told: list[Callable[[CodeType], Any]] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if told and event == "call":
            told[0](frame.f_code)

    with tempfile.TemporaryDirectory() as folder:
        root, sysfs, conf = Path(folder, "resctrl"), Path(folder, "cpu"), Path(folder, "vmqos.conf")
        root.mkdir()
        conf.write_text(
            f"[libvirt]\nrun_dir = {folder}\n[resctrl]\npath = {root}\nsysfs_cpu_path = {sysfs}\n"
            f"[agent]\nstate_path = {folder}\naudit_interval = 60\nfull_audit_interval = 600\n"
        )
        resctrl, libvirt = SimulatedResctrl(root, sysfs), PlayedLibvirt()
        # The folder is no mount point.
        mounted = mount.Mount(str(root), frozenset(), read_only=False, simulated=True)
        threading.setprofile(profile)
        with (
            mock.patch.object(loop, "Filesystem", lambda path: resctrl),
            mock.patch.object(loop, "Connection", lambda *_, **__: libvirt),
            mock.patch.object(mount, "find", lambda path, **_: mounted),
        ):
            agent = Agent(loader.load(["--config-file", str(conf)]))
            try:
                for _ in range(3):
                    agent.run_passes()
                sys.setprofile(profile)
                yield agent, resctrl, libvirt, told.append
            finally:
                sys.setprofile(None)
                libvirt.end()
                agent._running_vms.close()


if __name__ == "__main__":
    main()
