# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from vmqos.bench import reality

IRON = "processor : 0\nflags\t\t: fpu vme rdt_a cat_l3\n"


def why(tmp_path: Path, cpuinfo: str, vendor: str = "", simulated: bool = False) -> str:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    (tmp_path / "sys_vendor").write_text(f"{vendor}\n")
    return reality.why_not(simulated, str(tmp_path), str(tmp_path))


def test_figures_of_iron_mean_something(tmp_path: Path) -> None:
    assert why(tmp_path, IRON, "Dell Inc.") == ""


def test_a_hypervisors_bit_or_the_firmware_gives_a_virtual_machine_away(tmp_path: Path) -> None:
    assert "virtual or emulated" in why(tmp_path, IRON.replace("fpu", "fpu hypervisor"))
    assert "virtual or emulated" in why(tmp_path, "CPU implementer : 0x41\n", "QEMU")


def test_the_simulator_comes_before_all_else(tmp_path: Path) -> None:
    assert "simulated" in why(tmp_path, IRON, simulated=True)


def test_a_host_that_tells_nothing_is_taken_for_iron(tmp_path: Path) -> None:
    assert reality.why_not(False, str(tmp_path), str(tmp_path)) == ""
