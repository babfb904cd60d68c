# SPDX-License-Identifier: Apache-2.0
"""The ``schemata`` and ``size`` files (the kernel's ``ctrlmondata.c``)."""

from __future__ import annotations

import errno
from itertools import takewhile

from vmqos.simulator.files import pseudo_lock
from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.hardware.profiles import BandwidthAllocation, CacheAllocation
from vmqos.simulator.hardware.resources import UNLIMITED_MBPS, Domain, Schema
from vmqos.simulator.kernel.numbers import refusal, strip, unsigned


def show(mounted: Mounted, group: Group) -> str:
    """The content of ``schemata``.

    :raises OSError: ``ENODEV`` for a pseudo-locked group whose cache is offline.
    """
    if group.mode is Mode.LOCK_SETUP:
        return "".join(f"{schema.name}:uninitialized\n" for schema in mounted.schemas)
    if group.region is not None and group.mode is Mode.LOCKED:
        region = pseudo_lock.online_region(mounted, group.region)
        return f"{region.schema.resource.name}:{region.domain.id}={region.mask:x}\n"
    lines = []
    for schema in mounted.schemas:
        if group.closid < schema.num_closids:
            lines.append(f"{schema.name:>{mounted.width}}:{show_values(mounted, schema, group.closid)}\n")
    return "".join(lines)


def show_values(mounted: Mounted, schema: Schema, closid: int) -> str:
    """What a class has of a resource, each domain's value behind its id (``show_doms``)."""
    return ";".join(_format(mounted, schema, domain, closid) for domain in schema.resource.domains)


def show_size(mounted: Mounted, group: Group) -> str:
    """The content of ``size``: bytes where ``schemata`` has masks.

    :raises OSError: ``ENODEV`` for a pseudo-locked group whose cache is offline.
    """
    if group.region is not None and group.mode is Mode.LOCKED:
        region = pseudo_lock.online_region(mounted, group.region)
        size = _size(region.schema, region.domain, region.mask)
        return f"{region.schema.name:>{mounted.width}}:{region.domain.id}={size}\n"
    lines = []
    for schema in mounted.schemas:
        sizes = []
        for domain in schema.resource.domains:
            unset = group.mode is Mode.LOCK_SETUP
            size = 0 if unset else _size(schema, domain, _value(schema, domain, group.closid))
            sizes.append(f"{domain.id}={size}")
        lines.append(f"{schema.name:>{mounted.width}}:{';'.join(sizes)}\n")
    return "".join(lines)


def store(mounted: Mounted, group: Group, data: str) -> None:
    """Take one write to ``schemata``: every line of it, or none.

    :raises OSError: ``EINVAL``, the reason being in ``last_cmd_status`` unless the newline at the end is
        missing or a cache id is unknown.
    """
    if not data.endswith("\n"):
        raise refusal(errno.EINVAL)
    status = mounted.status
    status.clear()
    if group.mode is Mode.LOCKED:
        status.puts("Resource group is pseudo-locked\n")
        raise refusal(errno.EINVAL)
    _clear_staged(mounted)
    try:
        for line in data[:-1].partition("\0")[0].split("\n"):
            _parse_line(mounted, group, line)
        for schema in mounted.schemas:
            if not schema.software_control:
                schema.resource.apply_staged(group.closid)
        if group.mode is Mode.LOCK_SETUP:
            pseudo_lock.create(mounted, group)
    finally:
        _clear_staged(mounted)


def _clear_staged(mounted: Mounted) -> None:
    for schema in mounted.schemas:
        schema.resource.clear_staged()


def _value(schema: Schema, domain: Domain, closid: int) -> int:
    if schema.software_control:
        return domain.mbps.get(closid, UNLIMITED_MBPS)
    return schema.resource.value(domain, closid, schema.use)


def _size(schema: Schema, domain: Domain, value: int) -> int:
    """Bytes of a mask, the way's size being cut to whole bytes first (``rdtgroup_cbm_to_size``)."""
    cache = schema.resource.cache
    return value if cache is None else domain.cache.size // cache.ways * value.bit_count()


def _format(mounted: Mounted, schema: Schema, domain: Domain, closid: int) -> str:
    value = _value(schema, domain, closid)
    width = _value_width(mounted) if mounted.kernel.pads_values else 0
    shown = f"{value:0{width}x}" if schema.resource.cache else f"{value:{width}}"
    return f"{domain.id}={shown}"


