# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

BEFORE = "resources:\n  - resource_type: instance\n    metrics:\n      memory:  # MiB\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gnocchi_resources.yaml"
    path.write_text(BEFORE)
    return path


def test_a_merge_shows_what_it_would_do_and_does_it_only_when_told(run: Run, file: Path) -> None:
    shown = run("gnocchi-resources", "merge", str(file))
    assert (shown.status, file.read_text()) == (0, BEFORE)
    assert "\n       memory:  # MiB\n+      cpu_l3_cache:\n+      cpu_l3_cache.ways:\n" in shown.out
    assert "--write" in shown.err

    done = run("gnocchi-resources", "merge", str(file), "--write")
    assert (done.status, done.out) == (0, shown.out)
    assert "restart" in done.err
    assert file.read_text().startswith(BEFORE + "      cpu_l3_cache:\n")

    again = run("gnocchi-resources", "merge", str(file), "--write")
    assert (again.status, again.out) == (0, "")
    assert "nothing to do" in again.err


def test_the_file_keeps_its_permissions_and_a_link_to_it_stays_one(run: Run, file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert run("gnocchi-resources", "merge", str(link), "--write").status == 0
    assert link.is_symlink()
    assert "cpu_l3_cache" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(tmp_path.glob("*.yaml*")) == [file, link]


def test_an_operators_own_archive_policy_is_kept_and_told_of(run: Run, file: Path) -> None:
    file.write_text(BEFORE + "      memory.traffic.total: {archive_policy_name: mine}\n")
    ran = run("gnocchi-resources", "merge", str(file))
    assert "memory.traffic.total is there already" in ran.err
    assert "ceilometer-low-rate" in ran.err
    assert "+      memory.traffic.total" not in ran.out


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "copy that one there first"), ("sources: []", "no list 'resources'"), (b"\xff", "can't use")],
)
def test_a_file_that_can_not_be_merged_is_one_line_on_stderr(
    run: Run, file: Path, content: str | bytes | None, problem: str
) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    ran = run("gnocchi-resources", "merge", str(file), "--write")
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
    assert problem in ran.err


def test_what_is_no_file_is_not_waited_for_where_it_is_to_be_changed(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ran = run("gnocchi-resources", "merge", str(tmp_path / "fifo"), "--write")
    assert (ran.status, ran.out) == (1, "") and "it is no regular file" in ran.err
    assert (tmp_path / "fifo").is_fifo()
