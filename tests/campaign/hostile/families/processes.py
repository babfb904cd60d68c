# SPDX-License-Identifier: Apache-2.0
"""/proc of a QEMU that is taken over: its command line, its threads' names and numbers, its children."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

from tests.campaign.hostile.inputs import Act, Attacker, Family, Harm, Hold, Input
from tests.campaign.hostile.stage import Stage
from tests.campaign.hostile.witness import group_of

ESC = "\x1b"
MEBIBYTE = 1 << 20


def _ordered(stage: Stage, what: str, role: str, details: dict[str, Any]) -> Hold:
    with stage.tenants.get(role).doing(what, **details):
        yield


def order(what: str, *, role: str = "first", **details: Any) -> Act:
    """The tenant's process does something that ends with the input."""
    return partial(_ordered, what=what, role=role, details=details)


def _argv(stage: Stage, begin: str, size: int, end: str, role: str) -> Hold:
    tenant, other = stage.tenants.get(role), stage.tenants.get("second").vm.uuid
    names = {"OWN": tenant.vm.uuid, "OTHER": other}
    begin, end = (_filled(text, names) for text in (begin, end))
    with tenant.doing("argv", begin=begin, size=max(size, len(begin) + len(end)), end=end):
        yield


def _filled(text: str, names: dict[str, str]) -> str:
    for name, uuid in names.items():
        text = text.replace(name, uuid)
    return text


def argv(begin: str = "", size: int = 0, end: str = "", role: str = "first") -> Act:
    """The tenant's argv is so many bytes; OWN and OTHER in its text are UUIDs."""
    return partial(_argv, begin=begin, size=size, end=end, role=role)


def _innocent_argv(stage: Stage) -> Hold:
    """The tenant says on its command line that it is an innocent VM's process, and must not get into its group."""
    tenant = stage.tenants.get("first")
    uuid, group = stage.witness.steady.uuid, group_of(stage.witness.steady)
    begin = f"qemu-system-x86_64\0-uuid\0{uuid}\0"
    with tenant.doing("argv", begin=begin, size=len(begin)):
        yield
        if tenant.pid in stage.tree.tasks(group):
            raise Harm("the tenant's process is in another VM's group")


