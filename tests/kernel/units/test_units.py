# SPDX-License-Identifier: Apache-2.0
"""A host as the README installs it: systemd, Debian's own libvirtd, our units, the kernel's resctrl, a VM.

One guest is booted. ``host.py`` is the administrator there, who looks and acts; here is judged what it saw.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.lab.guest import run
from tests.kernel.lab.job import CHECKOUT, Job
from tests.kernel.lab.machines import machine
from tests.kernel.units.host import COUNTING, SHORT_WATCHDOG
from tests.kernel.units.seen import AGENT, GATEWAY, WAYS

MACHINE, KERNEL = "milan-kvm", "6.12"
TIMEOUT = 1500.0
"""Seconds: ten times what it takes where the guest has a core to itself. It ends what hangs, and judges nothing."""

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

WANTED = (
    "dbus.service dbus.socket libvirtd.service libvirtd.socket machines.target systemd-journald-dev-log.socket "
    "systemd-journald.service systemd-journald.socket"
)
"""What systemd starts of a Debian's own units, beside what these need. All else (udev, timers, consoles, sysctl, ...)
makes no difference to our units, and an emulated CPU takes seconds for each."""

PREPARE = """\
set -e
# Without this, each change of a mount or of a BPF program waits for tens of milliseconds until all CPUs have seen it.
echo 1 >/sys/kernel/rcu_expedited
# What need not be waited for may take its time: the kernel would look every 4 ms whether all CPUs have seen it.
for look in first next; do echo 25 >/sys/module/rcutree/parameters/jiffies_till_${{look}}_fqs; done
for program in vmqos vmqos-agent vmqos-gateway; do ln -s /run/lab/bin/$program /usr/bin/; done
# Two accounts: one that is to read, and one that means ill.
mkdir -p /etc/sysusers.d
cat >/etc/sysusers.d/test.conf <<END
u ceilometer -
m ceilometer resctrl
u stranger -
END
{installed}
for program in agent gateway; do
    mkdir /etc/systemd/system/vmqos-$program.service.d
    # A system call that the filter forbids is to be seen. And on a busy machine, a program may take longer to start
    # than the minute and a half that systemd allows.
    printf '%s\\n' '[Service]' SystemCallErrorNumber= TimeoutStartSec=600 \\
        >/etc/systemd/system/vmqos-$program.service.d/test.conf
