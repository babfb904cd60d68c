# SPDX-License-Identifier: Apache-2.0
"""``tools/demo``: vmqos at work on this machine, on real VMs that it starts for the purpose."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tools.lab import kvm, outside_check, processes, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.workspace import AGENT_LOCKS, Workspace
from vmqos.simulator import PROFILES

REAL_RESCTRL = Path("/sys/fs/resctrl")
REAL_SYSFS = Path("/sys/devices/system/cpu")
SETTLE_TIMEOUT = 180.0
PAGE_PORT = 19177
OLD = 3
"""The exit status of a command that prints what is old."""

GOLD = vms.Flavor("gold.c2", {"hw:cache_ways": "4"})
SILVER = vms.Flavor("silver.c2", {"hw:cache_ways": "2"})
BATCH = vms.Flavor("batch.c1", {"hw:cache_ways": "2", "hw:cache_policy": "shared"})
PLAIN = vms.Flavor("plain.c1")

STARTED = float(os.environ.get("VMQOS_DEMO_STARTED") or time.time())


@dataclass(frozen=True, slots=True)
class Host:
    """What the demonstration runs on and with.

    :ivar root: the root of resctrl.
    :ivar simulator: ``None`` on the machine's own resctrl.
    :ivar page: the address of the gateway's page.
    """

    root: Path
    simulator: Simulator | None
    libvirt: PrivateLibvirt
    agent: Agent
    vms: Sequence[tuple[vms.Vm, vms.RunningVm]]
    page: str


class DemoError(Exception):
    """The demonstration can't go on; the message says why and what to do."""


def main() -> int:
    """Run it; the exit status is 0 if everything is as it should be."""
    options = _parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with _host(options) as host:
            _show(host)
            good = _check(host)
            if options.once or not good:
                return 0 if good else 1
            with suppress(KeyboardInterrupt):
                _stay(host)
            return 0
    except KeyboardInterrupt:
        return 130
    except (DemoError, RuntimeError, TimeoutError, FileNotFoundError) as error:
        print(f"tools/demo: {error}", file=sys.stderr)
        return 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__.partition("``: ")[2] if __doc__ else "")
    parser.add_argument("--once", action="store_true", help="start, show, check from outside, clean up, and end")
    parser.add_argument(
        "--resctrl",
        choices=("simulated", "real"),
        default="simulated",
        help="the caches: a simulated machine (default), or this machine's own, mounted on /sys/fs/resctrl",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        default="cascade-lake",
        choices=PROFILES,
        help="the machine to simulate (default: %(default)s); 'vmqos simulate --list-profiles' lists them",
    )
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: the cleaning that follows must not be interrupted.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"[{time.time() - STARTED:3.0f}s] {text}", flush=True)


@contextmanager
def _host(options: argparse.Namespace) -> Iterator[Host]:
    _require()
    with Workspace() as workspace:
        if not AGENT_LOCKS.exists():
            workspace.record_directory(AGENT_LOCKS)
        try:
            yield _start(workspace, options)
        finally:
            _say("cleaning up")
            # A second signal would leave the rest to the reaper, which does the same.
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_IGN)
    _say("nothing is left of it: no process, mount, cgroup or file outside this source tree")


def _require() -> None:
    if os.geteuid() != 0:
        raise DemoError("this needs root, for mounts, namespaces and cgroups: run tools/demo, which uses sudo")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise DemoError("/dev/fuse is missing: run 'modprobe fuse'; in a container, pass the device in")


def _start(workspace: Workspace, options: argparse.Namespace) -> Host:
    simulator = None
    if options.resctrl == "real":
        root = _real_resctrl()
        _say(f"taking this machine's own caches, {root}")
    else:
        _say(f"mounting a simulated {options.profile} machine; its caches are not real, the VMs and their threads are")
        simulator = Simulator(workspace, options.profile)
        simulator.start()
        root = simulator.root
    virt_type = kvm.virt_type()
    _say("starting a private libvirtd; it can't see the host's")
    daemon = PrivateLibvirt(workspace)
    daemon.start()
    _say("starting vmqos-agent, and vmqos-gateway, which has the page")
    port = _page_port()
    agent = Agent(
        workspace,
        resctrl=root,
        sysfs=simulator.sysfs if simulator else None,
        uri=daemon.uri,
        run_dir=daemon.run_dir,
        options={"http": {"port": port}},
    )
    if simulator is None:
        workspace.record_command([sys.executable, "-m", "vmqos.cli.main", *_config(agent), "reset", "--yes"])
    agent.start()
    _say(f"starting 4 VMs under {'KVM' if virt_type == 'kvm' else 'software emulation (KVM does not work here)'}")
    started = [(vm, vms.run(daemon, vm)) for vm in _vms(virt_type)]
    host = Host(root, simulator, daemon, agent, started, f"http://127.0.0.1:{port}/")
    processes.wait_until(lambda: _settled(host), "the agent keeping every promise", SETTLE_TIMEOUT)
    _say("every VM is where it belongs")
    return host


