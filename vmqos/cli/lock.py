# SPDX-License-Identifier: Apache-2.0
"""``vmqos lock``: memory that stays in a cache (cache pseudo-locking)."""

from __future__ import annotations

import argparse
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.output import Details, Listing, as_rows, is_for_machines
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.tables import Cell
from vmqos.cli.show.units import size, way_list

if TYPE_CHECKING:
    from vmqos.pseudo_lock.region_users import User
    from vmqos.pseudo_lock.regions import Host, Lock
    from vmqos.pseudo_lock.vm import Given

_SIZE = re.compile(r"([0-9]{1,18})(?:([KM])(?:i?B)?|B)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_CACHE = re.compile(r"[Ll]([23]):([0-9]{1,9})")


class LockCreate(Details):
    """Lock a piece of memory into ways of a cache that no group has, so that it stays cached.

    On processors whose prefetchers the kernel can switch off: Broadwell-EP (L3), Goldmont and Goldmont Plus (L2). Whole
    ways are locked, and SIZE is rounded up to them; the real size is shown. VMs' own ways, other groups', reserved ones
    and I/O ways are not taken; the default group gives up ways, but never its floor. The agent may run: it sees ways
    that are taken. Needs root. If anything fails, everything is as it was.

    The whole cache is written back and emptied once while the kernel locks the region: all that uses it is slow for a
    moment.

    Programs map the region from the device that is shown (mmap with MAP_SHARED), while they are confined to the CPUs
    that are shown. Each mmap fills with zeros what it maps.

    With --vm a VM gets the region as a PCI device (ivshmem-plain, memory in its third BAR): at once if it runs, and at
    each start of its definition. Its vCPUs and QEMU's main thread are pinned to the cache's CPUs. SIZE is a power of
    two then.

    For example::

        vmqos lock create table --cache L2:1 --size 256K
        vmqos lock create ring --cache L3:0 --size 512K --vm 4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to lock."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="what to call it: up to 32 letters, digits and . _ -")
        parser.add_argument(
            "--cache",
            metavar="LEVEL:ID",
            type=_cache,
            required=True,
            help="which cache, such as L2:1: the level, and the id that schemata has",
        )
        parser.add_argument(
            "--size",
            metavar="SIZE",
            type=_bytes,
            required=True,
            help="bytes, or with K or M; at most 4M, which is the most that the kernel locks",
        )
        parser.add_argument("--vm", metavar="UUID", type=_uuid, help="give the region to this VM of libvirt's")
        parser.add_argument(
            "--next-start",
            action="store_true",
            help="with --vm: leave the VM as it is while it runs; it has the region from its next start on",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Lock, and say what came of it."""
        # Imported here: the other commands read no resctrl themselves.
        from vmqos.pseudo_lock import lifecycle

        if parsed_args.next_start and parsed_args.vm is None:
            raise exceptions.MissingArgument(
                what="--next-start says when a VM gets the region: name one with --vm", command="lock create"
            )
        resource, cache_id = parsed_args.cache
        host = _host(self.app.options)
        wanted = lifecycle.Wanted(parsed_args.name, resource, cache_id, parsed_args.size)
        if parsed_args.vm is None:
            return _shown(lifecycle.create(host, wanted), [], parsed_args)
        # Imported here: it needs libvirt.
        from vmqos.pseudo_lock import region_users, vm

        uri = settings.configuration(self.app.options).libvirt.uri
        given = vm.create(host, wanted, uri, parsed_args.vm, parsed_args.next_start)
        return _shown(given.lock, region_users.users(given.lock.device), parsed_args, given)


class LockList(Listing):
    """List the locked pieces of memory of this host, those that others made too.

    Only those marked with the owner vmqos are removed by 'vmqos lock remove'. What is in pseudo-locksetup, or in the
    mode shareable, was never finished: nothing is locked, but a CLOSID is taken. What is pseudo-locked and has no cache
    has lost it, because the cache went offline: nothing is locked any more, also once the cache is back. Remove both.

    For example::

        vmqos lock list
        vmqos lock list -f json
    """

    optional = ("CPUs", "Ways")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Look at resctrl."""
        from vmqos.pseudo_lock import regions

        found = regions.list_locks(_host(self.app.options))
        if is_for_machines(parsed_args):
            return as_rows([_json(lock) for lock in found])
        if not found and parsed_args.formatter == "table":
            self.app.stdout.write("No cache is locked.\n")
        return ("Name", "Owner", "State", "Cache", "Size", "Ways", "CPUs", "Device"), [
            (
                neutralise(lock.name),
                _owner(lock),
                lock.mode,
                lock.cache,
                Cell(lock.size, size(lock.size) if lock.resource else ""),
                way_list(lock.mask.bits),
                lock.cpus,
                neutralise(lock.device),
            )
            for lock in found
        ]


class LockShow(Details):
    """Show one locked piece of memory, and who uses it.

    A name is first looked for among the locks of vmqos, then among the groups of others. Run it as root, or users that
    belong to others are not seen.

    For example::

        vmqos lock show table
        vmqos lock show table -f json
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which one."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="see 'vmqos lock list'")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Look at resctrl and /proc."""
        from vmqos.pseudo_lock import region_users, regions

        lock = regions.find(_host(self.app.options), parsed_args.name)
        return _shown(lock, region_users.users(lock.device) if lock.device else [], parsed_args)


class LockRemove(Documented):
    """Unlock a piece of memory, and give its ways back to the default group.

    Refused while a program or a VM has it open, for the kernel would keep the ways until the host is rebooted. VMs that
    do not run have the device taken out of their definition; they stay pinned as they are. If that fails for a VM, the
    exit status is 1, for the VM does not start until it is done. What others locked is never removed.

    Remove all locks before you unmount resctrl: on Linux 6.15 and later umount hangs otherwise.

    For example::

        vmqos lock remove table
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which one."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="see 'vmqos lock list'")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Remove it, and say so."""
        from vmqos.pseudo_lock import lifecycle
        from vmqos.pseudo_lock.exceptions import WaysNotGivenBack

        try:
            lock = lifecycle.remove(_host(self.app.options), parsed_args.name)
        except WaysNotGivenBack as error:
            # There is no such lock any more, so nothing else would take its device out of the definitions.
            self._clean_definitions(error.lock)
            raise
        if lock.resource:
            what = f"{size(lock.size)} of {lock.cache}, ways {way_list(lock.mask.bits)}"
        else:
            what = "its cache went offline" if lock.is_finished else "never finished"
        self.app.stdout.write(f"Removed the lock {neutralise(lock.name)} ({what}).\n")
        return 0 if self._clean_definitions(lock) else 1

    def _clean_definitions(self, lock: Lock) -> bool:
        """Take the device out of VMs' definitions, and say so; whether no VM that is known here still has it."""
        try:
            from vmqos.pseudo_lock import vm
        except ImportError:
            # Where there is no libvirt, no VM was given the region.
            return True
        try:
            taken = vm.take(settings.configuration(self.app.options).libvirt.uri, lock)
        except vm.HypervisorError as error:
            # A host whose programs use the region may have no VMs, and no libvirt that runs.
            self.app.stderr.write(f"Definitions of VMs were not looked at: {neutralise(str(error))}\n")
            return isinstance(error, vm.NoHypervisor)
        for name in taken.names:
            self.app.stdout.write(
                f"Taken out of the definition of VM {neutralise(name)}, whose pins stay as they are.\n"
            )
        for name, problem in taken.problems.items():
            self.app.stderr.write(
                f"Still in the definition of VM {neutralise(name)}, which does not start with it: "
                f"{neutralise(problem)}. Take the lines with {neutralise(lock.group)} out with 'virsh edit'.\n"
            )
        return not taken.problems


def _host(options: argparse.Namespace) -> Host:
    from vmqos.pseudo_lock.regions import Host

    conf = settings.configuration(options)
    return Host(
        path=conf.resctrl.path,
        sysfs=conf.resctrl.sysfs_cpu_path,
        timeout=conf.resctrl.lock_timeout,
        floor=conf.allocation.default_ways_min,
        reserved=conf.allocation.reserved_ways,
    )


def _shown(
    lock: Lock, users: Sequence[User], parsed_args: argparse.Namespace, given: Given | None = None
) -> tuple[Sequence[str], Iterable[Any]]:
    if is_for_machines(parsed_args):
        found = _json(lock) | {"users": [{"pid": one.pid, "command": one.command, "vm": one.vm} for one in users]}
        if given is not None:
            found["vm"] = {
                "uuid": given.uuid,
                "name": given.name,
                "plugged": given.now,
                "emulatorpin": given.emulator,
                "vcpupin": {str(number): cpus for number, cpus in given.vcpus.items()},
                "qemu_arguments": list(given.arguments),
            }
        return tuple(found), tuple(found.values())
    fields = {
        "Name": neutralise(lock.name),
        "Owner": _owner(lock),
        "State": lock.mode,
        "Cache": lock.cache,
        "Size": f"{size(lock.size)} ({lock.size} bytes)" if lock.resource else "",
        "Ways": f"{way_list(lock.mask.bits)} (mask {lock.mask})" if lock.resource else "",
        "CPUs": lock.cpus,
        "Device": neutralise(lock.device) or "none",
        "Users": "\n".join(neutralise(str(user)) for user in users) or "none",
    }
    if given is not None:
        fields |= _described(given)
    return tuple(fields), tuple(fields.values())


def _described(given: Given) -> dict[str, str]:
    when = "has it now, and" if given.now else "has it"
    pins = [f"<vcpupin vcpu='{number}' cpuset='{cpus}'/>" for number, cpus in given.vcpus.items()]
    arguments = [f"  <qemu:arg value='{argument}'/>" for argument in given.arguments]
    definition = [*pins, f"<emulatorpin cpuset='{given.emulator}'/>", "<qemu:commandline>", *arguments]
    return {
        "VM": f"{neutralise(given.name)} ({given.uuid}) {when} from its next start on",
        "Its definition": "\n".join([*definition, "</qemu:commandline>"]),
        "In qemu.conf": f"cgroup_device_acl must name {given.lock.device} when the VM starts, or QEMU may not open it",
    }


def _json(lock: Lock) -> dict[str, Any]:
    return {
        "name": lock.name,
        "group": lock.group,
        "owner": _owner(lock),
        "state": lock.mode,
        "resource": lock.resource,
        "cache_id": lock.cache_id,
        "mask": str(lock.mask),
        "size": lock.size,
        "cpus": lock.cpus,
        "device": lock.device,
    }


def _owner(lock: Lock) -> str:
    return "vmqos" if lock.ours else "foreign"


def _cache(text: str) -> tuple[str, int]:
    found = _CACHE.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no cache: write the level and the id, such as L2:1 or L3:0")
    return f"L{found[1]}", int(found[2])


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    count = int(found[1]) * _UNITS[(found[2] or "").upper()] if found else 0
    if not count:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write bytes, or a number with K or M, such as 256K")
    return count


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no UUID; 'virsh list --all --uuid' lists them") from None
