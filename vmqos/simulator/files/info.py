# SPDX-License-Identifier: Apache-2.0
"""The ``info`` directory."""

from __future__ import annotations

import errno
from collections.abc import Callable

from vmqos.simulator.files import io_alloc
from vmqos.simulator.files.state import Mode, Mounted
from vmqos.simulator.hardware.profiles import BandwidthAllocation, CacheAllocation, Monitoring, PackageMonitoring
from vmqos.simulator.hardware.resources import Domain, Schema
from vmqos.simulator.kernel.numbers import refusal, strip, unsigned
from vmqos.simulator.kernel.tree import Caller, Directory, File

_ROOT = Caller()
_PERMISSIONS = 0o555
_REFUSED_MODES = {"mbm_event": "mbm_event mode is not supported\n"}
"""What Linux says of a mode that it knows and none of the machines has."""


def build(mounted: Mounted) -> Directory:
    """Make the directory with all its files (``rdtgroup_create_info_dir``)."""
    info = Directory("info", _PERMISSIONS, _ROOT)
    info.add(File("last_cmd_status", 0o444, _ROOT, mounted.status.show))
    for schema in mounted.schemas:
        info.add(_of_schema(mounted, schema))
    if mounted.hardware.profile.monitoring:
        info.add(_of_monitoring(mounted, mounted.hardware.profile.monitoring))
    if mounted.hardware.profile.packages and mounted.kernel.has_package_events:
        info.add(_of_packages(mounted.hardware.profile.packages))
    return info


def bit_usage(mounted: Mounted, schema: Schema) -> str:
    """How each way of each cache is used, the highest way first (``rdt_bit_usage_show``)."""
    return ";".join(f"{domain.id}={_usage(mounted, schema, domain)}" for domain in schema.resource.domains) + "\n"


def _of_schema(mounted: Mounted, schema: Schema) -> Directory:
    directory = Directory(schema.name, _PERMISSIONS, _ROOT)

    allocation = schema.resource.allocation
    _adder(directory)("num_closids", lambda: f"{schema.num_closids}\n")
    if isinstance(allocation, CacheAllocation):
        _add_cache(directory, mounted, schema, allocation)
    else:
        _add_bandwidth(directory, allocation)
    return directory


def _adder(directory: Directory) -> Callable[[str, Callable[[], str]], None]:
    """Adds files that can only be read."""
    return lambda name, show: directory.add(File(name, 0o444, _ROOT, show))


def _add_cache(directory: Directory, mounted: Mounted, schema: Schema, allocation: CacheAllocation) -> None:
    add = _adder(directory)
    add("cbm_mask", lambda: f"{schema.resource.default:x}\n")
    add("min_cbm_bits", lambda: f"{allocation.min_cbm_bits}\n")
    add("shareable_bits", lambda: f"{allocation.shareable_bits:x}\n")
    add("sparse_masks", lambda: f"{allocation.sparse:d}\n")
    add("bit_usage", lambda: bit_usage(mounted, schema))
    for file in io_alloc.files(mounted, schema):
        directory.add(file)


def _add_bandwidth(directory: Directory, allocation: BandwidthAllocation) -> None:
    add = _adder(directory)
    add("min_bandwidth", lambda: f"{allocation.min}\n")
    add("bandwidth_gran", lambda: f"{allocation.granularity}\n")
    add("delay_linear", lambda: f"{allocation.linear:d}\n")
    if allocation.throttle_mode is not None:
        add("thread_throttle_mode", lambda: f"{allocation.throttle_mode}\n")


def _of_monitoring(mounted: Mounted, monitoring: Monitoring) -> Directory:
    directory = Directory("L3_MON", _PERMISSIONS, _ROOT)
    configurable = dict(monitoring.configurable)
    features = []
    for event in monitoring.events:
        features.append(event)
        if event in configurable:
            features.append(f"{event}_config")
            directory.add(_event_config(mounted, event))
    directory.add(File("num_rmids", 0o444, _ROOT, lambda: f"{monitoring.num_rmids}\n"))
    directory.add(File("mon_features", 0o444, _ROOT, lambda: "".join(f"{name}\n" for name in features)))
    directory.add(_threshold(mounted, monitoring))
    if mounted.kernel.has_assign_mode:
        directory.add(File("mbm_assign_mode", 0o644, _ROOT, lambda: "[default]\n", _assign_mode(mounted)))
    return directory


