# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vmqos.gateway.metrics.kept_counters import Kept, KeptCounters

KEPT = Kept(
    last={"u": {("caches", "0", "mbm_total_bytes"): ("b+a", 1030.0)}},
    left={"u": {("packages", "1", "core_energy"): 7.5}},
    remote={("u", "0"): ("a", 100.0, 60.0, 40.0)},
    highest={("7", "class-1", "class", "0"): 500.0},
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "gateway.counters"
    assert KeptCounters(str(path)).read() == Kept()
    for kept in (Kept(), KEPT):
        KeptCounters(str(path)).write(kept)
    assert KeptCounters(str(path)).read() == KEPT
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_written_again_only_where_the_file_does_not_have_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.counters"
    kept = KeptCounters(str(path))
    kept.write(KEPT)
    first = path.stat()
    kept.write(replace(KEPT, highest=dict(KEPT.highest)))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    for is_lost in (path.unlink, lambda: path.write_bytes(b"another's")):
        is_lost()
        kept.write(KEPT)
        assert KeptCounters(str(path)).read() == KEPT
    KEPT.highest["8", "class-1", "class", "0"] = 1.0
    kept.write(KEPT)
    del KEPT.highest["8", "class-1", "class", "0"]
    assert len(KeptCounters(str(path)).read().highest) == 2
    kept.write(KEPT)
    assert KeptCounters(str(path)).read() == KEPT, "what fell out of it goes out of the file"


def test_what_could_not_be_written_is_written_once_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "later" / "gateway.counters"
    kept = KeptCounters(str(path))
    kept.write(KEPT)
    path.parent.mkdir()
    kept.write(KEPT)
    assert KeptCounters(str(path)).read() == KEPT


@pytest.mark.parametrize("content", [b"", b"{}", b"\xc1", b"\x81\xa4left\x01", b"\x91" * 100_000])
def test_a_file_that_can_not_be_read_is_a_line_in_the_log(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gateway.counters"
    path.write_bytes(content)
    assert KeptCounters(str(path)).read() == Kept()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_place_that_can_not_be_written_to_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptCounters(str(tmp_path / "none" / "gateway.counters"))
    for _ in range(2):
        kept.write(KEPT)
    assert ["can't be written" in record.message for record in caplog.records] == [True]


def test_a_file_that_no_longer_is_one_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "gateway.counters"
    path.mkdir()
    KeptCounters(str(path)).write(KEPT)
    assert list(tmp_path.iterdir()) == [path]