def _page_port() -> int:
    """The gateway's usual port, or another one where that is taken."""
    for port in (PAGE_PORT, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    raise DemoError("no TCP port can be had on 127.0.0.1")


def _real_resctrl() -> Path:
    if not (REAL_RESCTRL / "schemata").exists():
        raise DemoError(
            f"no resctrl on {REAL_RESCTRL}: run 'mount -t resctrl resctrl {REAL_RESCTRL}'; if that fails, this machine "
            "has no cache allocation, or the kernel was started with rdt=!l3cat"
        )
    groups = sorted(path.name for path in REAL_RESCTRL.glob("vmqos.*"))
    if groups:
        raise DemoError(f"{REAL_RESCTRL} has groups of vmqos already ({groups[0]} …): a demonstration would spoil them")
    return REAL_RESCTRL


def _vms(virt_type: str) -> list[vms.Vm]:
    wanted = (("database", GOLD, 2), ("web", SILVER, 2), ("batch", BATCH, 1), ("plain", PLAIN, 1))
    return [
        vms.Vm(f"instance-{number:08x}", flavor, name, vcpus=vcpus, virt_type=virt_type)
        for number, (name, flavor, vcpus) in enumerate(wanted, start=1)
    ]


def _settled(host: Host) -> bool:
    listed = {vm["uuid"]: vm for vm in host.agent.get("/v1/vms")["vms"]}
    return all(
        (vm := listed.get(running.uuid)) is not None
        and vm["state"] in ("kept", "none")
        and vm["tasks"] == vm["tasks_in_place"] > 0
        for _, running in host.vms
    )


def _config(agent: Agent) -> list[str]:
    return ["--config-file", str(agent.config_file)]


def _show(host: Host) -> None:
    for title, arguments in (
        ("The VMs, and how their promises stand", ["vm", "list"]),
        ("Who may fill which ways of each L3 cache", ["cache", "show"]),
        (f"One VM with all its threads, {host.vms[0][0].display_name}", ["vm", "show", host.vms[0][1].uuid]),
    ):
        print(f"\n{title}:\n$ vmqos {shlex.join(arguments)}", flush=True)
        command = [sys.executable, "-m", "vmqos.cli.main", *_config(host.agent), *arguments]
        status = subprocess.run(command, check=False).returncode
        # What the agent has not looked at for some seconds is printed too, with a warning: this machine is busy.
        if status not in (0, OLD):
            raise subprocess.CalledProcessError(status, command)


def _check(host: Host) -> bool:
    promises = [_promise(vm, running) for vm, running in host.vms]
    print("\nChecked from outside, in resctrl's own files and /proc.")
    where = outside_check.where_tasks_are(host.root, [task for promise in promises for task in promise.tasks])
    print(f"\n  {'VM':10} {'task':>8}  {'thread':16} group")
    for promise in promises:
        for task, name in sorted(promise.tasks.items()):
            print(f"  {promise.name:10} {task:>8}  {name:16} {where.get(task) or '(default)'}")
    print()
    sysfs = host.simulator.sysfs if host.simulator else REAL_SYSFS
    while True:
        findings = outside_check.check(host.root, promises, outside_check.caches_with_cpus(sysfs))
        before, promises = promises, [_promise(vm, running) for vm, running in host.vms]
        if promises == before:
            break
        # A task of QEMU's has come or gone meanwhile, and would be looked for where it is not.
    for finding in findings:
        print(f"  {'ok    ' if finding.good else 'WRONG '} {finding.text}")
    good = all(finding.good for finding in findings)
    print(f"\n{'Every promise is kept.' if good else 'NOT every promise is kept.'}\n", flush=True)
    return good


def _promise(vm: vms.Vm, running: vms.RunningVm) -> outside_check.Promise:
    specs = vm.flavor.extra_specs or {}
    ways = int(specs.get("hw:cache_ways", "0"))
    exclusive = bool(ways) and specs.get("hw:cache_policy", "exclusive") == "exclusive"
    return outside_check.Promise(
        vm.uuid, vm.display_name, ways, exclusive, {**running.tasks(), **running.kernel_threads()}
    )


def _stay(host: Host) -> None:
    sudo = "sudo " if "SUDO_UID" in os.environ else ""
    command = f"{sudo}{Path(sys.executable).with_name('vmqos')} {shlex.join(_config(host.agent))}"
    (_, running), (ending, dying) = host.vms[:2]
    # The ways of the second VM lie beside the default group's, which gets them back at once.
    print(
        f"""
It stays up until you press Ctrl-C. In a browser on this machine, live:

  {host.page}

From elsewhere: ssh -L {PAGE_PORT}:{host.page.split("/")[2]} {socket.gethostname()}, then http://localhost:{PAGE_PORT}/
In another terminal, first:

  alias vmqos={shlex.quote(command)}

Then try:

  what each VM takes of the caches and of the memory's bandwidth, live:
    vmqos top
  what would happen to one more VM, with 3 ways of its own:
    vmqos plan --flavor-spec hw:cache_ways=3
  which VM slows which:
    vmqos neighbours
  what this host could promise, and what it lacks:
    vmqos capabilities
    vmqos doctor
  the kernel's side of it:
    {sudo}cat {host.root}/schemata {host.root}/vmqos.{running.uuid}/schemata
  kill the VM {ending.display_name}, and see its ways come back:
    {sudo}kill -9 {dying.pid}
    vmqos cache show
  what the agent and the gateway say:
    {sudo}tail -f {host.agent.log} {host.agent.gateway.log}
""",
        flush=True,
    )
    # sudo that dies by SIGKILL passes nothing on.
    parent = os.getppid()
    while not (dead := _dead(host)):
        time.sleep(0.5)
        if "SUDO_UID" in os.environ and os.getppid() != parent:
            raise KeyboardInterrupt
    raise DemoError(f"{dead} has ended")


def _dead(host: Host) -> str:
    """The first program of the demonstration that has ended; empty while all live."""
    pids = {
        "vmqos-agent": host.agent.pid,
        "vmqos-gateway": host.agent.gateway.pid,
        "the private libvirtd": host.libvirt.pid,
        "the simulator": host.simulator.pid if host.simulator else os.getpid(),
    }
    return next((name for name, pid in pids.items() if not pid), "")


if __name__ == "__main__":
    sys.exit(main())
