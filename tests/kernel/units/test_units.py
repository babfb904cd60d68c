# SPDX-License-Identifier: Apache-2.0
"""A host as the README installs it: systemd, Debian's own libvirtd, our units, the kernel's resctrl, a VM.

One guest is booted. ``host.py`` is the administrator there, who looks and acts; here is judged what it saw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.lab.guest import run
from tests.kernel.lab.job import CHECKOUT, Job
from tests.kernel.lab.machines import machine
from tests.kernel.units.host import WAYS

MACHINE, KERNEL = "milan-kvm", "6.12"
TIMEOUT = 500.0
"""Seconds: several times what it takes on an idle machine."""

# CI has no time for it yet: a guest that boots a whole systemd takes minutes where every CPU is emulated and busy.
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

# What makes no difference to us, and takes an emulated CPU its time.
LEFT_OUT = (
    "apt-daily-upgrade.timer apt-daily.timer cron.service dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service "
    "fstrim.timer getty.target libvirt-guests.service logrotate.timer modprobe@.service networking.service "
    "polkit.service systemd-logind.service systemd-update-utmp.service systemd-user-sessions.service"
)

PREPARE = """\
set -e
for program in vmqos vmqos-agent; do ln -s /run/lab/bin/$program /usr/bin/; done
useradd --system --no-create-home ceilometer
{installed}
# Two accounts: one that is to read, and one that means ill.
usermod --append --groups resctrl ceilometer
useradd --no-create-home stranger
mkdir /etc/systemd/system/vmqos-agent.service.d
cat >/etc/systemd/system/vmqos-agent.service.d/test.conf <<END
[Service]
# A minute is too long to wait for, and a system call that the filter forbids is to be seen.
WatchdogSec=10
# A stopped process does not heed the watchdog's signal.
TimeoutAbortSec=2
SystemCallErrorNumber=
END
# The guest lacks what these two sections need; a host that pip installed vmqos[agent] on has it.
sed -i '/^.nova.$/d; /^.placement.$/d' /etc/vmqos/vmqos.conf
# libvirt would ask QEMU for each feature of the CPU by itself.
echo 'capability_filters = ["cpu-unavailable-features"]' >>/etc/libvirt/qemu.conf
for module in kvm-amd tun; do modprobe $module; done
# Of the devices, systemd waits for the disks; drivers of others take an emulated CPU ten seconds to load.
mkdir /etc/systemd/system/systemd-udev-trigger.service.d
cat >/etc/systemd/system/systemd-udev-trigger.service.d/test.conf <<END
[Service]
ExecStart=
ExecStart=udevadm trigger --action=add --subsystem-match=block
END
# Systemd would take a new /etc for a reason to make its caches anew.
touch /etc/.updated /var/.updated
systemctl mask --quiet {left_out}
"""


def installed() -> str:
    """The README's commands from the configuration on, as they are before the boot: nothing can be started yet."""
    text = (CHECKOUT / "README.md").read_text()
    (block,) = re.findall(r"```shell\n((?:(?!```).)*enable --now.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("sudo ") for line in block.splitlines()]
    begin = next(number for number, line in enumerate(lines) if "vmqos.conf.sample" in line)
    end = next(number for number, line in enumerate(lines) if "enable --now" in line)
    kept = [line for line in lines[begin : end + 1] if "daemon-reload" not in line]
    return "\n".join(kept).replace(" --now", "")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the administrator saw, by the name of the step."""
    path = tmp_path_factory.mktemp("systemd")
    job = Job(
        "exec python3 -m tests.kernel.units.host",
        before_systemd=PREPARE.format(installed=installed(), left_out=LEFT_OUT),
    )
    result = run(machine(MACHINE), KERNEL, job, path, TIMEOUT)
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


def test_systemd_itself_calls_the_exposure_at_most_2_5(told: Mapping[str, Any]) -> None:
    said = step({"exposure": {"said": told["exposure"]}}, "exposure")["said"]
    (level,) = re.findall(r"exposure level for vmqos-agent.service: ([0-9.]+)", said)
    assert float(level) <= 2.5


def test_a_promise_is_kept_from_within_the_sandbox(told: Mapping[str, Any]) -> None:
    assert_kept(step(told, "a_vm"))


def test_a_stranger_can_lock_nothing_and_ceilometers_user_can_read(told: Mapping[str, Any]) -> None:
    found = step(told, "others")
    for what in ("a stranger locks resctrl", "a stranger locks the lock file"):
        assert "Permission denied" in found[what]
    assert re.fullmatch(r"0 [0-9a-f-]{36}", found["Ceilometer's user reads"])


def test_a_reload_and_the_watchdog_work(told: Mapping[str, Any]) -> None:
    found = step(told, "reload")
    assert found["done"] == "0" and found["same process"]
    assert_kept(found)
    found = step(told, "watchdog")
    assert "Watchdog timeout" in found["log"]
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
    assert (found["while it runs"], found["restart"]) == ("inactive", "0")
    assert found["restarts"] >= 1 and found["result"] == "success"
    assert found["start"] == "0"
    assert_kept(found)


def test_a_stopped_agent_leaves_its_groups_and_reset_takes_them_back(told: Mapping[str, Any]) -> None:
    found = step(told, "stop")
    assert (found["done"], found["result"], found["group stays"]) == ("0", "success", True)
    assert found["reset"].startswith("0 ") and found["group goes"]


def test_nothing_was_denied_to_the_agent(told: Mapping[str, Any]) -> None:
    found = step(told, "journal")
    # grep found nothing: no system call was refused, which would have killed the agent here.
    assert found["kernel"] in ("1", "1 -- No entries --")
    denied = re.compile("Operation not permitted|Permission denied|Read-only file system|SIGSYS|status=31|Traceback")
    lines = [line for line in found["agent"].splitlines() if denied.search(line)]
    # The one time that resctrl was read-only, and was to be.
    assert [line for line in lines if "resctrl at /sys/fs/resctrl is mounted read-only" not in line] == []
