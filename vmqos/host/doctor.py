# SPDX-License-Identifier: Apache-2.0
"""What this host lacks to keep promises, each with the command that mends it. Works without a running agent."""

from __future__ import annotations

import os
import resource
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from oslo_config import cfg

from vmqos.conf import keystone, loader
from vmqos.host import host_checks, resctrl_checks
from vmqos.host.finding import Finding, Status, count_of, read
from vmqos.resctrl import cpuinfo

MOST_PARANOID = 2
"""``kernel.perf_event_paranoid`` up to which ``CAP_PERFMON`` lets a program count others; above it, Debian's kernels
ask for ``CAP_SYS_ADMIN``."""

LESS_PARANOID = (
    "echo kernel.perf_event_paranoid = 2 > /etc/sysctl.d/60-perf.conf && sysctl --load /etc/sysctl.d/60-perf.conf"
)

LET_COUNT = (
    "printf '%s\\n' '[Service]' CapabilityBoundingSet=CAP_PERFMON SystemCallFilter=perf_event_open | "
    "install -D -m 644 /dev/stdin /etc/systemd/system/vmqos-agent.service.d/hardware-events.conf && "
    "systemctl daemon-reload && systemctl restart vmqos-agent"
)
"""The guide's drop-in for the agent's unit, which lets it count and do nothing else."""

WITHOUT_COUNTING = (
    "Without them metrics and page do not tell how fast the VMs run and what they miss, less harm by neighbours is "
    "found, and the sizes of VMs are guesses"
)


def examine(
    conf: cfg.ConfigOpts,
    ask_agent: Callable[[], Mapping[str, Any]],
    ask_gateway: Callable[[], Mapping[str, Any]],
    ask_hardware_events: Callable[[], Mapping[str, Any]],
    proc: str = "/proc",
    check_claims: Callable[[], Iterable[Finding]] = tuple,
    check_left_paused: Callable[[], Iterable[Finding]] = tuple,
) -> list[Finding]:
    """Look at everything; no check stops the others.

    :param ask_agent: returns the agent's health as its API tells it, or raises an error with the reason, and with a
        ``command`` that mends it where there is one.
    :param ask_gateway: likewise of the gateway, which adds what it knows of Placement, Nova and the message bus.
    :param ask_hardware_events: returns what the agent counts of them, or raises an error.
    :param proc: where procfs is mounted.
    :param check_claims: looks whether Placement has claimed something for each VM that runs here.
    :param check_left_paused: looks for VMs that an experiment left paused.
    """
    mounted, root = resctrl_checks.find_mount(conf.resctrl.path)
    simulated = root is not None and root.simulated
    flags = cpuinfo.flags(proc)
    return [
        host_checks.cpu_flags(flags, simulated),
        host_checks.kernel_support(read(proc, "filesystems"), simulated),
        host_checks.kernel_command_line(read(proc, "cmdline")),
        mounted,
        *(resctrl_checks.resctrl(conf, root, flags) if root else ()),
        *configuration(conf),
        *secrets(keystone.files_with_secrets(conf)),
        host_checks.libvirt_answers(conf.libvirt.uri),
        host_checks.pid_files(conf.libvirt.run_dir),
        host_checks.cgroups(read(proc, "mounts")),
        host_checks.descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        *agent(ask_agent),
        *hardware_events(ask_hardware_events, proc),
        *gateway(conf, ask_gateway),
        *check_claims(),
        *check_left_paused(),
    ]


