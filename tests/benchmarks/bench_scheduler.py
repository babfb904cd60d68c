# SPDX-License-Identifier: Apache-2.0
"""Nova's scheduler: what the filter and the weigher cost a request, over up to 10 000 hosts.

Runs where Nova and Placement are installed (``tox -e nova``): the handlers, HostStates and RequestSpecs are Nova's. The
answer of Placement is one that was prepared, as long as Placement's would be, with as many hosts as are weighed. What
such a question costs Placement itself is measured on its own code, with a database in a file.
"""

from __future__ import annotations

import gc
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import nova.conf
from nova import context, objects
from nova.scheduler.filters import HostFilterHandler
from nova.scheduler.host_manager import HostState
from nova.scheduler.weights import HostWeightHandler

from nova_plugin.scheduler import placement
from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from nova_plugin.scheduler.weights import CacheWaysWeigher
from tests.benchmarks.figures import Figure, spread, timed
from tests.benchmarks.placement_in_process import PlacementInProcess
from vmqos.extra_specs import resources

SIZES = (100, 1000, 10_000)
FITTING = 100
"""Compute nodes in Placement that have CPUs left, however many there are."""
SERVERS = 20
ROUNDS = 7
CELL = "c" * 8
FLAVORS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"hw:cache_ways": "1"},
    {"hw:cache_ways": "2", "hw:cache_policy": "shared"},
)
COUNTED = {"hw:cache_ways": "2"}
ASKING = {
    **COUNTED,
    **resources.as_extra_specs({resources.LLC_WAYS: 2, resources.LLC_CLASSES: 1}),
    **resources.as_required({resources.L3_CAT}),
}
CAPPED = {**COUNTED, "hw:cache_policy": "shared"}
CLASS = "CUSTOM_LLC_SHARED_WAYS2"
JOINING = {**CAPPED, **resources.as_extra_specs({CLASS: 1}), **resources.as_required({resources.L3_CAT})}

Servers = Callable[[random.Random], Any]