def _of_packages(packages: PackageMonitoring) -> Directory:
    directory = Directory("PERF_PKG_MON", _PERMISSIONS, _ROOT)
    add = _adder(directory)
    add("num_rmids", lambda: f"{packages.num_rmids}\n")
    add("mon_features", lambda: "".join(f"{event}\n" for event in packages.events))
    return directory


def _threshold(mounted: Mounted, monitoring: Monitoring) -> File:
    hardware = mounted.hardware

    def store(data: str, caller: Caller) -> None:
        size = unsigned(data.partition("\0")[0], 0, 32)
        if size > hardware.profile.threshold_limit:
            raise refusal(errno.EINVAL)
        hardware.threshold = size // monitoring.scale * monitoring.scale

    return File("max_threshold_occupancy", 0o644, _ROOT, lambda: f"{hardware.threshold}\n", store)


def _assign_mode(mounted: Mounted) -> Callable[[str, Caller], None]:
    def store(data: str, caller: Caller) -> None:
        if not data.endswith("\n"):
            raise refusal(errno.EINVAL)
        mounted.status.clear()
        word = data[:-1].partition("\0")[0]
        if word != "default":
            mounted.status.puts(_REFUSED_MODES.get(word, "Unsupported assign mode\n"))
            raise refusal(errno.EINVAL)

    return store


def _event_config(mounted: Mounted, event: str) -> File:
    """``mbm_total_bytes_config`` and ``mbm_local_bytes_config``: which traffic an AMD counter counts."""
    hardware = mounted.hardware

    def show() -> str:
        shown = (f"{domain}=0x{hardware.event_configuration(event, domain):02x}" for domain in hardware.l3_online)
        return ";".join(shown) + "\n"

    def store(data: str, caller: Caller) -> None:
        if not data.endswith("\n"):
            raise refusal(errno.EINVAL)
        mounted.status.clear()
        rest = data[:-1].partition("\0")[0]
        while rest:
            token, _, rest = rest.partition(";")
            domain, value = _domain_and_value(mounted, strip(token))
            if value & ~0x7F:
                mounted.status.printf("Invalid event configuration: max valid mask is 0x7f\n")
                raise refusal(errno.EINVAL)
            if domain not in hardware.l3_online:
                raise refusal(errno.EINVAL)
            hardware.configure_event(event, domain, value)

    return File(f"{event}_config", 0o644, _ROOT, show, store)


def _domain_and_value(mounted: Mounted, token: str) -> tuple[int, int]:
    """One ``id=mask`` of an event's configuration (``mon_config_write``)."""
    number, equals, value = token.partition("=")
    try:
        domain = unsigned(number, 10, 64)
    except OSError:
        mounted.status.puts("Missing '=' or non-numeric domain id\n")
        raise refusal(errno.EINVAL) from None
    try:
        return domain, unsigned(value if equals else "", 16, 64)
    except OSError:
        mounted.status.puts("Non-numeric event configuration value\n")
        raise refusal(errno.EINVAL) from None


def _usage(mounted: Mounted, schema: Schema, domain: Domain) -> str:
    cache = schema.resource.cache
    assert cache is not None
    shared = exclusive = 0
    for closid, mode in mounted.taken_closids():
        mask = schema.resource.value(domain, closid, schema.use)
        if mode is Mode.SHAREABLE:
            shared |= mask
        elif mode is Mode.EXCLUSIVE:
            exclusive |= mask
    locked = domain.region.mask if domain.region else 0
    devices = cache.shareable_bits
    if schema.resource.io_alloc:
        devices |= schema.resource.value(domain, io_alloc.closid_of(schema), schema.use)
    letters = []
    for way in reversed(range(cache.ways)):
        bit = 1 << way
        if devices & bit:
            letters.append("X" if shared & bit else "H")
        elif shared & bit:
            letters.append("S")
        elif exclusive & bit:
            letters.append("E")
        else:
            letters.append("P" if locked & bit else "0")
    return "".join(letters)
