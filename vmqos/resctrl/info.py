# SPDX-License-Identifier: Apache-2.0
"""Reading ``info/``: what this machine's resctrl can do with this mount."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from vmqos.resctrl import exceptions, mount, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import (
    BandwidthResource,
    BandwidthUnit,
    CacheResource,
    Capabilities,
    Monitoring,
)
from vmqos.resctrl.filesystem import Filesystem

_CACHE = re.compile(r"L[0-9](?:CODE|DATA)?")
_MONITORING = "L3_MON"
_PACKAGES = "PERF_PKG_MON"
_BANDWIDTH = "MB"
_INTEGER = re.compile(r"[0-9]{1,19}")
_PSEUDO_LOCKED = "P"
"""``rdt_bit_usage_show`` in the kernel writes one letter a way, that of the highest way first."""
_EVENT_SETTING = "_config"

T = TypeVar("T")


def read_capabilities(fs: Filesystem) -> Capabilities:
    """What ``info/`` offers. Files and resources that this version does not know are passed over.

    Files that came with later kernels may be missing: ``shareable_bits`` (4.14), ``sparse_masks`` (6.7), ``io_alloc``
    (6.19).

    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    :raises vmqos.resctrl.exceptions.UnexpectedContent: if a file that is needed can't be understood.
    :raises vmqos.resctrl.exceptions.InvalidSchemata: if the default group's schemata can't be understood.
    :raises vmqos.resctrl.exceptions.InvalidBitmask: if the ways that devices are confined to are no masks.
    """
    online = {resource: tuple(sorted(values)) for resource, values in schemata.parse(fs.read("schemata")).items()}
    caches, bandwidths, monitoring, in_packages = {}, {}, None, None
    for name in fs.directories("info"):
        files = set(fs.listdir("info", name))
        cache_ids = online.get(name, ())
        if name == _MONITORING:
            monitoring = _monitoring(fs, files)
        elif name == _PACKAGES:
            in_packages = _integer(fs, f"info/{name}/num_rmids")
        elif "cbm_mask" in files and _CACHE.fullmatch(name):
            caches[name] = _cache(fs, name, files, cache_ids)
        elif "min_bandwidth" in files:
            try:
                bandwidths[name] = _bandwidth(fs, name, files, cache_ids)
            except exceptions.UnexpectedContent:
                # One that later kernels have is not needed; its files may be of another form.
                if name == _BANDWIDTH:
                    raise
    if monitoring is not None and in_packages is not None:
        # There are as many groups as the poorer of both has RMIDs (Documentation/filesystems/resctrl.rst).
        monitoring = replace(monitoring, num_rmids=min(monitoring.num_rmids, in_packages))
    return Capabilities(caches=caches, bandwidths=bandwidths, monitoring=monitoring)


def _cache(fs: Filesystem, name: str, files: set[str], cache_ids: tuple[int, ...]) -> CacheResource:
    directory = f"info/{name}"
    shareable = _mask(fs, f"{directory}/shareable_bits") if "shareable_bits" in files else CapacityBitmask()
    return CacheResource(
        name=name,
        num_closids=_integer(fs, f"{directory}/num_closids"),
        cbm_mask=_mask(fs, f"{directory}/cbm_mask"),
        min_cbm_bits=_integer(fs, f"{directory}/min_cbm_bits"),
        shareable_bits=shareable,
        sparse_masks="sparse_masks" in files and _integer(fs, f"{directory}/sparse_masks") != 0,
        cache_ids=cache_ids,
        io_alloc=read_io_alloc(fs, name) if "io_alloc" in files else None,
    )


def read_io_alloc(fs: Filesystem, name: str) -> dict[int, CapacityBitmask]:
    """The ways that devices are confined to, by cache id; empty where they are not.

    :param name: of a resource whose ``info/`` directory has ``io_alloc``.
    :raises vmqos.resctrl.exceptions.ResctrlError: if that can't be read.
    """
    if fs.read("info", name, "io_alloc").strip() != "enabled":
        return {}
    try:
        masks = fs.read("info", name, "io_alloc_cbm")
    except exceptions.Unreadable:
        # It was switched off since.
        return {}
    return schemata.parse_masks(f"{name}:{masks.strip()}", name)


def read_pseudo_locked(fs: Filesystem, resource: str) -> dict[int, CapacityBitmask]:
    """The pseudo-locked ways by cache id, also those of groups that are gone; caches without any are left out.

    A pseudo-locked region outlives its group if a process has ``/dev/pseudo_lock/NAME`` open when the group is removed:
    its last user would free it (``rdtgroup_kn_put``), but closing the device does not look
    (``pseudo_lock_dev_release``, up to Linux 7.2 at least). The kernel refuses every mask that meets it, as it did
    before (``rdtgroup_cbm_overlaps_pseudo_locked``).

    Nothing where the resource can't be partitioned, or the kernel (before 4.19) does not say.

    :raises vmqos.resctrl.exceptions.UnexpectedContent: if the file can't be understood.
    """
    try:
        return _understood(fs, f"info/{resource}/bit_usage", _pseudo_locked, "use of ways")
    except exceptions.Vanished:
        return {}


def _pseudo_locked(text: str) -> dict[int, CapacityBitmask]:
    """Read such as ``0=SSSSSSSSSPP;1=SSSSSSSSSSS``.

    :raises ValueError: if it is none such.
    """
    found = {}
    for entry in filter(None, text.split(";")):
        cache, equals, letters = entry.strip().partition("=")
        if not equals:
            raise ValueError(entry)
        bits = int("".join("01"[letter == _PSEUDO_LOCKED] for letter in letters) or "0", 2)
        if bits:
            found[int(cache)] = CapacityBitmask(bits)
    return found


def _bandwidth(fs: Filesystem, name: str, files: set[str], cache_ids: tuple[int, ...]) -> BandwidthResource:
    directory = f"info/{name}"
    linear = "delay_linear" in files and _integer(fs, f"{directory}/delay_linear") != 0
    return BandwidthResource(
        name=name,
        num_closids=_integer(fs, f"{directory}/num_closids"),
        min_bandwidth=_integer(fs, f"{directory}/min_bandwidth"),
        bandwidth_gran=_integer(fs, f"{directory}/bandwidth_gran"),
        delay_linear=linear,
        cache_ids=cache_ids,
        unit=_unit(fs, linear),
    )


def _unit(fs: Filesystem, linear: bool) -> BandwidthUnit:
    """What a throttle's values are; no file says so.

    The kernel has no throttle of Intel's or Arm's that is not linear (``rdt_get_mb_table``), and calls AMD's so
    (``__rdt_get_mem_config_amd``), which can't be mounted with ``mba_MBps``.
    """
    if not linear:
        return BandwidthUnit.EIGHTH_GBPS
    try:
        mounted = mount.find(fs.root, writable=False)
    except exceptions.ResctrlError:
        return BandwidthUnit.PERCENT
    return BandwidthUnit.MBPS if "mba_MBps" in mounted.options else BandwidthUnit.PERCENT


def _monitoring(fs: Filesystem, files: set[str]) -> Monitoring:
    directory = f"info/{_MONITORING}"
    features = fs.read(directory, "mon_features").split()
    threshold = f"{directory}/max_threshold_occupancy"
    return Monitoring(
        num_rmids=_integer(fs, f"{directory}/num_rmids"),
        # AMD lists mbm_total_bytes_config beside mbm_total_bytes: what is counted can be set, it is no counter itself.
        events=tuple(feature for feature in features if not feature.endswith(_EVENT_SETTING)),
        max_threshold_occupancy=_integer(fs, threshold) if "max_threshold_occupancy" in files else 0,
    )


def _integer(fs: Filesystem, path: str) -> int:
    return _understood(fs, path, _whole_number, "integer")


def _whole_number(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _mask(fs: Filesystem, path: str) -> CapacityBitmask:
    return _understood(fs, path, CapacityBitmask.parse, "capacity bitmask")


def _understood(fs: Filesystem, path: str, understand: Callable[[str], T], expected: str) -> T:
    text = fs.read(path).strip()
    try:
        return understand(text)
    except ValueError as error:
        raise exceptions.UnexpectedContent(path=fs.path(path), text=text, expected=expected) from error
