# SPDX-License-Identifier: Apache-2.0
"""Reading resctrl: what changed is seen, also where a mount has the same numbers as the mount before it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmqos.host import resctrl_state
from vmqos.resctrl import exceptions, schemata
from vmqos.resctrl.filesystem import Filesystem

NOT_SPLIT, SPLIT = ("L3",), ("L3CODE", "L3DATA")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mode").write_text("shareable\n")
    mount(tmp_path, *SPLIT)
    return tmp_path


def mount(root: Path, *resources: str) -> None:
    """What another mount makes of a tree: its ``info``, and the default group's masks."""
    made = root / f"info-{len(resources)}"
    for name in resources:
        (made / name).mkdir(parents=True)
        for file, text in (("cbm_mask", "7ff"), ("min_cbm_bits", "1"), ("num_closids", "8"), ("shareable_bits", "0")):
            (made / name / file).write_text(f"{text}\n")
    if (root / "info").exists():
        os.rename(root / "info", root / "unmounted")
    os.rename(made, root / "info")
    (root / "schemata").write_text("".join(f"{name}:0=7ff;1=7ff\n" for name in resources))


def test_what_a_mount_offers_is_read_anew_after_a_mount_with_the_same_numbers(root: Path) -> None:
    filesystem = Filesystem(str(root))
    before = resctrl_state.read(filesystem)
    assert set(before.capabilities.caches) == set(SPLIT)
    assert resctrl_state.read(filesystem, before) is before
    mount(root, *NOT_SPLIT)
    again = resctrl_state.read(filesystem, before)
    assert again.mounted_as[:2] == before.mounted_as[:2]
    assert again.mounted_as != before.mounted_as
    assert set(again.capabilities.caches) == set(NOT_SPLIT)


def test_without_info_there_is_no_resctrl(root: Path) -> None:
    os.rename(root / "info", root / "unmounted")
    with pytest.raises(exceptions.Vanished):
        resctrl_state.read(Filesystem(str(root)))


def test_before_a_start_nothing_is_parsed_that_is_as_it_was_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = Filesystem(str(root))
    before = resctrl_state.read(filesystem)
    with monkeypatch.context() as patched:
        patched.delattr(schemata, "parse")
        assert resctrl_state.read_what_others_change(filesystem, before) is before
    predicted = before.after(before.layout)
    assert resctrl_state.read_what_others_change(filesystem, predicted) is predicted


@pytest.mark.parametrize("is_predicted", [False, True])
@pytest.mark.parametrize("name", ["", "another-program-s"])
@pytest.mark.parametrize(
    ("file", "text"), [("schemata", "L3CODE:0=7;1=7ff\nL3DATA:0=7;1=7ff\n"), ("mode", "exclusive\n")]
)
def test_what_another_program_changes_is_seen_before_a_start(
    root: Path, name: str, file: str, text: str, is_predicted: bool
) -> None:
    theirs = root / "another-program-s"
    theirs.mkdir()
    for known in ("mode", "schemata"):
        (theirs / known).write_text((root / known).read_text())
    filesystem = Filesystem(str(root))
    before = resctrl_state.read(filesystem)
    if is_predicted:
        before = before.after(before.layout)
    (root / name / file).write_text(text)
    now = resctrl_state.read_what_others_change(filesystem, before)
    assert now.layout != before.layout and now == resctrl_state.read(filesystem)
