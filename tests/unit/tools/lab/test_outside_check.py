# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lab.outside_check import Promise, caches_with_cpus, check

GOLD = Promise("11111111-1111-1111-1111-111111111111", "gold", 4, True, {10: "qemu-system-x86", 11: "CPU 0/KVM"})
BATCH = Promise("22222222-2222-2222-2222-222222222222", "batch", 2, False, {20: "qemu-system-x86"})
PLAIN = Promise("33333333-3333-3333-3333-333333333333", "plain", 0, False, {30: "qemu-system-x86"})
PROMISES = (GOLD, BATCH, PLAIN)
GOLD_GROUP = f"vmqos.{GOLD.uuid}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A resctrl in which every promise is kept: 11 ways, two caches."""
    (tmp_path / "info" / "L3").mkdir(parents=True)
    (tmp_path / "info" / "L3" / "cbm_mask").write_text("7ff\n")
    (tmp_path / "info" / "L3" / "min_cbm_bits").write_text("1\n")
    group(tmp_path, "L3:0=7f0;1=7f0", [1, 2, 30], **{f"vmqos.{PLAIN.uuid}": [30]})
    group(tmp_path / GOLD_GROUP, "L3:0=00f;1=00f", [10, 11])
    group(tmp_path / "vmqos.shared-ways2", "L3:0=030;1=030", [20], **{f"vmqos.{BATCH.uuid}": [20]})
    return tmp_path


def group(path: Path, l3: str, tasks: list[int], **monitoring_groups: list[int]) -> None:
    path.mkdir(exist_ok=True)
    (path / "mon_groups").mkdir()
    write_tasks(path, tasks)
    (path / "schemata").write_text(f"    MB:0=100;1=100\n    {l3}\n")
    for name, ids in monitoring_groups.items():
        (path / "mon_groups" / name).mkdir()
        write_tasks(path / "mon_groups" / name, ids)


def write_tasks(path: Path, tasks: list[int]) -> None:
    (path / "tasks").write_text("".join(f"{task}\n" for task in tasks))


def write_l3(path: Path, masks: str) -> None:
    (path / "schemata").write_text(f"L3:{masks}\n")


def complaints(root: Path) -> list[str]:
    return [finding.text for finding in check(root, PROMISES, frozenset({0, 1})) if not finding.good]


def test_kept_promises_give_no_complaint(root: Path) -> None:
    assert complaints(root) == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda root: write_l3(root, "0=7f8;1=7f0"), "gold shares its exclusive ways: way mask 8 of cache 0 with the"),
        (lambda root: group(root / "theirs", "L3:0=7f0;1=001", []), "way mask 1 of cache 1 with theirs"),
        (lambda root: write_l3(root / GOLD_GROUP, "0=7;1=f"), "gold: promised 4 ways a cache, has 7 on cache 0"),
        (lambda root: write_l3(root / "vmqos.shared-ways2", "0=70;1=30"), "batch: promised 2 ways a cache"),
        (lambda root: write_l3(root / "vmqos.shared-ways2", "0=50;1=30"), "illegal mask 50 on cache 0"),
        (lambda root: write_l3(root, "0=ff0;1=7f0"), "illegal mask ff0 on cache 0"),
        (lambda root: write_l3(root, "0=400;1=7f0"), "the default group has fewer than 2 ways on cache 0"),
        (lambda root: write_tasks(root / GOLD_GROUP, [10]), f"gold: not in {GOLD_GROUP}: CPU 0/KVM (11)"),
        (lambda root: write_tasks(root, [1]), "plain: not in the default group: qemu-system-x86 (30)"),
        (lambda root: (root / "vmqos.shared-ways2").rename(root / "elsewhere"), "batch has no control group"),
    ],
)
def test_a_broken_promise_is_told(root: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(root)
    assert any(told in complaint for complaint in complaints(root))


def test_gaps_are_fine_where_the_machine_says_so(root: Path) -> None:
    (root / "info" / "L3" / "sparse_masks").write_text("1\n")
    write_l3(root / "vmqos.shared-ways2", "0=50;1=50")
    assert complaints(root) == []


def test_a_cache_that_no_cpu_has_is_no_part_of_the_promise(root: Path) -> None:
    write_l3(root / GOLD_GROUP, "0=f;1=7ff")
    assert not [finding for finding in check(root, PROMISES, frozenset({0})) if not finding.good]


def test_the_caches_of_the_machine_are_those_of_level_3(tmp_path: Path) -> None:
    for cpu, index, level, number in ((0, 2, 2, 0), (0, 3, 3, 0), (1, 2, 2, 1), (1, 3, 3, 4)):
        directory = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        directory.mkdir(parents=True)
        (directory / "level").write_text(f"{level}\n")
        (directory / "id").write_text(f"{number}\n")
    assert caches_with_cpus(tmp_path) == {0, 4}
