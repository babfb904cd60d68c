# SPDX-License-Identifier: Apache-2.0
"""What this machine's systemd says of our units; ``tests/kernel/units`` has one run them."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from tools.lab.workspace import CHECKOUT
from vmqos.conf import loader

UNITS = CHECKOUT / "etc" / "systemd"
SYSUSERS = CHECKOUT / "etc" / "sysusers.d" / "vmqos.conf"
AGENT, GATEWAY = "vmqos-agent.service", "vmqos-gateway.service"
EXPOSURE = {AGENT: 2.0, GATEWAY: 1.5}
"""The most that a unit may have; ``systemd-analyze security`` says for what."""


def service(unit: str) -> configparser.SectionProxy:
    """The section ``[Service]``; of an option that is there several times, the last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.read_string((UNITS / unit).read_text())
    return parser["Service"]


@pytest.mark.parametrize("unit", EXPOSURE)
def test_the_exposure_is_no_larger_than_promised(unit: str) -> None:
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / unit)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (level,) = re.findall(rf"exposure level for {unit}: ([0-9.]+)", said)
    assert float(level) <= EXPOSURE[unit], said


@pytest.mark.parametrize("unit", sorted(UNITS.iterdir()), ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    # The programs are not where a compute node has them.
    for one in UNITS.iterdir():
        text = re.sub(r"^ExecStart=/usr/bin/vmqos\S*", "ExecStart=/bin/true", one.read_text(), flags=re.MULTILINE)
        (tmp_path / one.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--generators=no", str(tmp_path / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert unit.name not in done.stdout + done.stderr


def test_the_agent_may_open_no_socket_but_unix_sockets() -> None:
    agent = service(AGENT)
    assert (agent["RestrictAddressFamilies"], agent["IPAddressDeny"]) == ("AF_UNIX", "any")
    assert "IPAddressAllow" not in agent


def test_the_gateway_has_no_capability_and_a_user_that_the_agent_lets_in(tmp_path: Path) -> None:
    gateway = service(GATEWAY)
    assert gateway["CapabilityBoundingSet"] == "" and "AmbientCapabilities" not in gateway
    assert gateway["User"] == loader.defaults().gateway.user
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", str(SYSUSERS)], capture_output=True, check=True)
    made = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    assert made[gateway["User"]][2] != "0"
    assert gateway["Group"] in (tmp_path / "etc/group").read_text()


def test_the_gateway_may_make_its_socket_where_its_configuration_has_it_by_default() -> None:
    for path in (loader.defaults().gateway.socket, loader.defaults().notifications.position_file):
        assert Path(path).parent == Path("/run", service(GATEWAY)["RuntimeDirectory"])
