# SPDX-License-Identifier: Apache-2.0
"""The simulator answers as the kernels did that were recorded.

Every record that holds an answer of resctrl is judged: the error, the return value, ``last_cmd_status`` and the
content of every file that was read after it. What may differ, and why, is listed in
:data:`tests.functional.replay.rules.RULES` and, for the sections that must agree record by record, narrowed in
:data:`STRICT` below; records that are not judged at all are in :data:`tests.functional.replay.rules.UNJUDGED`.

``VMQOS_RECORDINGS=a.jsonl:b.jsonl`` replays those in place of our own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.replay import derive, player, recording
from tests.functional.replay.conftest import TABLE
from tests.functional.replay.rules import COUNTER_VALUE, EMPTY_WRITE, ENDED_THREAD
from tests.functional.replay.stage import Stage
from tests.functional.replay.verdict import summary

STRICT: dict[str, set[str]] = {
    "tree": {COUNTER_VALUE},
    "mkdir": {COUNTER_VALUE},
    "schemata": {EMPTY_WRITE},
    "tasks": {ENDED_THREAD},
    "cpus": set(),
    "mode": set(),
    "mon_groups": {COUNTER_VALUE},
    "rmid-exhaustion": set(),
}
"""The sections that must agree record by record, and the only exceptions that they may need."""

RECORDINGS = recording.paths()


@pytest.fixture
def mountpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that every user may enter, on a machine that can serve FUSE."""
    if os.geteuid() != 0:
        pytest.fail("the replay acts as root and as another user: run it as root")
    if not os.path.exists("/dev/fuse"):
        pytest.fail("/dev/fuse is missing: 'modprobe fuse', and in a container '--device /dev/fuse'")
    path = tmp_path_factory.mktemp("resctrl")
    for directory in (path, *path.parents):
        if directory.stat().st_uid == os.geteuid() and str(directory) != "/":
            directory.chmod(directory.stat().st_mode | 0o111)
    return path


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_simulator_answers_as_the_recorded_kernel_did(
    path: Path, mountpoint: Path, record_property: Callable[[str, object], None]
) -> None:
    records = recording.load(path)
    stage = Stage(derive.profile_of(records, path.stem), str(mountpoint))
    try:
        tallies = player.play(stage, records)
    finally:
        stage.close()
    table = summary(path.stem, tallies)
    record_property(TABLE, table)

    differences = [str(difference) for tally in tallies.values() for difference in tally.differences]
    assert not differences, f"{table}\n" + "\n".join(differences)
    loose = {
        section: set(tally.excepted) - STRICT[section]
        for section, tally in tallies.items()
        if section in STRICT and set(tally.excepted) - STRICT[section]
    }
    assert not loose, f"exceptions where none belong: {loose}"


def test_there_is_something_to_replay() -> None:
    assert RECORDINGS, f"no recording in {recording.OWN} and none named by {recording.VARIABLE}"