def _value_width(mounted: Mounted) -> int:
    """To how many places every resource's values are padded: what the widest needs (``rdt_init_padding``)."""
    widths = []
    for resource in mounted.hardware.resources:
        allocation = resource.allocation
        widths.append((allocation.ways + 3) // 4 if isinstance(allocation, CacheAllocation) else allocation.width)
    return max(widths, default=0)


def _parse_line(mounted: Mounted, group: Group, line: str) -> None:
    name, colon, values = line.partition(":")
    name = strip(name)
    if not colon:
        mounted.status.puts("Missing ':'\n")
        raise refusal(errno.EINVAL)
    if not values:
        mounted.status.printf(f"Missing '{name}' value\n")
        raise refusal(errno.EINVAL)
    for schema in mounted.schemas:
        if schema.name == name and group.closid < schema.num_closids:
            parse_values(mounted, group, schema, values)
            return
    mounted.status.printf(f"Unknown or unsupported resource name '{name}'\n")
    raise refusal(errno.EINVAL)


def parse_values(mounted: Mounted, group: Group, schema: Schema, values: str, unknown: str = "") -> None:
    """Stage the values of one line (``parse_line``).

    :param unknown: what is said of a cache id that is none; nothing where it is empty.
    :raises OSError: ``EINVAL``, the reason being in ``last_cmd_status`` unless a cache id is unknown.
    """
    if group.mode is Mode.LOCK_SETUP and schema.resource.cache is None:
        mounted.status.puts("Cannot pseudo-lock MBA resource\n")
        raise refusal(errno.EINVAL)
    rest: str | None = values
    while rest:
        token, separator, after = rest.partition(";")
        rest = after if separator else None
        number, equals, value = token.partition("=")
        try:
            domain_id = unsigned(number, 10, 64) if equals else None
        except OSError:
            domain_id = None
        if domain_id is None:
            mounted.status.puts("Missing '=' or non-numeric domain\n")
            raise refusal(errno.EINVAL)
        domain = next((domain for domain in schema.resource.domains if domain.id == domain_id), None)
        if domain is None:
            mounted.status.puts(unknown.format(domain_id))
            raise refusal(errno.EINVAL)
        _stage(mounted, group, schema, domain, strip(value))
        if group.mode is Mode.LOCK_SETUP:
            pseudo_lock.choose(group, schema, domain)
            return


def _stage(mounted: Mounted, group: Group, schema: Schema, domain: Domain, text: str) -> None:
    if schema.use in domain.staged:
        mounted.status.printf(f"Duplicate domain {domain.id}\n")
        raise refusal(errno.EINVAL)
    allocation = schema.resource.allocation
    if isinstance(allocation, BandwidthAllocation):
        value = _parse_bandwidth(mounted, schema, allocation, text)
        if schema.software_control:
            # In force at once: a later line that is refused does not take it back.
            domain.mbps[group.closid] = value
            return
    else:
        value = _parse_mask(mounted, group, schema, domain, allocation, text)
    domain.staged[schema.use] = value


def _parse_bandwidth(mounted: Mounted, schema: Schema, allocation: BandwidthAllocation, text: str) -> int:
    """``bw_validate``."""
    try:
        value = unsigned(text, 10, 32)
    except OSError:
        mounted.status.printf(f"Invalid MB value {text}\n")
        raise refusal(errno.EINVAL) from None
    if schema.software_control:
        return value
    if not allocation.min <= value <= allocation.max:
        mounted.status.printf(f"MB value {value} out of range [{allocation.min},{allocation.max}]\n")
        raise refusal(errno.EINVAL)
    return -(-value // allocation.granularity) * allocation.granularity


def _parse_mask(
    mounted: Mounted, group: Group, schema: Schema, domain: Domain, allocation: CacheAllocation, text: str
) -> int:
    """``parse_cbm`` and ``cbm_validate``."""
    status = mounted.status
    if group.mode is Mode.LOCK_SETUP and pseudo_lock.locked_in_hierarchy(mounted, domain):
        status.puts("Pseudo-locked region in hierarchy\n")
        raise refusal(errno.EINVAL)
    try:
        mask = unsigned(text, 16, 64)
    except OSError:
        status.printf(f"Non-hex character in the mask {text}\n")
        raise refusal(errno.EINVAL) from None
    if (allocation.min_cbm_bits > 0 and not mask) or mask >> allocation.ways:
        status.puts("Mask out of range\n")
        raise refusal(errno.EINVAL)
    first_run = len(list(takewhile(lambda bit: bit == "1", f"{mask:b}"[::-1].lstrip("0"))))
    if not allocation.sparse and first_run != mask.bit_count():
        status.printf(f"The mask {mask:x} has non-consecutive 1-bits\n")
        raise refusal(errno.EINVAL)
    if first_run < allocation.min_cbm_bits:
        status.printf(f"Need at least {allocation.min_cbm_bits} bits in the mask\n")
        raise refusal(errno.EINVAL)
    if group.mode in (Mode.EXCLUSIVE, Mode.SHAREABLE) and pseudo_lock.overlaps(domain, mask):
        status.puts("CBM overlaps with pseudo-locked region\n")
        raise refusal(errno.EINVAL)
    if mounted.overlaps(schema, domain, mask, group.closid, exclusive_only=True):
        status.puts("Overlaps with exclusive group\n")
        raise refusal(errno.EINVAL)
    if group.mode in (Mode.EXCLUSIVE, Mode.LOCK_SETUP) and mounted.overlaps(
        schema, domain, mask, group.closid, exclusive_only=False
    ):
        status.puts("Overlaps with other group\n")
        raise refusal(errno.EINVAL)
    return mask
