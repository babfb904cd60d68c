# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from vmqos.resctrl import exceptions, pseudo_lock
from vmqos.resctrl.filesystem import Filesystem

CPUINFO = """\
processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model\t\t: {model}
model name\t: {name}
stepping\t: 1

processor\t: 1
model\t\t: 79
"""


def cpuinfo(directory: Path, vendor: str, family: int, model: int, name: str) -> str:
    (directory / "cpuinfo").write_text(CPUINFO.format(vendor=vendor, family=family, model=model, name=name))
    return str(directory)


@pytest.mark.parametrize("model", [79, 92, 122])
def test_the_kernel_knows_the_prefetchers_of_some_processors(tmp_path: Path, model: int) -> None:
    assert pseudo_lock.why_processor_cannot(cpuinfo(tmp_path, "GenuineIntel", 6, model, "Xeon")) == ""


@pytest.mark.parametrize(
    ("vendor", "family", "model"), [("GenuineIntel", 6, 85), ("GenuineIntel", 15, 79), ("AuthenticAMD", 6, 79)]
)
def test_of_another_processor_it_is_said_which_ones_can(tmp_path: Path, vendor: str, family: int, model: int) -> None:
    told = pseudo_lock.why_processor_cannot(cpuinfo(tmp_path, vendor, family, model, "Fast CPU @ 3 GHz"))
    assert "Broadwell-EP" in told and "Goldmont" in told and told.endswith("this one is Fast CPU @ 3 GHz")


def test_where_proc_does_not_tell_the_processor_is_unknown(tmp_path: Path) -> None:
    assert "this one is unknown" in pseudo_lock.why_processor_cannot(str(tmp_path))


@pytest.mark.parametrize("text", ["", "\n\nmodel\t: 79\n"])
def test_where_cpuinfo_begins_with_no_cpu_the_processor_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert pseudo_lock.why_processor_cannot(str(tmp_path)).endswith("this one is unknown")


@pytest.mark.parametrize("size", ["many", "-1", "1_0", "9" * 5000])
def test_a_size_that_is_no_number_is_an_error_of_this_package(tmp_path: Path, size: str) -> None:
    (tmp_path / "size").write_text(f"L3:0={size}\n")
    with pytest.raises(exceptions.InvalidSchemata):
        pseudo_lock.read_sizes(Filesystem(str(tmp_path)), "")


def test_sizes_are_bytes_by_cache(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "size").write_text("    L3:0=1310720;1=0\n")
    assert pseudo_lock.read_sizes(Filesystem(str(tmp_path)), "g") == {"L3": {0: 1310720, 1: 0}}


def test_only_a_character_device_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert pseudo_lock.is_device("/dev/null")
    assert not pseudo_lock.is_device(str(tmp_path / "file"))
    assert not pseudo_lock.is_device(str(tmp_path / "nothing"))
