# SPDX-License-Identifier: Apache-2.0
"""The version before comes from git, and is run from its own tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.lab import versions

NONE = "0" * 40


def test_a_commit_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(versions.CommitMissing, match=rf"{NONE}.*git fetch --unshallow"):
        versions.extract(tmp_path / "tree", NONE)
    assert not (tmp_path / "tree").exists()


def test_a_clone_without_the_history_of_late_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = "-c", "user.name=a", "-c", "user.email=a@b"
        subprocess.run(["git", *identity, "-C", str(tmp_path), *arguments], check=True)

    git("init", "--quiet")
    (tmp_path / "vmqos").mkdir()
    (tmp_path / "vmqos/__init__.py").touch()
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setattr(versions, "CHECKOUT", tmp_path)
    with pytest.raises(versions.CommitMissing, match=rf"{versions.LATELY}.*git fetch --unshallow"):
        versions.extract(tmp_path / "tree", versions.LATELY)
    for number in range(20):
        git("commit", "--quiet", "--allow-empty", "--message", str(number))
    assert (versions.extract(tmp_path / "tree", versions.LATELY) / "vmqos/__init__.py").exists()


def test_where_git_is_not_installed_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(versions.CommitMissing, match="git is not installed"):
        versions.extract(tmp_path / "tree")


def make_tree(folder: Path) -> Path:
    package = folder / "vmqos" / "agent"
    package.mkdir(parents=True)
    (folder / "vmqos/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text("import sys\ndef main():\n    print(__file__, *sys.argv)\n    return 3\n")
    return folder


@pytest.mark.parametrize("is_new", [False, True])
def test_a_program_is_started_in_the_version_that_is_installed(tmp_path: Path, is_new: bool) -> None:
    old, new = make_tree(tmp_path / "old"), make_tree(tmp_path / "new")
    exchangeable = versions.Exchangeable(versions.launch_from(new), old)
    exchangeable.install(agent=is_new, gateway=not is_new)
    log = tmp_path / "log"
    assert exchangeable("vmqos.agent.main", ["--once"], log).wait(30) == 3
    tree = new if is_new else old
    assert log.read_text() == f"{tree}/vmqos/agent/main.py vmqos.agent.main --once\n"


def test_a_module_that_the_tree_does_not_have_is_not_taken_from_elsewhere(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = versions.launch_from(make_tree(tmp_path / "old"))("vmqos.cli.main", [], log)
    assert started.wait(30) == 1
    assert "No module named 'vmqos.cli'" in log.read_text()