def configuration(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Options in the files that vmqos does not know."""
    for problem in loader.unknown_options(conf):
        yield Finding("Configuration", Status.WARNING, problem)


def secrets(files: Iterable[str]) -> Iterator[Finding]:
    """Whether files with credentials can be read by every user of the host."""
    for path in files:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if mode & stat.S_IROTH:
            detail = f"{path} has credentials, and every user of this host may read it (mode {stat.S_IMODE(mode):o})"
            yield Finding("Credentials", Status.WARNING, detail, f"chmod 640 {shlex.quote(path)}")
        else:
            yield Finding("Credentials", Status.OK, f"{path} has credentials, and is not open to every user")


def agent(ask: Callable[[], Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether the agent runs, and what it reports about its own state."""
    try:
        health = ask()
    except Exception as error:  # whatever keeps it from answering is the finding
        yield Finding("Agent", Status.PROBLEM, str(error), getattr(error, "command", ""))
        return
    answers = f"version {health['version']} answers, {health['passes']} passes so far"
    if health["status"] == "starting":
        yield Finding("Agent", Status.OK, answers)
        yield Finding("Promises", Status.WARNING, "the agent's first look is still under way", "vmqos doctor")
        return
    status = {"ok": Status.OK, "degraded": Status.WARNING}.get(health["status"], Status.PROBLEM)
    if status is Status.OK and health["libvirt"].get("watch_error"):
        status = Status.WARNING
    command = "" if status is Status.OK else "journalctl --unit vmqos-agent"
    yield Finding("Agent", status, "; ".join([answers, *_troubles(health)]), command)
    # An older agent tells no ages.
    ages = health.get("ages") or {}
    if not any(health["vms"].values()) and None in (ages.get("vms", 0.0), ages.get("pass", 0.0)):
        yield Finding("Promises", Status.WARNING, "the agent does not know yet which VMs run", command)
        return
    yield promises(health["vms"])


def hardware_events(ask: Callable[[], Mapping[str, Any]], proc: str = "/proc") -> Iterator[Finding]:
    """Whether the agent counts what the VMs execute, or could do so.

    It is no problem of this host where the kernel has nothing to count with, or the operator does not want it.
    """
    title = "Hardware events"
    try:
        told = ask()
        # An older agent does not tell of this, and one that does not answer is a finding already.
        code = told["unavailable_code"]
    except Exception:
        return
    if not code:
        yield Finding(title, Status.OK, "the agent counts what the VMs execute")
        return
    # Where packages count the VMs, each VM has the reason.
    why = told["unavailable"] or next(filter(None, (vm["reason"] for vm in told["vms"].values())), code)
    if code in ("switched-off", "no-events"):
        yield Finding(title, Status.OK, f"not counted: {why}")
        return
    commands = []
    if code in ("no-capability", "not-permitted"):
        level = read(proc, "sys/kernel/perf_event_paranoid").strip()
        too_strict = level.isdecimal() and int(level) > MOST_PARANOID
        commands += [LESS_PARANOID] if too_strict else []
        # A kernel that is too strict refuses an agent that has the drop-in, too.
        commands += [LET_COUNT] if code == "no-capability" or not too_strict else []
    command = " && ".join(commands) or "journalctl --unit vmqos-agent"
    yield Finding(title, Status.WARNING, f"not counted: {why}. {WITHOUT_COUNTING}", command)


def gateway(conf: cfg.ConfigOpts, ask: Callable[[], Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether the gateway runs where the configuration needs it, and what it reports of OpenStack's services."""
    provider_yaml = conf.placement.provider_yaml or ""
    of_openstack = bool(provider_yaml or conf.notifications.transport_url)
    of_openstack = of_openstack or any(keystone.is_configured(conf, name) for name in keystone.SECTIONS)
    try:
        health = ask()
    except Exception as error:  # whatever keeps it from answering is the finding
        if getattr(error, "is_answer", False):
            yield Finding("Gateway", Status.OK, "vmqos-gateway answers, and waits for the agent")
        elif of_openstack or conf.http.port:
            missing = "OpenStack is told and asked nothing" if of_openstack else "there are no metrics and no page"
            status = Status.PROBLEM if of_openstack else Status.WARNING
            yield Finding("Gateway", status, f"{missing}: {error}", getattr(error, "command", ""))
        return
    yield Finding("Gateway", Status.OK, "vmqos-gateway answers")
    yield from placement(health.get("placement"), provider_yaml)
    yield from nova(health.get("nova"))
    yield from notifications(health.get("notifications"))


def _troubles(health: Mapping[str, Any]) -> Iterator[str]:
    """What the agent says is wrong with itself, each once."""
    told = [health["resctrl"]["error"], health["libvirt"]["error"]]
    yield from filter(None, dict.fromkeys(told))
    if (error := health["last_error"]) not in (None, *told):
        # An older agent does not tell its age, nor of the others.
        age = health.get("last_error_age_seconds")
        yield f"a pass failed {'once' if age is None else f'{age:.0f} s ago'}: {error}"
    if health["libvirt"].get("watch_error"):
        yield f"VMs that start get their ways only once they run: {health['libvirt']['watch_error']}"
    if health.get("stale"):
        yield f"what it knows is old: {', '.join(_age(part, health['ages'][part]) for part in health['stale'])}"
    for uuid, reason in health.get("unserved", {}).items():
        yield f"VM {uuid} is not served: {reason}"


def _age(part: str, seconds: float | None) -> str:
    name = {"vms": "the look at the VMs", "pass": "the last good pass", "counters": "the counters"}.get(part, part)
    return f"{name} ({'never' if seconds is None else f'{seconds:.0f} s'})"


def promises(counts: Mapping[str, int]) -> Finding:
    """How many VMs are in each state."""
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    detail = f"VMs: {told}" if told else "no VM runs"
    if counts.get("pending") or counts.get("degraded"):
        return Finding("Promises", Status.WARNING, detail, "vmqos vm list")
    return Finding("Promises", Status.OK, detail)


def placement(told: Mapping[str, Any] | None, provider_yaml: str = "") -> Iterator[Finding]:
    """Whether OpenStack knows what this host can promise, by what the gateway says of it.

    :param provider_yaml: the file that the configuration names, while the gateway may still run with credentials.
    """
    if told is None:
        return
    title = "Placement"
    if provider_yaml and told["where"] != provider_yaml:
        detail = (
            f"the configuration names provider_yaml = {provider_yaml}, and the gateway keeps a provider in Placement "
            f"({told['where']}). Both together would have each way counted twice. Before the gateway is restarted, "
            "move away the servers whose flavors ask Placement for cache, and delete that provider: Placement refuses "
            "that (409) as long as a server holds something of it"
        )
        yield Finding(title, Status.PROBLEM, detail, "openstack resource provider show --allocations UUID")
        return
    if told["error"]:
        yield Finding(title, Status.WARNING, told["error"], "journalctl --unit vmqos-gateway")
    elif told.get("changed_by_other"):
        # An earlier gateway does not tell of it.
        yield Finding(title, Status.WARNING, told["changed_by_other"], "journalctl --unit vmqos-gateway")
    elif told["told_at"] is None:
        yield Finding(title, Status.OK, f"{told['where']}: not told yet")
    else:
        amounts = ", ".join(f"{name}={amount}" for name, amount in sorted(told["inventories"].items()))
        yield Finding(title, Status.OK, f"{told['where']} has {amounts}")


def nova(told: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Whether Nova tells the flavors that the VMs' descriptions don't have."""
    if told is None:
        return
    waiting = f"still without their flavor: {count_of(told['waiting'], 'VM')}"
    if told["error"]:
        yield Finding("Nova", Status.WARNING, f"{told['error']}; {waiting}", "vmqos vm list")
    else:
        yield Finding("Nova", Status.OK, waiting if told["waiting"] else "no VM waits for its flavor")


def notifications(told: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Whether the message bus takes the agent's events."""
    if told is None:
        return
    title, lost = "Notifications", f"; never sent: {count_of(told['lost'], 'event')}" if told["lost"] else ""
    if told["error"]:
        detail = f"{told['where']}: {told['error']}; still to be sent: {count_of(told['waiting'], 'event')}{lost}"
        yield Finding(title, Status.WARNING, detail, "journalctl --unit vmqos-gateway")
    else:
        yield Finding(title, Status.OK, f"{told['where']} has taken {told['sent']}{lost}")
