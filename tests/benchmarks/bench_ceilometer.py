# SPDX-License-Identifier: Apache-2.0
"""A polling cycle of Ceilometer with 200 instances: our eight meters, and what Ceilometer does for as many samples.

Its own ``AgentManager`` and ``PollingTask`` run the cycles, with its exporter for Prometheus, in this process. The
other side are eight pollsters whose samples cost nothing but what any pollster's do: Ceilometer's own part of a cycle.
Instances are not discovered, but given. Resctrl is the simulator's, which spends time of its own; that is in the time
on the clock, and not in the CPU time, which is this process's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from tests.benchmarks.arena import OURS
from tests.benchmarks.contest import Side, compare
from tests.benchmarks.figures import Comparison, Effort, timed
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace

INSTANCES = 200
CYCLES = 9
CEILOMETER = "Ceilometer's own part"


def run() -> Iterator[Comparison | str]:
    """Cycles of both, in turn."""
    try:
        import ceilometer  # noqa: F401
    except ImportError:
        yield "a cycle of Ceilometer: left out, it is not installed (vmqos[ceilometer])"
        return
    with Workspace() as workspace:
        # 256 RMIDs.
        simulator = Simulator(workspace, "milan")
        simulator.start()
        try:
            yield _measure(simulator.root, workspace.path)
        finally:
            simulator.stop()


def _measure(root: Path, folder: Path) -> Comparison:
    uuids = [str(uuid.UUID(int=number + 1)) for number in range(INSTANCES)]
    for name in uuids:
        (root / "mon_groups" / f"vmqos.{name}").mkdir()
    cycles = _cycles(root, folder, [_instance(name) for name in uuids])
    return compare(
        f"a cycle of Ceilometer, {INSTANCES} instances, 8 meters",
        [Side(name, lambda cycle=cycle: timed(cycle)) for name, cycle in cycles.items()],  # type: ignore[misc]
        Effort(rounds=CYCLES),
        remark="samples of a cycle: 6 meters x 200 instances; these VMs were promised no ways",
    )


def _cycles(root: Path, folder: Path, instances: list[Any]) -> dict[str, Any]:
    """What makes one cycle, by who makes it."""
    from ceilometer import service
    from ceilometer.compute.pollsters import util
    from ceilometer.polling import manager, plugin_base, prom_exporter

    from ceilometer_pollster import pollsters

    conf = service.prepare_service(argv=[], config_files=[str(_configure(root, folder))])

    class Plain(plugin_base.PollsterBase):  # type: ignore[misc]
        """As many samples of the same kind, without any look at a counter."""

        def __init__(self, meter: Any) -> None:
            super().__init__(conf)
            self.meter = meter

        @property
        def default_discovery(self) -> str:
            return "local_instances"

        def get_samples(self, manager: Any, cache: Any, resources: Any) -> Iterator[Any]:
            meter = self.meter
            for instance in resources if meter.name not in _PROMISED else ():
                yield util.make_sample_from_instance(
                    conf, instance, name=meter.name, type=meter.kind, unit=meter.unit, volume=1, monotonic_time=0.0
                )

    class Manager(manager.AgentManager):  # type: ignore[misc]
        """Ceilometer's, with instances that need not be discovered, and no door for Prometheus."""

        def _extensions(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(extensions=[])

        def discover(self, *_: Any) -> list[Any]:
            return instances

    classes = [found for found in vars(pollsters).values() if isinstance(found, type) and hasattr(found, "meter")]
    sides = {OURS: [made(conf) for made in classes], CEILOMETER: [Plain(made.meter) for made in classes]}
    prom_exporter.export = lambda *_: None
    source = manager.PollingManager(conf).sources[0]
    cycles = {}
    for name, made in sides.items():
        task = manager.PollingTask(Manager(0, conf, ["compute"]))
        for one in made:
            task.add(_Extension(one.meter.name, one), source)
        task.poll_and_notify()
        cycles[name] = task.poll_and_notify
    return cycles


@dataclass(frozen=True, eq=False)
class _Extension:
    """A pollster as stevedore loads it."""

    name: str
    obj: Any


_PROMISED = ("cpu_l3_cache.ways", "cpu_l3_cache.allocated")


def _configure(root: Path, folder: Path) -> Path:
    polling = folder / "polling.yaml"
    polling.write_text(yaml.safe_dump({"sources": [{"name": "all", "interval": 60, "meters": ["*"]}]}))
    path = folder / "ceilometer.conf"
    path.write_text(
        f"""\
[DEFAULT]
pollsters_definitions_dirs = {folder / "none"}
log_file = {folder / "ceilometer.log"}
[polling]
cfg_file = {polling}
batch_size = 1000
enable_notifications = false
enable_prometheus_exporter = true
[vmqos]
resctrl_path = {root}
"""
    )
    return path


def _instance(name: str) -> Any:
    """As Ceilometer's discovery by libvirt's metadata makes it (``InstanceDiscovery.discover_libvirt_polling``)."""
    from ceilometer.compute.discovery import NovaLikeServer

    flavor = {"id": "1", "name": "c2", "vcpus": 2, "ram": 2048, "disk": 20, "ephemeral": 0, "swap": 0}
    return NovaLikeServer(
        **{
            "id": name,
            "name": f"vm-{name[-4:]}",
            "status": "active",
            "tenant_id": "6e33a463cfb740e48ced88dc1df76034",
            "user_id": "5c7df48002cf4f0b9ff379fab04675e8",
            "hostId": "compute-1",
            "flavor": {**flavor, "extra_specs": {}},
            "image": None,
            "metadata": {},
            "OS-EXT-SRV-ATTR:instance_name": f"instance-{name[-8:]}",
        }
    )
