# SPDX-License-Identifier: Apache-2.0
"""What an agent tells that was started anew while libvirt is away: it knows of no VM yet, and resctrl has their groups.

The real loop, the simulator's machine in this process, processes as VMs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.loop_host import FOUR, Host, agent_in
from vmqos.agent.serve import capacity
from vmqos.agent.serve.api import NOT_LISTED, Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.allocation import PromiseState
from vmqos.local_api import contract

ALLOCATION = """
[allocation]
default_ways_min = 5
reserved_ways = 0x3
shared_classes = ways2
[placement]
provider_yaml = /nowhere.yaml
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host that serves a VM with four ways."""
    with agent_in(tmp_path, monkeypatch, ALLOCATION) as found:
        vm = found.serve(FOUR)
        assert found.state(vm) is PromiseState.KEPT
        yield found


def told_capacity(host: Host) -> contract.Capacity:
    known = host.agent.snapshot
    assert known.resctrl is not None
    return capacity.of(known.resctrl, known.policy, known.requests)


def planned(host: Host) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question what a further VM with as many ways would get: status and body."""
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/plan", "QUERY_STRING": "spec=hw:cache_ways%3D4"}
    api = Api(host.agent, None, LiveReads())  # type: ignore[arg-type]
    (content,) = api(environ, lambda status, headers: told.append(status))
    return told[0], json.loads(content)


def test_openstack_is_told_the_capacity_that_the_configuration_leaves(host: Host) -> None:
    before = told_capacity(host)
    host.libvirt.is_connected = False
    with host.started_anew():
        host.agent.run_passes()
        assert host.agent.snapshot.resctrl is not None and not host.agent.health.looked
        # What the VMs hold is not known.
        assert told_capacity(host) == {**before, "held": 0}


def test_a_further_vm_is_not_told_to_get_the_ways_of_the_vms_that_run(host: Host) -> None:
    status, body = planned(host)
    assert (status, body["verdict"]["state"]) == ("200 OK", "pending")
    host.libvirt.is_connected = False
    with host.started_anew():
        host.agent.run_passes()
        assert planned(host) == ("503 Service Unavailable", {"error": NOT_LISTED})
        host.libvirt.is_connected = True
        host.settle()
        status, body = planned(host)
        assert (status, body["verdict"]["state"]) == ("200 OK", "pending")
