# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli import simulate
from vmqos.simulator.hardware.profiles import PROFILES


def test_profiles_are_listed_with_what_they_are(run: Run) -> None:
    ran = run("simulate", "--list-profiles")
    assert ran.status == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == list(PROFILES)
    assert all(len(line.split()) > 3 for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a MOUNTPOINT and a --profile"),
        (("/tmp/x",), "name a MOUNTPOINT and a --profile"),
        (("/tmp/x", "--profile", "zx81"), "there is no simulated machine 'zx81'; there are: "),
    ],
)
def test_what_is_missing_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("simulate", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_configuration_to_write_is_told(tmp_path: Path) -> None:
    told = simulate.how_to_use("minimal", "/mnt/rdt", "/mnt/cpu")
    assert "    [resctrl]\n    path = /mnt/rdt\n    sysfs_cpu_path = /mnt/cpu\n" in told
    assert "Give --sysfs DIR as well" in simulate.how_to_use("minimal", "/mnt/rdt", None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EINVAL, "Invalid argument"), "there are cdp, cdpl2, mba_MBps and debug"),
        (OSError(errno.EIO, "FUSE could not be mounted", "/mnt"), "FUSE could not be mounted: /mnt): it needs root"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "can't use a file of the simulator: No space left on device",
        ),
    ],
)
def test_nothing_is_announced_that_does_not_come(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("vmqos.simulator.service.serve", fail)
    ran = run("simulate", str(tmp_path / "new"), "--profile", "minimal", "--mount-options", "cdp")
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert told in ran.err and not (tmp_path / "new").exists()


def test_what_is_in_a_directory_is_not_hidden(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schemata").touch()
    monkeypatch.setattr("vmqos.simulator.service.serve", lambda *_, **__: pytest.fail("was mounted"))
    ran = run("simulate", str(tmp_path), "--profile", "minimal")
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert f"something is in the directory {tmp_path} already" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("{folder}/file",), "can't use {folder}/file: Not a directory"),
        (("{folder}/file/x",), "can't use {folder}/file/x: Not a directory"),
        (("{folder}/new", "--log", "{folder}/none/log"), "can't use {folder}/none/log: No such file or directory"),
        (("{folder}/new", "--sysfs", "{folder}/file"), "can't use {folder}/file/cpu0/cache/index2: Not a directory"),
    ],
)
def test_a_file_that_can_not_be_used_is_named_in_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "file").touch()
    ran = run("simulate", *(argument.format(folder=tmp_path) for argument in arguments), "--profile", "minimal")
    assert (ran.status, ran.out, ran.err) == (1, "", f"vmqos: {told.format(folder=tmp_path)}\n")
    assert not (tmp_path / "new").exists()
