# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli.lock import LockCreate


def parsed(*arguments: str) -> object:
    return LockCreate(None, None).get_parser("vmqos lock create").parse_args(["name", *arguments])


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("256K", 262144), ("256KiB", 262144), ("1M", 1048576), ("1mb", 1048576), ("17B", 17)],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, count: int) -> None:
    assert vars(parsed("--cache", "L2:1", "--size", text))["size"] == count


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("--cache", "L2:1", "--size", "0"), "a number with K or M"),
        (("--cache", "L2:1", "--size", "1G"), "a number with K or M"),
        (("--cache", "L2:1", "--size", "-4K"), "expected one argument"),
        (("--cache", "L1:0", "--size", "4K"), "such as L2:1"),
        (("--cache", "3", "--size", "4K"), "such as L2:1"),
        (("--cache", "L2:1", "--size", "4K", "--vm", "web"), "is no UUID"),
        (("--cache", "L2:1"), "required: --size"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_with_what_is_right(
    arguments: tuple[str, ...], allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)
    assert ended.value.code == 2
    assert allowed in capsys.readouterr().err


def test_what_is_for_a_vm_alone_needs_one(run: Run) -> None:
    ran = run("lock", "create", "x", "--cache", "L2:1", "--size", "4K", "--next-start")
    assert (ran.status, ran.out) == (2, "")
    assert "name one with --vm; see 'vmqos help lock create'" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("lock", "list"),
        ("lock", "show", "x"),
        ("lock", "remove", "x"),
        ("lock", "create", "x", "--cache", "L2:1", "--size", "4K"),
    ],
)
def test_a_host_without_resctrl_is_one_line_on_stderr(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "vmqos.conf").write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n")
    ran = run("--config-file", str(tmp_path / "vmqos.conf"), *command)
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