def _stopped(stage: Stage, role: str) -> Hold:
    tenant = stage.tenants.get(role)
    os.kill(tenant.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(tenant.pid, signal.SIGCONT)


def _of_its_own(stage: Stage, what: str, details: dict[str, Any]) -> Hold:
    """Something that a VM does not come back from."""
    tenant = stage.tenants.start({"hw:cache_ways": "1"})
    try:
        time.sleep(0.3)
        tenant.order(what, **details)
        yield
    finally:
        stage.tenants.remove(tenant)


def once(what: str, **details: Any) -> Act:
    """A tenant's VM that is started for the input and ended with it does something."""
    return partial(_of_its_own, what=what, details=details)


def _gone_with_threads(stage: Stage, count: int) -> Hold:
    """A VM with many threads ends, and another one comes, again and again."""
    for _ in range(2):
        tenant = stage.tenants.start({"hw:cache_ways": "1"})
        try:
            tenant.order("threads", count=count)
        finally:
            stage.tenants.remove(tenant)
    yield


ROLES = ("first", "second", "third", "fourth", "fifth")
"""VMs of tenants that exist at the same time."""

SMALL_ARGV: dict[str, tuple[str, int, str]] = {
    "argv of 1 MiB, empty": ("", MEBIBYTE, ""),
    "argv of one zero byte": ("", 1, ""),
    "argv that says another VM's UUID": ("qemu-system-x86_64\0-uuid\0OTHER\0", 0, ""),
    "argv with its own UUID a thousand times": ("-uuid\0OWN\0" * 1000, 0, ""),
    "argv with -uuid at its very end": ("qemu\0" * 100, 0, "-uuid\0OWN\0"),
    "argv with -uuid and nothing after it": ("qemu-system-x86_64\0-uuid\0", 0, ""),
    "argv without a zero byte at its end": ("qemu-system-x86_64\0-uuid\0OWN", 0, ""),
    "argv of escape sequences": (f"{ESC}[2J{ESC}]0;owned\x07\0-uuid\0OWN\0", 0, ""),
    "argv of bytes that are no UTF-8": ("\xff\xfe\xc0\x80\0-uuid\0OWN\0", 0, ""),
    "argv of line breaks of every kind": ("\n\r\x0b\x0c\x1c\x1d\x1e\x85\0-uuid\0OWN\0", 0, ""),
}
"""What argv begins with, its size (0: no larger than it must be), and what it ends with."""

LARGE_ARGV: dict[str, tuple[str, int, str]] = {
    "argv with a million arguments": ("a\0" * 1_000_000, 0, "-uuid\0OWN\0"),
    "argv of 48 MiB that was never touched": ("", 48 * MEBIBYTE, ""),
    "argv of 64 MiB that was never touched": ("", 64 * MEBIBYTE, ""),
    "argv of 48 MiB with its UUID at the beginning": ("-uuid\0OWN\0", 48 * MEBIBYTE, ""),
    "argv of 64 MiB with its UUID at the end": ("", 64 * MEBIBYTE, "-uuid\0OWN\0"),
    "argv of 256 MiB": ("-uuid\0OTHER\0", 256 * MEBIBYTE, ""),
    "argv of 1 GiB": ("", 1024 * MEBIBYTE, ""),
}

COMM = {
    "escape sequences": f"{ESC}[31m{ESC}[2J",
    "a terminal's title": f"{ESC}]0;x\x07",
    "a line break": "a\nb\nc",
    "a carriage return": "a\rb",
    "a closing parenthesis and a state": ") Z 1 1 1",
    "nothing but parentheses": "))))(((((((((((",
    "an opening parenthesis": "(",
    "a vCPU of KVM": "CPU 0/KVM",
    "a vCPU of software emulation": "CPU 0/TCG",
    "a vCPU of a huge number": "CPU 999999999/K",
    "a vCPU of a negative number": "CPU -1/KVM",
    "a vCPU of another script's digits": "CPU \xd9\xa3/KVM",
    "all vCPUs": "ALL CPUs/TCG",
    "a kernel thread of vhost": "vhost-1",
    "a kernel thread of KVM": "kvm-pit/1",
    "blanks only": "    ",
    "nothing": "",
    "bytes that are no UTF-8": "\xff\xfe\xfd",
    "a next-line character": "a\xc2\x85b",
    "a right-to-left mark": "\xe2\x80\xaegpj.exe",
    "HTML": "<b>x</b>",
    "quotes and a backslash": "\"'\\\"'",
    "a file separator": "a\x1cb\x1db",
}

MAIN_THREADS = {
    what: COMM[what]
    for what in (
        "escape sequences",
        "a line break",
        "a closing parenthesis and a state",
        "a vCPU of KVM",
        "nothing",
    )
}


def _inputs() -> list[Input]:
    found = [Input("argv that says an innocent VM's UUID", Attacker.TENANT, _innocent_argv)]
    for label, table in (("small argv", SMALL_ARGV), ("large argv", LARGE_ARGV)):
        for number, (name, how) in enumerate(table.items()):
            turn, role = divmod(number, len(ROLES))
            found.append(Input(name, Attacker.TENANT, argv(*how, role=ROLES[role]), f"{label} {turn + 1}"))
    for number, (what, name) in enumerate(MAIN_THREADS.items()):
        act = order("name", name=name, main=True, role=ROLES[number])
        found.append(Input(f"the main thread called {what}", Attacker.TENANT, act, "names of main threads"))
    for what, name in COMM.items():
        found.append(Input(f"a thread called {what}", Attacker.TENANT, order("name", name=name), "names of threads"))
    found += [
        Input(
            "a main thread that is renamed a thousand times a second",
            Attacker.TENANT,
            order("rename_storm", names=["a) R 1", "CPU 1/KVM", "\n"], seconds=4),
        ),
        Input("100 impostors of vCPU 0", Attacker.TENANT, order("threads", count=100), "threads 100"),
        Input("1 000 threads", Attacker.TENANT, order("threads", count=1000), threads=1000),
        Input("4 000 threads", Attacker.TENANT, order("threads", count=4000), threads=4000),
        Input("15 000 threads", Attacker.TENANT, order("threads", count=15_000), threads=15_000, simulator_works=True),
        Input("threads that come and go, 20 at a time", Attacker.TENANT, order("churn", at_once=20, seconds=6)),
        Input("threads that come and go, 200 at a time", Attacker.TENANT, order("churn", at_once=200, seconds=6)),
        Input("a fork storm in the VM's cgroup", Attacker.TENANT, order("fork_storm", seconds=6)),
        Input(
            "300 zombies in the VM's cgroup",
            Attacker.TENANT,
            order("children", count=300, state="zombie"),
            "children 1",
        ),
        Input(
            "50 stopped children",
            Attacker.TENANT,
            order("children", count=50, state="stopped", role="second"),
            "children 1",
        ),
        Input(
            "50 children stopped by ptrace", Attacker.TENANT, order("children", count=50, state="traced"), "children 2"
        ),
        Input(
            "50 children without a main thread",
            Attacker.TENANT,
            order("children", count=50, state="leaderless", role="second"),
            "children 2",
        ),
        Input("300 children that sleep", Attacker.TENANT, order("children", count=300, state="asleep"), "children 3"),
        Input("the VM's own process stopped", Attacker.TENANT, partial(_stopped, role="second"), "stopped"),
        Input("a thread that waits in vfork for ever", Attacker.TENANT, once("vfork"), "odd ends 1"),
        Input(
            "a VM's process whose main thread has ended",
            Attacker.TENANT,
            once("end_main"),
            "odd ends 2",
        ),
        Input("20 000 open files", Attacker.TENANT, once("flood_descriptors", count=20_000), "odd ends 1"),
        Input("VMs that end with 1 000 threads", Attacker.TENANT, partial(_gone_with_threads, count=1000)),
    ]
    return found


FAMILY = Family("processes", "processes and threads of a QEMU that is taken over", tuple(_inputs()))
