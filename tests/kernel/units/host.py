# SPDX-License-Identifier: Apache-2.0
"""The administrator of a host with our units: acts, and writes down what was to be seen (:mod:`.seen`). In the guest.

Each step is a function; what it returns, or the error that ended it, comes out in ``told.json`` under its name.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import libvirt

# Not used here: what this process imports is compiled for good, which agent and gateway can't do in their sandboxes.
import vmqos.agent.main
import vmqos.gateway.main  # noqa: F401
from tests.kernel.units.seen import (
    AGENT,
    CONFIGURATION,
    GATEWAY,
    GROUP,
    ROM,
    ROOT,
    VM,
    access,
    after,
    as_user,
    ask,
    command_of,
    in_child_of,
    internet_sockets,
    kept,
    over_tcp,
    prop,
    shell,
    state,
    wait_for,
    wait_until,
)
from tools.lab import vms
from vmqos.host import reset
from vmqos.host.mount_commands import mount_with
from vmqos.host.single_instance import only_agent
from vmqos.telemetry import Sweeper

MOUNT, ACCESS = "sys-fs-resctrl.mount", "resctrl-access.service"
TIMER, WITHDRAW = "vmqos-withdraw.timer", "vmqos-withdraw.service"
FAILS = "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=4\n"
"""A drop-in. An emulated CPU works for a second at each start, to set the sandbox up."""
COUNTING = Path("/root/hardware-events.sh")
"""What the guide says is to be done for the agent to count what VMs execute."""
SHORT_WATCHDOG = Path("/etc/systemd/system/vmqos-agent.service.d/watchdog.conf")
"""A minute is too long to wait for in the step watchdog. Before and after it, a busy machine must not let it pass."""
BYSTANDER = "systemd-run --unit=bystander --property=PrivateNetwork=yes --property=Type=exec sleep 1000"
"""A service with a mount of its own of resctrl: it has that when the command ends, for this waits for the program."""
LOCK_FILE = "/run/vmqos/agent-sys-fs-resctrl.running"
AGENT_SOCKET = "/run/vmqos/gateway.sock"
"""Where the agent answers the gateway."""


def boot() -> object:
    """Nothing was done but what the README says."""
    wait_until(AGENT, "active", "the agent being up")
    wait_until(GATEWAY, "active", "the gateway being up")
    return {
        "failed": shell("systemctl --failed --no-legend --plain"),
        "root": access(),
        "closed at": int(prop(ACCESS, "ActiveEnterTimestampMonotonic")),
        "sysinit at": int(prop("sysinit.target", "ActiveEnterTimestampMonotonic")),
        "libvirtd at": int(prop("libvirtd.service", "ActiveEnterTimestampMonotonic")),
        "agent at": int(prop(AGENT, "InactiveExitTimestampMonotonic")),
        "lock file": shell(f"stat --format='%a %U:%G' {LOCK_FILE}"),
    }


def exposure() -> object:
    """What systemd itself says of the units."""
    return {unit: shell(f"systemd-analyze security --no-pager {unit} | tail -1") for unit in (AGENT, GATEWAY)}


def a_vm() -> object:
    """A VM with ways of its own."""
    # At the reset vector, 16 bytes before the end: cli; hlt; and back to hlt.
    ROM.write_bytes(b"\xf4" * (0x10000 - 16) + b"\xfa\xf4\xeb\xfd".ljust(16, b"\xf4"))
    vms.start(libvirt.open("qemu:///system"), VM)
    return kept()


def others() -> object:
    """What the users of the host can do."""
    return {
        "a stranger locks resctrl": as_user("stranger", f"flock --nonblock --shared {ROOT} true"),
        "a stranger locks the lock file": as_user("stranger", f"flock --nonblock --shared {LOCK_FILE} true"),
        "a stranger asks the gateway's socket of the agent": in_child_of("stranger", lambda: ask(AGENT_SOCKET)),
        "the gateway's user asks it": in_child_of("vmqos-gateway", lambda: ask(AGENT_SOCKET)),
        "the gateway's user reads the configuration": as_user("vmqos-gateway", f"cat {CONFIGURATION}"),
        "Ceilometer's user reads": in_child_of("ceilometer", lambda: " ".join(Sweeper().sweep().vms)),
    }


def network() -> object:
    """Who of the two has a way to the network, and with which rights."""
    agent, gateway = prop(AGENT, "MainPID"), prop(GATEWAY, "MainPID")
    status = dict(line.split(":", 1) for line in Path("/proc", gateway, "status").read_text().splitlines())
    return {
        "agent's": internet_sockets(agent),
        "gateway's": len(internet_sockets(gateway)),
        "user": pwd.getpwuid(int(status["Uid"].split()[0])).pw_name,
        "capabilities": [status[name].strip() for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")],
        "health": over_tcp("/v1/health"),
        "hardware events": over_tcp("/v1/telemetry/hardware-events"),
        "metrics": over_tcp("/metrics"),
        "page": over_tcp("/"),
        "agent's pid": agent,
    }


def reload() -> object:
    """The configuration is changed."""
    CONFIGURATION.write_text("[allocation]\ndefault_ways_min = 3\n")
    before = prop(AGENT, "MainPID")
    done = shell(f"systemctl reload {AGENT}")
    wait_for(lambda: "configuration read again" in shell(f"journalctl -b -u {AGENT}"), "the reload", 1.0)
    return {"done": done, "same process": before == prop(AGENT, "MainPID"), **kept()}


def watchdog() -> object:
    """The agent hangs."""
    pid, timer = int(prop(AGENT, "MainPID")), prop(TIMER, "ActiveEnterTimestampMonotonic")
    os.kill(pid, signal.SIGSTOP)
    # What is under way keeps its half a minute, the next start has the unit's own minute.
    SHORT_WATCHDOG.unlink()
    counting = shell(f"sh {COUNTING}")
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process that hangs")
    wait_until(AGENT, "active", "the agent being up again")
    log = shell(f"journalctl -b -o cat -u {AGENT} | grep -i watchdog")
    started = prop(TIMER, "ActiveEnterTimestampMonotonic") != timer
    # The agent's unit does not wait until the timer that it stops has ended.
    wait_until(TIMER, "inactive", "the timer's end when the agent is back")
    told = {"log": log, "timer started": started, "timer": state(TIMER), "counting": counting}
    return {**told, "hardware events": over_tcp("/v1/telemetry/hardware-events"), **kept()}


def other_options() -> object:
    """The doctor's command, as it is printed."""
    command = command_of("Code and data apart (cdp)")
    return after(shell(command), command=command)


