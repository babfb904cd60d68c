# SPDX-License-Identifier: Apache-2.0
"""From the compute node over the message bus into Gnocchi, and back out as an operator reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ceilometer.publisher
import pytest
from gnocchiclient.exceptions import NotFound

from ceilometer_pollster.meters import EVENT_METERS, METERS
from tests.openstack.servers.ceilometer import HOST, Notification, Polling
from tests.openstack.servers.gnocchi import Gnocchi
from tests.openstack.servers.rabbitmq import RabbitMq
from tests.openstack.telemetry import counting_agent
from tests.openstack.telemetry.conftest import WaitFor
from tests.openstack.telemetry.counters import Counters
from tests.openstack.telemetry.node import CAPPED, GOLD, GREEDY, PLAIN, RUNNING, STOPPED, WAYS, Node
from tools.lab.vms import PROJECT, Vm
from tools.lab.workspace import CHECKOUT, Workspace

HELD = {vm.uuid: number << 20 for number, vm in enumerate(RUNNING, start=1)}
"""Bytes of each cache that each instance's counter shows as long as Gnocchi is looked at."""
TRAFFIC = 5 * 10**12
EXECUTED = (4 * 10**15, 10**15, 10**9, 10**6)
"""What the agent has counted of GOLD."""
CYCLES_OF_PACKAGES = 7 * 10**12
"""What it tells of CAPPED, which perf does not count."""
PATIENCE = 90.0
"""Seconds for what a broker, two agents and metricd have to do, on a busy machine too."""
PROMISES = ("cpu_l3_cache.ways", "cpu_l3_cache.allocated")


