# SPDX-License-Identifier: Apache-2.0
"""A mount that follows another one is not taken for it, though both have the same numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmqos.host import resctrl_state
from vmqos.resctrl import exceptions
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
