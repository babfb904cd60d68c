# SPDX-License-Identifier: Apache-2.0
"""The pollsters, one class a meter, as Ceilometer finds them by their entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from ceilometer.compute.pollsters import util
from ceilometer.polling import prom_exporter
from ceilometer.polling.plugin_base import PollsterBase
from oslo_log import log

from ceilometer_pollster import agent_watch, metadata, meters, options, watch
from ceilometer_pollster.meters import EventMeter, Meter, Volume
from ceilometer_pollster.reasons import is_at_rest
from vmqos.resctrl import mount
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.telemetry import Rates, Snapshot, rates

LOG = log.getLogger(__name__)


_PURGE = getattr(prom_exporter, "purge_stale_metrics", None)
"""What has the exporter forget a metric; ``None`` before Ceilometer 26."""

_METADATA, _RATES = "vmqos-metadata", "vmqos-rates"
"""What all meters of a cycle have in common, in the cycle's cache. Two threads may make the same thing: it is equal."""


class InstancePollster(PollsterBase):  # type: ignore[misc]
    """A meter of the instances of this host.

    :cvar meter: which one.
    """

    meter: Meter | EventMeter

    def __init__(self, conf: Any) -> None:
        options.register(conf)
        super().__init__(conf)

    @property
    def default_discovery(self) -> str:
        """The instances of this host, as for Ceilometer's own pollsters."""
        return "local_instances"

    def sample(self, instance: Any, volume: Volume, told: Mapping[str, Any], read_at: float) -> Any:
        """A sample of one instance.

        :param told: the metadata beside Ceilometer's own.
        :param read_at: when it was read, in seconds of the monotonic clock.
        """
        return util.make_sample_from_instance(
            self.conf,
            instance,
            name=self.meter.name,
            type=self.meter.kind,
            unit=self.meter.unit,
            volume=volume,
            additional_metadata=told,
            monotonic_time=read_at,
        )


class VmPollster(InstancePollster):
    """A meter of every instance that has a group in resctrl."""

    meter: Meter

    def __init__(self, conf: Any) -> None:
        self._latest: Snapshot | None = None
        self._before: Snapshot | None = None
        super().__init__(conf)

    def setup_environment(self) -> None:
        """Make sure that there is something to read.

        Ceilometer passes a pollster over whose set-up fails, and says why at level DEBUG only.

        :raises vmqos.resctrl.exceptions.MountError: if resctrl is not there.
        """
        problem = _problem(self.conf.vmqos.resctrl_path)
        if problem is not None:
            LOG.error("%s is not polled until ceilometer-polling is started again: %s", self.meter.name, problem)
            raise problem

    def get_samples(self, manager: Any, cache: MutableMapping[str, Any], resources: Sequence[Any]) -> Iterator[Any]:
        """One sample for each instance that has a volume."""
        shared = watch.of_service(manager, self.conf.vmqos.resctrl_path)
        snapshot = shared.snapshot(cache, resources)
        if snapshot is None:
            return
        if snapshot is not self._latest:
            # By itself, and not shared: another meter may be polled at another interval.
            self._before, self._latest = self._latest, snapshot
        bandwidth = _rates(cache, self._before or snapshot, snapshot)
        told = cache.setdefault(_METADATA, {})
        for instance in resources:
            vm = None if is_at_rest(instance) else snapshot.vms.get(instance.id)
            volume = None if vm is None else self.meter.volume(vm, bandwidth[instance.id])
            if vm is not None and volume is not None:
                if instance.id not in told:
                    told[instance.id] = metadata.of_vm(vm)
                yield self.sample(instance, volume, told[instance.id], vm.read_at)


class EventPollster(InstancePollster):
    """A meter of what each instance executes, as the agent tells it.

    The agent need not run when ceilometer-polling starts.
    """

    meter: EventMeter

    @property
    def default_discovery(self) -> str:
        """The instances of this host.

        Ceilometer asks for this in each cycle in which no other discovery has found any, and where there are none, it
        asks for no samples.
        """
        self._purge()
        return super().default_discovery

    def get_samples(self, manager: Any, cache: MutableMapping[str, Any], resources: Sequence[Any]) -> Iterator[Any]:
        """One sample for each instance that is counted."""
        self._purge()
        look = agent_watch.of_service(manager, self.conf.vmqos.agent_socket).look(cache, resources)
        if look is None:
            return
        for instance in resources:
            found = None if is_at_rest(instance) else look.vms.get(instance.id)
            volume = None if found is None else found.counts.get(self.meter.event)
            if found is not None and volume is not None:
                told = {"since": found.since, "share": found.share, "source": found.source}
                yield self.sample(instance, volume, told, look.read_at)

    def _purge(self) -> None:
        """Have the exporter for Prometheus forget the instances that are gone.

        It forgets those of the metric that is called as the pollster, and this one is not called as its samples are.
        That of Ceilometer 24 and 25 forgets nothing.
        """
        if self.conf.polling.enable_prometheus_exporter and _PURGE is not None:
            _PURGE(self.meter.name)


def _rates(cache: MutableMapping[str, Any], before: Snapshot, now: Snapshot) -> Mapping[str, Rates]:
    """The bandwidths since an earlier sweep: the same one for all meters that are polled at the same interval."""
    known: dict[float, Mapping[str, Rates]] = cache.setdefault(_RATES, {})
    if before.monotonic not in known:
        known[before.monotonic] = rates(before, now)
    return known[before.monotonic]


def _problem(root: str) -> ResctrlError | None:
    """Why resctrl can't be read there. To be logged outside of an ``except``: oslo.log would tell the error twice."""
    try:
        mount.find(root, writable=False)
    except ResctrlError as error:
        return error
    return None


class L3Cache(VmPollster):
    """Bytes of the L3 caches that the instance's data fill now."""

    meter = meters.L3_CACHE


class L3CacheWays(VmPollster):
    """Ways of each L3 cache that the instance was promised."""

    meter = meters.L3_CACHE_WAYS


class L3CacheAllocated(VmPollster):
    """Bytes of the L3 caches that the instance was promised, all caches together."""

    meter = meters.L3_CACHE_ALLOCATED


class BandwidthTotal(VmPollster):
    """Bytes a second to and from memory."""

    meter = meters.BANDWIDTH_TOTAL


class BandwidthLocal(VmPollster):
    """Bytes a second to and from memory of the same socket."""

    meter = meters.BANDWIDTH_LOCAL


class BandwidthRemote(VmPollster):
    """Bytes a second to and from memory of other sockets."""

    meter = meters.BANDWIDTH_REMOTE


class TrafficTotal(VmPollster):
    """Bytes to and from memory, since the instance's group was made."""

    meter = meters.TRAFFIC_TOTAL


class TrafficLocal(VmPollster):
    """Bytes to and from memory of the same socket, since the instance's group was made."""

    meter = meters.TRAFFIC_LOCAL


class Cycles(EventPollster):
    """Cycles of a CPU for which the instance's tasks ran, since it began to be counted."""

    meter = meters.CYCLES


class Instructions(EventPollster):
    """Instructions that they executed."""

    meter = meters.INSTRUCTIONS


class CacheReferences(EventPollster):
    """Their references to the last-level cache."""

    meter = meters.CACHE_REFERENCES


class CacheMisses(EventPollster):
    """Those of these references that missed."""

    meter = meters.CACHE_MISSES