def held() -> object:
    """Another process of root's holds the lock, and keeps even readers out."""
    # The agent, too, keeps readers out for a moment now and then: so the holder says when it has the lock.
    command = ["flock", str(ROOT), "sh", "-c", "echo held; exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        wait_for(lambda: not shell(f"flock --nonblock --shared {ROOT} true").startswith("0"), "the lock's being held")
        advice = command_of("Lock")
        return {"command": advice, "done": shell(advice), "holder": str(holder.pid)}
    finally:
        holder.communicate()


def read_only() -> object:
    """Somebody mounts resctrl read-only."""
    # The kernel refuses it at a moment at which something is being written.
    wait_for(lambda: shell(f"mount -o remount,ro {ROOT}").startswith("0"), "the mount's being read-only")
    command = command_of("resctrl mount")
    return after(shell(command), command=command)


def mounted_by_hand() -> object:
    """Somebody mounts resctrl anew, with our units knowing nothing of it, while the agent runs."""
    pid = prop(AGENT, "MainPID")
    found = after(shell(mount_with(str(ROOT), (), units=())))
    return {"same process": pid == prop(AGENT, "MainPID"), **found}


def mounted_elsewhere() -> object:
    """Something else mounts resctrl where the agent, which is away, is not told to look."""
    shell(f"systemctl stop {MOUNT}; mkdir /root/elsewhere; mount -t resctrl resctrl /root/elsewhere")
    command = command_of("resctrl mount")
    told = {"command": command, "done": shell(command), "mounted": shell(f"findmnt --noheadings {ROOT}")}
    return {"unmounted": shell(f"umount {ROOT} /root/elsewhere"), **told}


def mounted_late() -> object:
    """The agent comes back where only a service has resctrl mounted, and somebody follows the doctor's advice then."""
    shell(f"systemctl start {MOUNT}; {BYSTANDER}")
    # Without its unit, nothing mounts it at the agent's start.
    shell(f"systemctl stop {MOUNT}; rm /etc/systemd/system/{MOUNT}; systemctl daemon-reload; systemctl start {TIMER}")
    start = shell(f"systemctl start {AGENT}")
    wait_until(TIMER, "inactive", "the timer's end when the agent is back")
    command = command_of("resctrl mount")
    return after(shell(command), start=start, command=command)


def libvirt_again() -> object:
    """What the doctor says where libvirt does not answer."""
    return {"done": shell("systemctl restart libvirtd"), **kept()}


def away() -> object:
    """The agent is stopped, and fails at each start then; the timer's ten minutes are two seconds."""
    told: dict[str, object] = {"while it runs": state(TIMER)}
    for unit, text in ((TIMER, "[Timer]\nOnActiveSec=\nOnActiveSec=2\n"), (AGENT, FAILS)):
        drop_in = Path(f"/run/systemd/system/{unit}.d/away.conf")
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(text)
    told["stop"] = shell(f"systemctl daemon-reload; systemctl stop {AGENT}; systemctl start --no-block {AGENT}")
    # The guest has no OpenStack to tell: the command says so, and that it was run at all is what is to be seen.
    wait_for(lambda: "Nothing to do" in shell(f"journalctl -b -o cat -u {WITHDRAW}"), "the host's being withdrawn", 1.0)
    told["restarts"] = int(prop(AGENT, "NRestarts"))
    wait_until(WITHDRAW, "inactive", "the withdrawal's end")
    told["result"] = prop(WITHDRAW, "Result")
    # The agent comes back in the step mounted_late; systemd takes two seconds to hear of other units, so it does there.
    told["timer"] = shell(f"systemctl stop {AGENT}; systemctl is-active {TIMER}")
    shell(f"systemctl stop {TIMER} {WITHDRAW}; rm -r /run/systemd/system/{TIMER}.d /run/systemd/system/{AGENT}.d")
    return told


def stop() -> object:
    """The agent is stopped, and all of vmqos is taken back."""
    done = shell(f"systemctl stop {AGENT}")
    told = {"done": done, "result": prop(AGENT, "Result"), "group stays": GROUP.exists()}
    told |= {"gateway": state(GATEWAY), "metrics": over_tcp("/metrics"), "restarts": prop(GATEWAY, "NRestarts")}
    # The command itself is tried in tests/functional/cli.
    with only_agent(str(ROOT)):
        reset.perform(str(ROOT))
    return {**told, "group goes": not GROUP.exists()}


def journal() -> object:
    """What the agent, the gateway and the kernel said all the while."""
    return {
        "agent": shell(f"journalctl -b -o cat --no-pager -u {AGENT}"),
        "vm": shell(f"journalctl -b -o json --no-pager -u {AGENT} VMQOS_VM={VM.uuid}"),
        "gateway": shell(f"journalctl -b -o cat --no-pager -u {GATEWAY}"),
        "kernel": shell("journalctl -b -o cat --no-pager -k --grep 'type=1326|segfault'"),
    }


STEPS = (
    boot,
    exposure,
    a_vm,
    others,
    network,
    reload,
    watchdog,
    held,
    read_only,
    other_options,
    mounted_by_hand,
    away,
    mounted_elsewhere,
    mounted_late,
    libvirt_again,
    stop,
    journal,
)


NEEDED = (boot, a_vm)
"""The steps without which no later one makes sense."""


def main() -> int:
    """Do it all; a step that fails keeps later ones from being done only if they need it."""
    told: dict[str, Any] = {}
    for step in STEPS:
        began = time.monotonic()
        try:
            told[step.__name__] = step()
        except Exception:
            told[step.__name__] = {"error": traceback.format_exc()}
        print(f"{step.__name__}: {time.monotonic() - began:.1f} s: {told[step.__name__]}", flush=True)
        (Path(os.environ["VMQOS_GUEST_OUT"]) / "told.json").write_text(json.dumps(told))
        if step in NEEDED and "error" in told[step.__name__]:
            print(shell("journalctl -b --no-pager -o short-monotonic | tail -100"), told, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
