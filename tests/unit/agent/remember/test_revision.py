# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_vms import snapshot
from vmqos.agent.remember.revision import Revision
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import Policy
from vmqos.resctrl.topology import CacheTopology

KNOWN = snapshot()


@pytest.mark.parametrize(
    "now",
    [
        replace(KNOWN, vms=dict(KNOWN.vms)),
        replace(KNOWN, resctrl=None),
        replace(KNOWN, topology=CacheTopology()),
        replace(KNOWN, policy=Policy(kernel_exclusive=False)),
    ],
    ids=["vms", "resctrl", "topology", "policy"],
)
def test_what_a_pass_changed_has_another_name(now: Snapshot) -> None:
    revision = Revision("epoch")
    names = [revision.of(one) for one in (KNOWN, now, now, KNOWN)]
    assert names[1] == names[2]
    assert len(set(names)) == 3


def test_what_a_calm_pass_read_anew_keeps_its_name() -> None:
    revision, topology = Revision("epoch"), KNOWN.topology
    before = revision.of(KNOWN)
    again = replace(KNOWN, topology=CacheTopology(dict(topology.cpus), dict(topology.sizes)), policy=Policy())
    assert revision.of(again) == before


def test_another_run_of_the_agent_has_other_names() -> None:
    assert Revision("one").of(KNOWN) != Revision("two").of(KNOWN)
