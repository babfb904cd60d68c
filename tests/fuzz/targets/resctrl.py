# SPDX-License-Identifier: Apache-2.0
"""The texts of resctrl, and where it is mounted."""

from __future__ import annotations

import contextlib

from tests.fuzz.targets import parts
from vmqos import group_names
from vmqos.extra_specs import cpu_spec
from vmqos.host import resctrl_state
from vmqos.resctrl import assignment, exceptions, monitoring, mount, pseudo_lock, schemata, tasks, topology
from vmqos.resctrl import info as info_files
from vmqos.resctrl.monitoring import Missing


def schemata_file(data: bytes) -> bool:
    text = data.decode(errors="replace")
    try:
        found = schemata.parse(text)
    except exceptions.InvalidSchemata:
        return False
    assert schemata.parse(_rendered(found)) == found, "what was read is not read again from what it is written as"
    for resource in found:
        with contextlib.suppress(exceptions.InvalidBitmask):
            masks = schemata.masks_of(found, resource)
            assert not masks or schemata.parse_masks(schemata.format_values(resource, masks), resource) == masks
        with contextlib.suppress(exceptions.InvalidSchemata):
            numbers = schemata.numbers_of(found, resource)
            line = schemata.format_values(resource, numbers) if numbers else f"{resource}:"
            assert schemata.numbers_of(schemata.parse(line), resource) == numbers
    for level in (2, 3):
        with contextlib.suppress(exceptions.InvalidBitmask):
            schemata.code_and_data(found, level)
    return bool(found)


def _rendered(found: schemata.Schemata) -> str:
    return "".join(
        f"{resource}:{';'.join(f'{cache}={value}' for cache, value in values.items())}\n"
        for resource, values in found.items()
    )


def info(data: bytes) -> bool:
    try:
        found = info_files.read_capabilities(parts.Files(parts.split(data)))
    except exceptions.ResctrlError:
        return False
    for cache in found.caches.values():
        assert cache.num_closids >= 0 and cache.level in range(10)
    return bool(found.caches or found.bandwidths or found.monitoring)


def all_groups(data: bytes) -> bool:
    filesystem = parts.Files(parts.split(data))
    try:
        found = resctrl_state.read(filesystem)
    except exceptions.ResctrlError:
        return False
    assert resctrl_state.read(filesystem, found) == found, "nothing has changed, and it is read as something else"
    assert found.closids_in_use >= 0 and found.rmids_in_use >= 0
    with contextlib.suppress(exceptions.ResctrlError):
        for group in found.layout.groups:
            pseudo_lock.read_sizes(filesystem, group.name)
    return True


def counter(data: bytes) -> bool:
    value = monitoring.parse(data)
    assert isinstance(value, Missing) or value >= 0, f"a counter of {value}"
    assert monitoring.parse_all([data]) == [value], "alone it is another value than among many"
    assert len(monitoring.readings([value])) == 1
    return not isinstance(value, Missing)


def assignments(data: bytes) -> bool:
    filesystem, found = parts.Files(parts.split(data)), None
    with contextlib.suppress(exceptions.ResctrlError):
        assert all(count >= 0 for count in assignment.available(filesystem).values())
    with contextlib.suppress(exceptions.ResctrlError):
        found = assignment.find(filesystem)
    if found is None:
        return False
    states = list[bool]()
    for group in ("", "vmqos.a", "mon_groups/vmqos.b", "vmqos.a/mon_groups/vmqos.b"):
        with contextlib.suppress(exceptions.ResctrlError):
            states += found.slots(group).values()
    return not all(states)


def tasks_file(data: bytes) -> bool:
    try:
        return all(tid >= 0 for tid in tasks.read_tasks(parts.Files({"tasks": data}), ""))
    except exceptions.ResctrlError:
        return False


def cpu_list(data: bytes) -> bool:
    try:
        found = topology.parse_cpu_list(data.decode(errors="replace"))
    except ValueError:
        return False
    assert topology.parse_cpu_list(cpu_spec.show(found)) == found
    return True


def group_name(data: bytes) -> bool:
    name = data.decode(errors="replace")
    owner, request, uuid = group_names.owner_of(name), group_names.class_request(name), group_names.vm_of(name)
    if uuid is not None:
        assert owner is group_names.Owner.VM and group_names.vm_group(uuid) == name
    if request is not None:
        assert owner is group_names.Owner.CLASS and group_names.class_group(request) == name
    return owner is not group_names.Owner.FOREIGN


def mounts(data: bytes) -> bool:
    files = parts.split(data)
    for name in ("self/mounts", "filesystems", "cpuinfo", "cmdline"):
        parts.lay_down(f"proc/{name}", files.get(name, b""))
    proc = str(parts.folder() / "proc")
    assert isinstance(pseudo_lock.why_processor_cannot(proc), str)
    found = False
    for path in (None, "/sys/fs/resctrl"):
        with contextlib.suppress(exceptions.NotResctrl, exceptions.Unreadable):
            try:
                mount.find(path, writable=False, proc=proc)
            except exceptions.MountError as error:
                assert str(error)
            found = True
    return found
