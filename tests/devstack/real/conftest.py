# SPDX-License-Identifier: Apache-2.0
"""Nodes of DevStack, beside the private libvirtd of the functional tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.devstack.real import checkout
from tests.devstack.real.node import Node
from tests.functional.conftest import _session_libvirt, libvirt_host, workspace
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

__all__ = ["_session_libvirt", "libvirt_host", "make_node", "stacked", "workspace"]

MakeNode = Callable[[Mapping[str, str]], Node]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def make_node(workspace: Workspace, _session_libvirt: PrivateLibvirt) -> Iterator[MakeNode]:
    """Make a node with these variables in ``local.conf``, on which nothing was run yet."""
    try:
        checkout.find()
    except checkout.NoDevStack as error:
        pytest.fail(str(error), pytrace=False)
    made = []

    def make(local: Mapping[str, str]) -> Node:
        made.append(Node(workspace, f"node-{next(_numbers)}", _session_libvirt, local))
        return made[-1]

    yield make
    for node in made:
        node.run("unstack")


@pytest.fixture(scope="session")
def stacked(make_node: MakeNode) -> Node:
    """A node on which ``stack.sh`` has run; for looking only."""
    node = make_node({})
    node.run("stack pre-install", "stack install", "stack post-config", "stack extra", "stack test-config")
    return node