@dataclass(frozen=True, slots=True)
class Chain:
    """All of it, running.

    :ivar samples: a file that has all samples that the notification agent publishes, one a line.
    """

    gnocchi: Gnocchi
    notification: Notification
    samples: Path

    def metrics(self, vm: Vm) -> dict[str, Any]:
        """The metrics of an instance by name."""
        client = self.gnocchi.client()
        try:
            found = client.resource.get("instance", vm.uuid)["metrics"]
        except NotFound:
            return {}
        return {name: client.metric.get(metric) for name, metric in found.items()}

    def measures(self, vm: Vm, meter: str) -> set[float]:
        """The values of an instance's metric, once metricd is through with what has come; none without a metric."""
        try:
            found = self.gnocchi.client().metric.get_measures(meter, resource_id=vm.uuid)
        except NotFound:
            return set()
        return {value for _, _, value in found}

    def metadata(self, meters: Collection[str]) -> dict[str, dict[str, Any]]:
        """What the last published sample of one of these meters says of each instance; nothing before the first."""
        # Ceilometer may be writing the last line.
        *lines, _ = self.samples.read_text().split("\n") if self.samples.exists() else [""]
        samples = [json.loads(line) for line in lines]
        return {one["resource_id"]: one["resource_metadata"] for one in samples if one["name"] in meters}


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ceilometer's own resource definitions, with our command's addition."""
    path = tmp_path_factory.mktemp("etc") / "gnocchi_resources.yaml"
    shutil.copy(Path(ceilometer.publisher.__file__).parent / "data" / "gnocchi_resources.yaml", path)
    command = [sys.executable, "-m", "vmqos.cli.main", "gnocchi-resources", "merge", str(path), "--write"]
    subprocess.run(command, cwd=CHECKOUT, check=True)
    return path


@pytest.fixture(scope="module")
def chain(
    workspace: Workspace, node: Node, broker: RabbitMq, gnocchi: Future[Gnocchi], definitions: Path
) -> Iterator[Chain]:
    store = gnocchi.result()
    held = Counters(workspace, node.simulator.root)
    for vm in RUNNING:
        held.hold(vm.uuid, "llc_occupancy", HELD[vm.uuid])
        held.hold(vm.uuid, "mbm_total_bytes", TRAFFIC)
    samples = workspace.path / "samples.json"
    bus = {"DEFAULT": {"transport_url": broker.url()}, **store.credentials}
    publishers = [
        f"gnocchi://?enable_filter_project=false&resources_definition_file={definitions}",
        f"file://{samples}?json",
    ]
    notification = Notification(workspace, bus, publishers)
    socket = workspace.path / "chain.sock"
    polling = Polling(
        workspace,
        resctrl=node.simulator.root,
        libvirt_uri=node.libvirt.uri,
        further={**bus, "polling": {"enable_notifications": True}, "vmqos": {"agent_socket": socket}},
        name="ceilometer-polling-and-notifying",
    )
    told = {
        GOLD.uuid: counting_agent.counted(*EXECUTED),
        CAPPED.uuid: counting_agent.counted_by_packages(CYCLES_OF_PACKAGES),
    }
    with counting_agent.on(socket, told):
        yield Chain(store, notification, samples)
    held.release()
    polling.stop()
    notification.stop()
    print(f"--- ceilometer-agent-notification\n{notification.said[-8000:]}")


def test_the_occupancy_of_each_instance_is_read_back_from_gnocchi(chain: Chain, wait_for: WaitFor) -> None:
    for vm in RUNNING:
        wait_for(lambda vm=vm: chain.measures(vm, "cpu_l3_cache"), f"measures of {vm.display_name}", PATIENCE)
        assert chain.measures(vm, "cpu_l3_cache") == {2 * HELD[vm.uuid]}
    shown = chain.gnocchi.command("measures", "show", "cpu_l3_cache", "--resource-id", GOLD.uuid, "-f", "json")
    assert {measure["value"] for measure in json.loads(shown)} == {2 * HELD[GOLD.uuid]}


def test_every_meter_is_a_metric_of_the_instance_with_its_unit_and_archive_policy(
    chain: Chain, wait_for: WaitFor
) -> None:
    every = (*METERS, *EVENT_METERS)
    wait_for(lambda: len(chain.metrics(GOLD)) == len(every), "all metrics", PATIENCE)
    metrics = chain.metrics(GOLD)
    assert {name: metric["unit"] for name, metric in metrics.items()} == {meter.name: meter.unit for meter in every}
    assert {meter.name: metrics[meter.name]["archive_policy"]["name"] for meter in METERS} == {
        meter.name: "ceilometer-low-rate" if meter.kind == "cumulative" else "ceilometer-low" for meter in METERS
    }
    # Ceilometer's own file has these already, without a policy of theirs.
    assert {metrics[meter.name]["archive_policy"]["name"] for meter in EVENT_METERS} == {"ceilometer-low"}


def test_what_an_instance_executes_is_read_back(chain: Chain, wait_for: WaitFor) -> None:
    for meter, count in zip(EVENT_METERS, EXECUTED, strict=True):
        wait_for(lambda meter=meter: chain.measures(GOLD, meter.name), meter.name, PATIENCE)
        assert chain.measures(GOLD, meter.name) == {count}
    assert not {meter.name for meter in EVENT_METERS} & set(chain.metrics(PLAIN)), "the agent does not count it"


def test_the_cycles_that_packages_count_are_read_back_where_perf_counts_nothing(
    chain: Chain, wait_for: WaitFor
) -> None:
    wait_for(lambda: bool(chain.measures(CAPPED, "perf.cpu.cycles")), "perf.cpu.cycles", PATIENCE)
    assert chain.measures(CAPPED, "perf.cpu.cycles") == {CYCLES_OF_PACKAGES}
    assert {meter.name for meter in EVENT_METERS} & set(chain.metrics(CAPPED)) == {"perf.cpu.cycles"}


def test_promise_and_traffic_are_read_back(chain: Chain, wait_for: WaitFor) -> None:
    wait_for(lambda: chain.measures(GOLD, "cpu_l3_cache.ways"), "ways", PATIENCE)
    assert chain.measures(GOLD, "cpu_l3_cache.ways") == {WAYS}
    wait_for(lambda: chain.measures(PLAIN, "memory.traffic.total"), "traffic", PATIENCE)
    assert chain.measures(PLAIN, "memory.traffic.total") == {2 * TRAFFIC}
    assert not set(PROMISES) & set(chain.metrics(PLAIN))


def test_an_instance_that_does_not_run_has_no_metric(chain: Chain, wait_for: WaitFor) -> None:
    wait_for(lambda: bool(chain.metrics(PLAIN)), "metrics of others", PATIENCE)
    assert not chain.metrics(STOPPED)


def test_the_resource_is_the_instance_as_ceilometers_own_meters_know_it(chain: Chain, wait_for: WaitFor) -> None:
    wait_for(lambda: bool(chain.metrics(GOLD)), "metrics", PATIENCE)
    resource = chain.gnocchi.client().resource.get("instance", GOLD.uuid)
    assert (resource["display_name"], resource["flavor_name"], resource["host"], resource["project_id"]) == (
        GOLD.display_name,
        "gold",
        HOST,
        PROJECT,
    )


def test_metadata_tells_class_policy_and_caches_beside_what_ceilometer_tells(chain: Chain, wait_for: WaitFor) -> None:
    of_resctrl, of_agent = {meter.name for meter in METERS}, {meter.name for meter in EVENT_METERS}
    wait_for(lambda: set(chain.metadata(of_resctrl)) == {vm.uuid for vm in RUNNING}, "samples", PATIENCE)
    told = chain.metadata(of_resctrl)
    assert {uuid: (one["class"], one["policy"]) for uuid, one in told.items()} == {
        GOLD.uuid: (f"vmqos.{GOLD.uuid}", "exclusive"),
        CAPPED.uuid: (f"vmqos.shared-ways{WAYS}", "shared"),
        PLAIN.uuid: ("", None),
        GREEDY.uuid: ("", None),
    }
    for uuid, metadata in told.items():
        assert {cache: one["llc_occupancy"] for cache, one in metadata["caches"].items()} == {
            "0": HELD[uuid],
            "1": HELD[uuid],
        }
    assert {cache["ways"] for cache in told[GOLD.uuid]["caches"].values()} == {WAYS}
    gold = told[GOLD.uuid]
    assert (gold["display_name"], gold["name"], gold["status"]) == (GOLD.display_name, GOLD.name, "active")
    assert gold["flavor"]["extra_specs"] == {"hw:cache_ways": str(WAYS)}
    wait_for(lambda: len(chain.metadata(of_agent)) == 2, "samples of perf", PATIENCE)
    executed = chain.metadata(of_agent)
    assert {uuid: (one["since"], one["share"], one["source"]) for uuid, one in executed.items()} == {
        GOLD.uuid: (1.0, 1.0, "perf"),
        CAPPED.uuid: (2.0, None, "aet"),
    }
    assert executed[GOLD.uuid]["display_name"] == GOLD.display_name


def test_no_message_was_refused_for_its_signature_and_no_metric_for_its_name(chain: Chain, wait_for: WaitFor) -> None:
    wait_for(lambda: bool(chain.metrics(GOLD)), "metrics", PATIENCE)
    assert "invalid" not in chain.notification.said.lower()
    assert "is not handled by Gnocchi" not in chain.notification.said