class Prepared:
    """Placement's answer to the one question, for hosts with 40 ways and 60 groups."""

    status_code = 200

    def __init__(self, uuids: Sequence[str]) -> None:
        summaries = {}
        for uuid in uuids:
            usual = {name: {"capacity": 512, "used": 128} for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
            summaries[uuid] = _summary(uuid, None, usual)
            held = {
                resources.LLC_WAYS: {"capacity": 40, "used": 0},
                resources.LLC_CLASSES: {"capacity": 60, "used": 0},
                CLASS: {"capacity": 1_000_000, "used": 40},
            }
            summaries[uuid[::-1]] = _summary(uuid, uuid, held)
        self.text = json.dumps({"provider_summaries": summaries})
        self.asked = 0

    def get(self, url: str, version: str | None = None) -> Prepared:
        """Answer any question."""
        self.asked += 1
        return self

    def json(self) -> Any:
        """The answer."""
        return json.loads(self.text)


def run() -> Iterator[Figure]:
    """The figures of each way to count, for each number of hosts."""
    conf = nova.conf.CONF
    conf([], project="nova", default_config_files=[])
    objects.register_all()
    conf.set_override("inventory_lifetime", 3600, group="vmqos")
    told = [_server(specs) for specs in FLAVORS]
    stub = objects.Instance(context.get_admin_context(), uuid=str(UUID(int=0)))
    yield from _grow("counted, flavors told by nova-compute", COUNTED, lambda luck: luck.choice(told))
    yield from _grow("counted, flavors read before and remembered", COUNTED, lambda luck: stub)
    yield from _grow("a flavor that asks Placement", ASKING, lambda luck: luck.choice(told), 1)
    yield from _grow("a shared flavor that asks Placement", JOINING, lambda luck: stub, 0)
    yield from _grow("a shared flavor that asks for nothing", CAPPED, lambda luck: stub)
    yield from _grow("a flavor without a promise", {}, lambda luck: luck.choice(told))
    for count in SIZES:
        answer = Prepared(_uuids(count))
        samples = [timed(partial(placement.providers, answer, "")).cpu for _ in range(ROUNDS)]
        size = f"{len(answer.text) / 1e6:.1f} MB"
        yield _figure(f"reading Placement's answer ({size})", count, samples)
    yield from _of_placement()


def _grow(name: str, specs: dict[str, str], servers: Servers, questions: int | None = None) -> Iterator[Figure]:
    for count in SIZES:
        yield _figure(name, count, list(_samples(specs, servers, count, questions)))


def _samples(specs: dict[str, str], servers: Servers, count: int, questions: int | None) -> Iterator[float]:
    """Milliseconds of CPU of one request after the other, without the first: filter, then weigh those that passed.

    :param questions: how often Placement is asked in all that time; ``None`` for any number.
    """
    uuids = _uuids(count)
    answer = Prepared(uuids)
    read = Promises(lambda _, asked: dict.fromkeys(asked, FLAVORS[2]))
    rooms = Rooms(Inventory(lambda: answer), read, Recent(lambda: answer))
    handlers = HostFilterHandler(), HostWeightHandler()
    plugins = CacheWaysFilter(rooms), CacheWaysWeigher(rooms)
    luck = random.Random(count)
    instances = [{str(UUID(int=luck.getrandbits(128))): servers(luck) for _ in range(SERVERS)} for _ in uuids]
    sizes = {"vcpus": 1, "memory_mb": 64, "root_gb": 0, "ephemeral_gb": 0, "swap": 0}
    request = objects.RequestSpec(
        flavor=objects.Flavor(name="c2.cache", extra_specs=specs, **sizes),
        instance_uuid=str(UUID(int=1)),
        scheduler_hints={},
    )

    def schedule(hosts: list[HostState]) -> None:
        passing = list(handlers[0].get_filtered_objects([plugins[0]], hosts, request))
        assert len(passing) == count, f"{len(passing)} of {count} hosts passed"
        handlers[1].get_weighed_objects([plugins[1]], passing, request)

    for number in range(ROUNDS + 1):
        # Nova makes HostStates anew for each request.
        hosts = [_host(uuid, here) for uuid, here in zip(uuids, instances, strict=True)]
        # What was made before is not the request's to clean up.
        gc.collect()
        sample = timed(partial(schedule, hosts))
        if number:
            yield sample.cpu
    assert answer.asked <= 1 + ROUNDS and questions in (None, answer.asked)


def _of_placement() -> Iterator[Figure]:
    """What Placement itself does for a question: of a cloud that grows, with as many hosts that the server fits on."""
    ways = f"{resources.LLC_WAYS}:2,{resources.LLC_CLASSES}:1"
    with tempfile.TemporaryDirectory() as folder:
        cloud = PlacementInProcess(folder)
        cloud.add(0, has_room=True)
        cloud.add(1, has_room=False)
        cloud.add_copies(0, FITTING - 1)
        made = FITTING + 1
        for hosts in SIZES[1:]:
            cloud.add_copies(1, hosts - made)
            made = hosts
            for name, query, rounds in (
                ("every host with the ways, as it was asked before", f"resources={ways}", 2),
                (
                    "the hosts that the server fits on",
                    f"resources={ways},VCPU:8,MEMORY_MB:512&required={resources.L3_CAT}&limit=1000",
                    ROUNDS,
                ),
            ):
                found = cloud.ask(query)
                samples = [timed(partial(cloud.ask, query)).cpu for _ in range(rounds)]
                size = f"{found.hosts} hosts, {found.size / 1e3:.0f} kB"
                yield _figure(f"Placement's work for {name} ({size})", hosts, samples)


def _figure(name: str, count: int, samples: Sequence[float]) -> Figure:
    least = min(samples)
    detail = f"of CPU; {1e3 * least / count:.1f} us a host at best; {spread(samples, 'ms')}"
    return Figure(f"scheduler: {count} hosts, {name}", least, "ms", None, detail)


def _uuids(count: int) -> list[str]:
    return [str(UUID(int=number + (1 << 100))) for number in range(count)]


def _host(uuid: str, instances: dict[str, Any]) -> HostState:
    state = HostState(f"host-{uuid}", f"node-{uuid}", CELL)
    state.uuid = uuid
    state.instances = instances
    state.num_instances = len(instances)
    taken = {"resources": {resources.LLC_WAYS: 2, resources.LLC_CLASSES: 1, CLASS: 1}}
    state.allocation_candidates = [{"allocations": {uuid: {"resources": {"VCPU": 1}}, uuid[::-1]: taken}}]
    return state


def _server(specs: dict[str, str]) -> Any:
    return objects.Instance(
        context.get_admin_context(), uuid=str(UUID(int=2)), flavor=objects.Flavor(name="f", extra_specs=specs)
    )


def _summary(root: str, parent: str | None, held: dict[str, dict[str, int]]) -> dict[str, Any]:
    traits = [f"COMPUTE_TRAIT_{number}" for number in range(40)] if parent is None else [resources.L3_CAT]
    return {"root_provider_uuid": root, "parent_provider_uuid": parent, "resources": held, "traits": traits}


if __name__ == "__main__":
    for figure in run():
        print(figure, flush=True)
