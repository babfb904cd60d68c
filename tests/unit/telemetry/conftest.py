# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a resctrl of plain files, and a sweeper that takes it for mounted."""

import pytest

from tests.unit.telemetry.tree import Tree
from vmqos.resctrl.mount import Mount
from vmqos.telemetry import Sweeper


@pytest.fixture
def packages():
    """Ids of the packages that count energy and cycles."""
    return ()


@pytest.fixture
def tree(tmp_path, packages):
    return Tree(tmp_path, packages=packages)


@pytest.fixture
def taken_for_mounted(monkeypatch):
    """Nothing is mounted in a unit test."""
    monkeypatch.setattr("vmqos.resctrl.mount.find", lambda path, **_: Mount(path, frozenset(), False, True))


@pytest.fixture
def make_sweeper(taken_for_mounted):
    made = []

    def make(tree, **options):
        made.append(Sweeper(str(tree.root), **options))
        return made[-1]

    yield make
    for sweeper in made:
        sweeper.close()


@pytest.fixture(params=[True, False], ids=["kept", "not-kept"])
def sweeper(request, tree, make_sweeper):
    """With kept descriptors and without."""
    return make_sweeper(tree, keep_open=request.param)
