# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from vmqos.extra_specs.resources import L3_CAT, LLC_CLASSES, LLC_WAYS, MBM
from vmqos.gateway.openstack.capacity import NOTHING, Capacity
from vmqos.openstack import provider_yaml

CAPACITY = Capacity(ways=9, longest=9, fewest=1, classes=15, traits=frozenset({MBM, L3_CAT}))


def test_the_file_has_what_nova_reads() -> None:
    rest = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
    assert yaml.safe_load(provider_yaml.render(CAPACITY.inventories, CAPACITY.traits)) == {
        "meta": {"schema_version": "1.0"},
        "providers": [
            {
                "identification": {"uuid": "$COMPUTE_NODE"},
                "inventories": {
                    "additional": [
                        {LLC_CLASSES: {"total": 15, "max_unit": 1, **rest}},
                        {LLC_WAYS: {"total": 9, "max_unit": 9, **rest}},
                    ]
                },
                "traits": {"additional": [L3_CAT, MBM]},
            }
        ],
    }


def test_a_host_without_anything_to_promise_keeps_its_inventories_for_vms_may_still_be_allocated() -> None:
    (provider,) = yaml.safe_load(provider_yaml.render(NOTHING.inventories))["providers"]
    assert "traits" not in provider
    for inventory in provider["inventories"]["additional"]:
        (value,) = inventory.values()
        assert value["total"] == value["reserved"] == 1


def test_the_file_says_who_writes_it_and_when_it_is_read() -> None:
    head = provider_yaml.render(CAPACITY.inventories, CAPACITY.traits).splitlines()[:2]
    assert all(line.startswith("# ") for line in head)
    assert "vmqos-agent" in head[0] and "starts" in head[1]


def test_it_is_written_on_change_alone(tmp_path: Path) -> None:
    path = tmp_path / "vmqos.yaml"
    assert provider_yaml.write(str(path), "a")
    first = path.stat()
    assert not provider_yaml.write(str(path), "a")
    assert path.stat() == first
    assert provider_yaml.write(str(path), "b")
    assert path.read_text() == "b"
    assert path.stat().st_ino != first.st_ino, "a reader has the old one or the new one"


def test_nova_may_read_it_and_nothing_else_is_left_in_its_directory(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        provider_yaml.write(str(tmp_path / "vmqos.yaml"), "a")
    finally:
        os.umask(before)
    assert (tmp_path / "vmqos.yaml").stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["vmqos.yaml"]


def test_what_is_no_text_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "vmqos.yaml").write_bytes(b"\xff\xfe")
    assert provider_yaml.write(str(tmp_path / "vmqos.yaml"), "a")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        provider_yaml.write(str(tmp_path / "nowhere" / "vmqos.yaml"), "a")
    assert "nowhere" in str(raised.value)


def test_nothing_is_left_where_the_file_can_not_be_put(tmp_path: Path) -> None:
    (tmp_path / "vmqos.yaml").mkdir()
    with pytest.raises(OSError):
        provider_yaml.write(str(tmp_path / "vmqos.yaml"), "a")
    assert os.listdir(tmp_path) == ["vmqos.yaml"]


def test_what_is_no_file_is_told_at_once_and_left_as_it_is(tmp_path: Path) -> None:
    """The open of a FIFO waits for a writer, and a device that is replaced is gone."""
    fifo, link = tmp_path / "fifo.yaml", tmp_path / "link.yaml"
    os.mkfifo(fifo)
    link.symlink_to(os.devnull)
    for path in (str(fifo), str(link)):
        with pytest.raises(OSError, match="it is no regular file"):
            provider_yaml.write(path, "a")
        with pytest.raises(OSError, match="it is no regular file"):
            provider_yaml.reserve(path)
    assert fifo.is_fifo() and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["fifo.yaml", "link.yaml"]


def test_what_is_reserved_keeps_its_totals_and_loses_its_traits(tmp_path: Path) -> None:
    path = tmp_path / "vmqos.yaml"
    told = Capacity(ways=9, longest=9, classes=15, traits=frozenset({"CUSTOM_VMQOS_L3_CAT"}))
    path.write_text(provider_yaml.render(told.inventories, told.traits))
    assert provider_yaml.reserve(str(path), dry_run=True)
    assert path.read_text() == provider_yaml.render(told.inventories, told.traits)
    assert provider_yaml.reserve(str(path))
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    found = {name: value for one in provider["inventories"]["additional"] for name, value in one.items()}
    assert {name: (value["total"], value["reserved"], value["max_unit"]) for name, value in found.items()} == {
        "CUSTOM_LLC_WAYS": (9, 9, 9),
        "CUSTOM_LLC_CLASSES": (15, 15, 1),
    }
    assert "traits" not in provider
    assert not provider_yaml.reserve(str(path))


def test_a_file_that_is_not_there_has_nothing_to_reserve(tmp_path: Path) -> None:
    assert not provider_yaml.reserve(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "providers: []\n",
        f"{provider_yaml._HEAD}[",
        f"{provider_yaml._HEAD}providers: 3\n",
        f"{provider_yaml._HEAD}{'#' * (1 << 20)}",
    ],
)
def test_a_file_of_another_s_making_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "vmqos.yaml"
    path.write_text(text)
    with pytest.raises(provider_yaml.NotOurs, match="left as it is"):
        provider_yaml.reserve(str(path))
    assert path.read_text() == text