done
# A stopped process does not heed the watchdog's signal.
echo TimeoutAbortSec=2 >>/etc/systemd/system/vmqos-agent.service.d/test.conf
printf '%s\\n' '[Service]' WatchdogSec=30 >{watchdog}
# The guest lacks what these two sections need; a host that pip installed vmqos[agent] on has it.
sed -i '/^.nova.$/d; /^.placement.$/d' /etc/vmqos/vmqos.conf
# libvirt would ask QEMU for each feature of the CPU by itself, and have another daemon write the VM's log.
printf '%s\\n' 'capability_filters = ["cpu-unavailable-features"]' 'stdio_handler = "file"' >>/etc/libvirt/qemu.conf
modprobe -a kvm-amd tun
# As the guide says: CAP_PERFMON will do then.
echo 2 >/proc/sys/kernel/perf_event_paranoid
cat >{counting} <<'END'
{hardware_events}
END
# There is no udev to do it.
chmod 666 /dev/kvm
# libvirt would ask this one, too, what it can do.
rm /usr/bin/qemu-system-i386
find /usr/lib/systemd/system /etc/systemd/system -path '*.wants/*' {left_out} -delete
# libvirt would have these two started by D-Bus.
ln -s /dev/null /etc/systemd/system/systemd-logind.service
ln -s /dev/null /etc/systemd/system/polkit.service
# These look for units to make of what the guest does not have, at each daemon-reload anew.
rm -r /usr/lib/systemd/system-generators
# systemd's own services: their sandboxes are not what is tried here, and cost as much as the services.
mkdir /etc/systemd/system/systemd-.service.d
cat >/etc/systemd/system/systemd-.service.d/test.conf <<END
[Service]
SystemCallFilter=
SystemCallArchitectures=
RestrictAddressFamilies=
RestrictNamespaces=no
RestrictRealtime=no
RestrictSUIDSGID=no
MemoryDenyWriteExecute=no
LockPersonality=no
IPAddressDeny=
END
mkdir -p /etc/systemd/journald.conf.d
printf '[Journal]\\nStorage=volatile\\n' >/etc/systemd/journald.conf.d/test.conf
# Systemd would take a new /etc for a reason to make its caches anew.
touch /etc/.updated /var/.updated
"""
"""What an administrator did before the boot."""


def installed() -> str:
    """The README's commands from the configuration on, as they are before the boot: nothing can be started yet."""
    text = (CHECKOUT / "README.md").read_text()
    (block,) = re.findall(r"```shell\n((?:(?!```).)*enable --now.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("sudo ") for line in block.splitlines()]
    begin = next(number for number, line in enumerate(lines) if "vmqos.conf.sample" in line)
    end = max(number for number, line in enumerate(lines) if "enable --now" in line)
    kept = [line for line in lines[begin : end + 1] if "daemon-reload" not in line]
    return "\n".join(kept).replace(" --now", "")


def hardware_events() -> str:
    """The guide's commands for counting, as far as ``daemon-reload``: the agent is started anew by something else."""
    text = (CHECKOUT / "doc/source/operator/telemetry.rst").read_text()
    (block,) = re.findall(r"( +sudo mkdir -p \S+vmqos-agent.service.d\n.*?daemon-reload)\n", text, re.DOTALL)
    return textwrap.dedent(block).replace("sudo ", "")


def job() -> Job:
    """What the guest does: see :mod:`tests.kernel.units.host`."""
    ours = (path.name for path in (CHECKOUT / "etc/systemd").iterdir())
    left_out = " ".join(f"! -name {unit}" for unit in (*WANTED.split(), *ours))
    return Job(
        "exec python3 -m tests.kernel.units.host",
        before_systemd=PREPARE.format(
            installed=installed(),
            left_out=left_out,
            watchdog=SHORT_WATCHDOG,
            counting=COUNTING,
            hardware_events=hardware_events(),
        ),
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the administrator saw, by the name of the step."""
    path = tmp_path_factory.mktemp("systemd")
    result = run(machine(MACHINE), KERNEL, job(), path, TIMEOUT)
    print(result.stdout, result.stderr)
    assert result.status == 0, result.stderr
    found: Mapping[str, Any] = json.loads((Path(result.path) / "out/told.json").read_text())
    return found


def step(told: Mapping[str, Any], name: str) -> Any:
    """What a step found.

    :raises AssertionError: if an error ended it.
    """
    found = told[name]
    assert "error" not in found, found["error"]
    return found


def assert_kept(found: Mapping[str, Any], options: str = "") -> None:
    """The promise is kept, and resctrl is closed and mounted with these options."""
    assert found["tasks outside"] == []
    assert found["ways"] == [WAYS] * machine(MACHINE).sockets
    assert found["root"] == "0 750 root:resctrl"
    assert found["options"] == f"0 rw,relatime{options}"


def test_before_any_account_can_run_a_program_resctrl_is_closed(told: Mapping[str, Any]) -> None:
    found = step(told, "boot")
    assert found["failed"] == "0"
    assert found["root"] == "0 750 root:resctrl"
    assert 0 < found["closed at"] <= found["sysinit at"] <= found["libvirtd at"] <= found["agent at"]


def test_the_lock_file_is_roots_alone(told: Mapping[str, Any]) -> None:
    assert step(told, "boot")["lock file"] == "0 600 root:root"


@pytest.mark.parametrize(("unit", "most"), [(AGENT, 2.0), (GATEWAY, 1.5)])
def test_systemd_itself_calls_the_exposure_no_larger_than_promised(
    told: Mapping[str, Any], unit: str, most: float
) -> None:
    (level,) = re.findall(rf"exposure level for {unit}: ([0-9.]+)", step(told, "exposure")[unit])
    assert float(level) <= most


def test_a_promise_is_kept_from_within_the_sandbox(told: Mapping[str, Any]) -> None:
    assert_kept(step(told, "a_vm"))


def test_a_stranger_can_lock_nothing_and_ceilometers_user_can_read(told: Mapping[str, Any]) -> None:
    found = step(told, "others")
    for what in ("a stranger locks resctrl", "a stranger locks the lock file"):
        assert "Permission denied" in found[what]
    assert re.fullmatch(r"[0-9a-f-]{36}", found["Ceilometer's user reads"])


def test_the_gateways_user_alone_may_use_its_socket_to_the_agent(told: Mapping[str, Any]) -> None:
    found = step(told, "others")
    assert found["a stranger asks the gateway's socket of the agent"] == "SocketForbidden"
    assert re.fullmatch(r"\d\S*", found["the gateway's user asks it"])


def test_the_gateway_has_the_network_and_the_agent_has_none(told: Mapping[str, Any]) -> None:
    found = step(told, "network")
    assert found["agent's"] == [] and found["gateway's"] >= 1
    for path, wanted in {"health": '"kept": 1', "metrics": "vmqos_vm_state{", "page": "<!DOCTYPE html>"}.items():
        assert found[path].startswith("200 ") and wanted in found[path], found[path]


def test_the_agent_may_count_what_vms_execute_with_the_guides_drop_in_alone(told: Mapping[str, Any]) -> None:
    """The machine has nothing to count with. The kernel refuses one who may not count before it says so."""
    found = step(told, "network")["hardware events"]
    assert found.startswith("200 ") and "the agent lacks CAP_PERFMON" in found
    assert step(told, "watchdog")["counting"].startswith("0")
    found = step(told, "watchdog")["hardware events"]
    assert found.startswith("200 ") and "this kernel gives no hardware events, as in most virtual machines" in found


def test_the_gateway_is_no_root_and_gets_a_configuration_that_only_root_may_read(told: Mapping[str, Any]) -> None:
    found = step(told, "network")
    assert found["user"] == "vmqos-gateway" and found["capabilities"] == ["0000000000000000"] * 4
    assert "Permission denied" in step(told, "others")["the gateway's user reads the configuration"]


def test_the_metrics_tell_the_agents_process_and_the_gateways(told: Mapping[str, Any]) -> None:
    found = step(told, "network")
    resident = dict(re.findall(r"^(\S*process_resident_memory_bytes) (\S+)$", found["metrics"], re.MULTILINE))
    assert set(resident) == {"process_resident_memory_bytes", "vmqos_gateway_process_resident_memory_bytes"}
    assert all(float(size) > 1 << 20 for size in resident.values())
    assert json.loads(found["health"].removeprefix("200 "))["pid"] == int(found["agent's pid"])


def test_a_reload_and_the_watchdog_work(told: Mapping[str, Any]) -> None:
    found = step(told, "reload")
    assert found["done"] == "0" and found["same process"]
    assert_kept(found)
    found = step(told, "watchdog")
    assert "Watchdog timeout" in found["log"]
    assert found["timer started"] and found["timer"] == "inactive"
    assert_kept(found)


def test_who_holds_the_lock_is_named_by_the_doctors_command(told: Mapping[str, Any]) -> None:
    found = step(told, "held")
    assert found["command"] == "fuser -v /sys/fs/resctrl"
    assert found["holder"] in found["done"]


def test_the_doctors_command_makes_a_read_only_resctrl_writable(told: Mapping[str, Any]) -> None:
    found = step(told, "read_only")
    assert found["command"] and found["done"] == "0"
    assert_kept(found)


def test_the_doctors_command_switches_a_mount_option_on_for_good(told: Mapping[str, Any]) -> None:
    found = step(told, "other_options")
    assert "sys-fs-resctrl.mount.d/options.conf" in found["command"]
    assert found["done"].startswith("0")
    assert_kept(found, ",cdp")


def test_a_resctrl_that_somebody_mounts_anew_is_closed_and_used(told: Mapping[str, Any]) -> None:
    found = step(told, "mounted_by_hand")
    assert found["done"].startswith("0") and found["same process"]
    assert_kept(found)


def test_the_doctors_command_brings_resctrl_to_where_the_agent_looks(told: Mapping[str, Any]) -> None:
    found = step(told, "mounted_elsewhere")
    assert found["command"] == "mount --bind /root/elsewhere /sys/fs/resctrl"
    assert found["done"] == "0" and found["mounted"].startswith("0 /sys/fs/resctrl resctrl")
    assert found["unmounted"] == "0"


def test_a_resctrl_that_is_mounted_after_the_agents_start_is_seen_in_the_sandbox(told: Mapping[str, Any]) -> None:
    found = step(told, "mounted_late")
    # A service has a mount of its own, as virtlogd has from the boot on.
    assert "nsenter" in found["command"] and "mount -t resctrl resctrl /sys/fs/resctrl" in found["command"]
    assert found["start"] == "0" and found["done"].startswith("0")
    assert_kept(found)


def test_a_restart_of_libvirt_changes_nothing(told: Mapping[str, Any]) -> None:
    found = step(told, "libvirt_again")
    assert found["done"] == "0"
    assert_kept(found)


def test_an_agent_that_stays_away_has_its_host_withdrawn_and_a_restart_does_not(told: Mapping[str, Any]) -> None:
    found = step(told, "away")
    assert found["while it runs"] == "inactive"
    assert found["restarts"] >= 1 and found["result"] == "success"
    assert found["timer"] == "0 active"
    # Its next start ends the timer: the step waits for that.
    assert step(told, "mounted_late")["start"] == "0"


def test_a_stopped_agent_leaves_its_groups_and_reset_takes_them_back(told: Mapping[str, Any]) -> None:
    found = step(told, "stop")
    assert (found["done"], found["result"], found["group stays"]) == ("0", "success", True)
    assert found["group goes"]


def test_the_journal_finds_the_promises_of_a_vm_and_has_each_line_once(told: Mapping[str, Any]) -> None:
    found = step(told, "journal")
    entries = [json.loads(line) for line in found["vm"].removeprefix("0 ").splitlines()]
    assert {(entry["_SYSTEMD_UNIT"], entry["SYSLOG_IDENTIFIER"]) for entry in entries} == {(AGENT, "vmqos-agent")}
    (uuid,) = {entry["VMQOS_VM"] for entry in entries}
    lines = [
        line for line in found["agent"].splitlines() if re.search(rf"VM {uuid} \(\S+\): (kept|pending|degr)", line)
    ]
    states = ("kept", "pending", "degraded")
    assert lines == [entry["MESSAGE"] for entry in entries if entry.get("VMQOS_STATE") in states] != []


def test_the_gateway_outlives_the_agent_and_says_that_it_is_away(told: Mapping[str, Any]) -> None:
    found = step(told, "stop")
    assert (found["gateway"], found["restarts"]) == ("active", "0")
    assert found["metrics"].startswith("200 ") and "vmqos_agent_up 0.0" in found["metrics"]


def test_nothing_was_denied_to_the_agent_and_the_gateway(told: Mapping[str, Any]) -> None:
    found = step(told, "journal")
    # grep found nothing: no system call was refused, which would have killed the program here.
    assert found["kernel"] in ("1", "1 -- No entries --")
    denied = re.compile("Operation not permitted|Permission denied|Read-only file system|SIGSYS|status=31|Traceback")
    lines = [line for who in ("agent", "gateway") for line in found[who].splitlines() if denied.search(line)]
    # The one time that resctrl was read-only, and was to be.
    assert [line for line in lines if "resctrl at /sys/fs/resctrl is mounted read-only" not in line] == []
