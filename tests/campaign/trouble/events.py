# SPDX-License-Identifier: Apache-2.0
"""What happens on a host. Each event is a name and three numbers; whom it concerns is chosen by them when it happens.

So every part of a story is a story, too, which is what the search for the shortest one needs.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.campaign.trouble.choices import choose
from tests.campaign.trouble.host import Host
from tests.campaign.trouble.machine import ERRORS
from tests.campaign.trouble.quiet_host import FULL_AUDIT, POLICIES, Pins, PlayedVm
from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.resctrl import exceptions

FOREIGN = ("containers", "pqos", "pod-7")
MOST_VMS = 10


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    :ivar name: one of :data:`EVENTS`.
    :ivar a: chooses whom it concerns.
    :ivar b: chooses how.
    :ivar c: chooses what follows: passes, and whether it happens during one.
    """

    name: str
    a: int
    b: int
    c: int

    def happen(self, host: Host) -> None:
        """Let it happen, and have the agent make the passes that follow."""
        act = EVENTS[self.name].act
        if EVENTS[self.name].anytime and self.c % 5 == 0:
            # In the next pass, before its so-and-so-many-th operation on a file.
            host.during.append((1 + self.c // 5 % 40, lambda: act(host, self)))
        else:
            act(host, self)
        host.run(self.c % 3)

    def __str__(self) -> str:
        return f"{self.name}({self.a}, {self.b}, {self.c})"


Act = Callable[[Host, Event], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kind of event.

    :ivar weight: how often it happens, compared with the others.
    :ivar anytime: whether it may happen in the middle of a pass.
    """

    act: Act
    weight: int
    anytime: bool = False


def _vm(host: Host, event: Event, *, listed: bool = True) -> PlayedVm | None:
    found = [vm for vm in host.vms.values() if vm.is_listed or not listed]
    return choose(found, event.a)


def _specs(host: Host, number: int) -> Mapping[str, str]:
    options, profile = host.troubled.options, host.troubled.machine.hardware.profile
    flavors: list[dict[str, str]] = [
        {"hw:cache_ways": "1"},
        {"hw:cache_ways": "2"},
        {"hw:cache_ways": "2"},
        {"hw:cache_ways": "3"},
        {"hw:cache_ways": "4"},
        {"hw:cache_ways": "2", "hw:cache_policy": "shared"},
        {"hw:cache_ways": "3", "hw:cache_policy": "shared"},
        {"hw:cache_ways": "2", "hw:cache_vcpus": "0"},
        {},
        {},
        {"hw:cache_ways": "30"},
        {"hw:cache_ways": "two"},
    ]
    if profile.bandwidth is not None and profile.bandwidth.linear:
        flavors += [{"hw:mem_bandwidth_percent": "50"}, {"hw:cache_ways": "2", "hw:mem_bandwidth_percent": "30"}]
    if profile.l2 is not None:
        flavors.append({"hw:cache_ways": "1", "hw:l2_cache_ways": "2"})
    if "cdp" in options:
        flavors += [{"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"}] * 2
    return flavors[number % len(flavors)]


def _start(host: Host, event: Event) -> None:
    """A VM starts; mostly the agent hears of it before its process is forked."""
    if len(host.vms) >= MOST_VMS:
        return _end(host, event)
    _begin(host, event, "")


def _arrive(host: Host, event: Event) -> None:
    """A VM that left, by migration or by its end, comes back."""
    uuid = choose([uuid for uuid in host.departed if uuid not in host.vms], event.a)
    if uuid is not None and len(host.vms) < MOST_VMS:
        _begin(host, event, uuid)


def _begin(host: Host, event: Event, uuid: str) -> None:
    specs = _specs(host, event.b)
    vcpus = 2 if "hw:cache_vcpus" in specs or "hw:l2_cache_ways" in specs or event.a % 4 == 0 else 0
    # A VM that comes back is more often one that comes by a migration.
    is_incoming = event.c // 15 % (2 if uuid else 4) == 0
    vm = host.new_vm(specs, vcpus=vcpus, pins=_pins(host, vcpus, event.c // 3), uuid=uuid, is_incoming=is_incoming)
    if event.a % 3:
        host.begin_early(vm, forked=False)
        if event.a % 7 == 0:
            host.run()
        host.begin_early(vm, forked=True)
        if event.a % 5 == 0:
            host.run()
    host.list_vm(vm)


def _pins(host: Host, vcpus: int, number: int) -> Pins:
    """Where a VM's threads may run from the beginning on."""
    every = sorted(host.troubled.cpus)
    anywhere, first, last = frozenset(every), frozenset(every[:1]), frozenset(every[-1:])
    count = max(1, vcpus)
    kinds = [Pins((cpus,) * count, cpus) for cpus in (anywhere, first, last)]
    if vcpus:
        kinds += [Pins(tuple((first, last)[vcpu % 2] for vcpu in range(count)), anywhere), Pins((first,) * count, last)]
    return kinds[number % len(kinds)]


def _start_fails(host: Host, event: Event) -> None:
    """libvirt begins to start a VM, and gives up."""
    vm = host.new_vm(_specs(host, event.b), pins=_pins(host, 0, event.c // 3), is_incoming=event.c // 15 % 4 == 0)
    host.begin_early(vm, forked=False)
    if event.a % 2:
        host.begin_early(vm, forked=True)
    host.run(event.a % 3)
    host.end_vm(vm)


def _end(host: Host, event: Event) -> None:
    if (vm := _vm(host, event)) is not None:
        host.end_vm(vm)


def _die(host: Host, event: Event) -> None:
    """The VM's process is killed, and libvirt has not noticed it yet."""
    if (vm := _vm(host, event)) is not None:
        host.end_vm(vm, is_unlisted=False)


def _linger(host: Host, event: Event) -> None:
    """libvirt lists the VM no longer, and its process lives: a migration away, or a libvirtd that has lost it."""
    if (vm := _vm(host, event)) is not None:
        host.end_vm(vm, process_lives=True)


def _resize(host: Host, event: Event) -> None:
    if (vm := _vm(host, event)) is not None:
        host.change_flavor(vm, _specs(host, event.b))


def _pin(host: Host, event: Event) -> None:
    """The VM is pinned to other CPUs, and libvirt says so."""
    if (vm := _vm(host, event)) is not None:
        host.pin(vm, _cpus(host, event.b))
        host.tell(vm.uuid)


def _confine(host: Host, event: Event) -> None:
    """The VM's cgroup gets other CPUs, of which nobody is told."""
    if (vm := _vm(host, event)) is not None:
        host.pin(vm, _cpus(host, event.b))
        host.debt = max(host.debt, FULL_AUDIT)


def _cpus(host: Host, number: int) -> frozenset[int]:
    every = sorted(host.troubled.cpus)
    return [frozenset(every), frozenset(every[:1]), frozenset(every[-1:])][number % 3]


def _plug(host: Host, event: Event) -> None:
    if (vm := choose([vm for vm in host.vms.values() if vm.vcpus], event.a)) is None:
        return
    if vm.vcpus < 6 and not vm.is_incoming:
        host.plug(vm)
        if event.b % 2:
            host.tell(vm.uuid)


def _kill_at_operation(host: Host, event: Event) -> None:
    host.killer.arm(operations=1 + event.a % 60)
    host.run()


def _kill_at_line(host: Host, event: Event) -> None:
    host.killer.arm(lines=1 + event.a % 1400)
    if event.b % 2:
        host.agent._on_change(None)
    host.run()


def _restart(host: Host, event: Event) -> None:
    host.restart()


def _reload(host: Host, event: Event) -> None:
    """The operator changes the policy, which takes no VM's ways but those of I/O."""
    host.reload(POLICIES[event.a % len(POLICIES)])


def _unmount(host: Host, event: Event) -> None:
    if host.troubled.machine.is_mounted:
        host.touch_all()
        host.troubled.unmount()


def _mount(host: Host, event: Event) -> None:
    if not host.troubled.machine.is_mounted:
        host.touch_all()
        host.troubled.mount()


def _mount_anew(host: Host, event: Event) -> None:
    """Between two passes."""
    _unmount(host, event)
    _mount(host, event)


def _lock(host: Host, event: Event) -> None:
    host.lock()


def _unlock(host: Host, event: Event) -> None:
    host.unlock()


def _writes_fail(host: Host, event: Event) -> None:
    host.trouble.error, host.trouble.period = ERRORS[event.a % len(ERRORS)], 1 + event.b % 5
    host.trouble.reads = False


def _reads_fail(host: Host, event: Event) -> None:
    host.trouble.error, host.trouble.period, host.trouble.reads = errno.EIO, 3 + event.b % 30, True


def _nothing_fails(host: Host, event: Event) -> None:
    host.trouble.error = 0


def _foreign_comes(host: Host, event: Event) -> None:
    """Another program makes a group, and mostly gives it a mask of its own."""
    name, outside = FOREIGN[event.a % len(FOREIGN)], host.troubled.outside
    host.touch_all()
    with contextlib.suppress(exceptions.ResctrlError):
        if name not in host.troubled.groups():
            outside.mkdir(name)
        if event.b % 3:
            _write_masks(host, name, event.b)
        if event.b % 2:
            outside.write(f"{name}/tasks", str(host.stranger()))


def _foreign_goes(host: Host, event: Event) -> None:
    with contextlib.suppress(exceptions.ResctrlError):
        host.touch_all()
        host.troubled.outside.rmdir(FOREIGN[event.a % len(FOREIGN)])


def _cachetune_comes(host: Host, event: Event) -> None:
    """A VM starts that libvirt places itself."""
    if len(host.vms) >= MOST_VMS:
        return
    host.touch_all()
    vm = host.new_vm(_specs(host, event.b), vcpus=2, has_cachetune=True)
    name = f"qemu-{vm.number}-{vm.file}-vcpus_0"
    with contextlib.suppress(exceptions.ResctrlError):
        host.troubled.outside.mkdir(name)
        _write_masks(host, name, event.b)
        host.troubled.outside.write(f"{name}/tasks", str(max(vm.tasks())))
    host.list_vm(vm)


def _cachetune_goes(host: Host, event: Event) -> None:
    vm = choose([vm for vm in host.vms.values() if vm.has_cachetune], event.a)
    if vm is not None:
        with contextlib.suppress(exceptions.ResctrlError):
            host.touch_all()
            host.troubled.outside.rmdir(f"qemu-{vm.number}-{vm.file}-vcpus_0")
        host.end_vm(vm)


def _meddle(host: Host, event: Event) -> None:
    """Another program writes a mask of ours, or of the default group."""
    names = ["", *sorted(name for name in host.troubled.groups() if name.startswith("vmqos."))]
    host.touch_all()
    name = names[event.a % len(names)]
    with contextlib.suppress(exceptions.ResctrlError):
        _write_masks(host, name, event.b)
    if (group := host.troubled.groups().get(name)) is not None:
        host.foreign[name] = group.masks


def _write_masks(host: Host, name: str, number: int) -> None:
    machine = host.troubled.machine
    l3 = machine.hardware.profile.l3
    assert l3 is not None
    if not machine.is_mounted:
        return
    size = max(1, l3.min_cbm_bits) + number % 3
    mask = (1 << size) - 1 << number // 3 % (l3.ways - size + 1)
    for schema in machine.mounted.schemas:
        if schema.resource.name != "L3":
            continue
        told = ";".join(f"{domain.id}={mask:x}" for domain in schema.resource.domains)
        host.troubled.outside.write(f"{name}/schemata" if name else "schemata", f"{schema.name}:{told}")


def _remove_ours(host: Host, event: Event) -> None:
    """Another program removes a group of ours."""
    names = sorted(name for name in host.troubled.groups() if name.startswith("vmqos."))
    if (name := choose(names, event.a)) is not None:
        host.touch_all()
        with contextlib.suppress(exceptions.ResctrlError):
            host.troubled.outside.rmdir(name)


def _stray(host: Host, event: Event) -> None:
    """Another program moves a task of a VM to the default group."""
    if (vm := _vm(host, event)) is not None and (tid := choose(sorted(vm.tasks()), event.b)) is not None:
        host.touch_all()
        with contextlib.suppress(exceptions.ResctrlError):
            host.troubled.outside.write("tasks", str(tid))


def _cache_goes(host: Host, event: Event) -> None:
    if len(host.troubled.online) > 1:
        host.touch_all()
        host.troubled.switch(choose(sorted(host.troubled.online), event.a) or 0, False)


def _cache_comes(host: Host, event: Event) -> None:
    cpu = choose(sorted(host.troubled.cpus - host.troubled.online), event.a)
    if cpu is not None:
        host.touch_all()
        host.troubled.switch(cpu, True)


def _clock_back(host: Host, event: Event) -> None:
    host.clock.set_back(float(event.a % 100000))


def _time_passes(host: Host, event: Event) -> None:
    host.let_pass((0.5, 2.0, FULL_AUDIT)[event.a % 3])
    host.end_migrations()


def _events_lost(host: Host, event: Event) -> None:
    host.is_deaf = event.a % 3 > 0


def _inotify_lost(host: Host, event: Event) -> None:
    host.is_blind = event.a % 3 > 0


def _inotify_overflows(host: Host, event: Event) -> None:
    """More happens to the status files than the kernel keeps: a VM ends or starts meanwhile, or both."""
    if event.a % 2:
        # A VM whose start was acted on already, so that there is something to forget.
        _start(host, event)
    host.is_blind = True
    if event.b % 3:
        _end(host, event)
    if event.b % 3 != 1:
        _start(host, event)
    host.run(event.a % 3)
    host.watch_anew()


def _libvirt_goes(host: Host, event: Event) -> None:
    host.libvirt.is_connected = False


def _libvirt_comes(host: Host, event: Event) -> None:
    if not host.libvirt.is_connected:
        host.connect()


def _libvirt_fails(host: Host, event: Event) -> None:
    """libvirt can't describe one VM."""
    if (vm := _vm(host, event)) is not None:
        host.libvirt.broken[vm.uuid] = hypervisor_exceptions.HypervisorUnreachable(uri="test:///", error="it is busy")
        host.tell(vm.uuid)


def _libvirt_hangs(host: Host, event: Event) -> None:
    """libvirt does not answer about one VM."""
    if (vm := _vm(host, event)) is not None and not host.libvirt.hung:
        host.libvirt.hung[vm.uuid] = threading.Event()
        host.tell(vm.uuid)


def _libvirt_heals(host: Host, event: Event) -> None:
    for uuid in [*host.libvirt.hung]:
        host.libvirt.hung.pop(uuid).set()
    host.libvirt.broken.clear()
    for vm in host.vms.values():
        if vm.is_listed:
            host.tell(vm.uuid)


EVENTS: Mapping[str, Entry] = {
    "start": Entry(_start, 14),
    "arrive": Entry(_arrive, 3),
    "start-fails": Entry(_start_fails, 2),
    "end": Entry(_end, 5, anytime=True),
    "die": Entry(_die, 2, anytime=True),
    "linger": Entry(_linger, 1, anytime=True),
    "resize": Entry(_resize, 10, anytime=True),
    "pin": Entry(_pin, 4, anytime=True),
    "confine": Entry(_confine, 2, anytime=True),
    "plug": Entry(_plug, 3, anytime=True),
    "kill-at-operation": Entry(_kill_at_operation, 12),
    "kill-at-line": Entry(_kill_at_line, 22),
    "restart": Entry(_restart, 1),
    "reload": Entry(_reload, 2),
    "unmount": Entry(_unmount, 1, anytime=True),
    "mount": Entry(_mount, 2),
    "mount-anew": Entry(_mount_anew, 1),
    "lock": Entry(_lock, 1),
    "unlock": Entry(_unlock, 2),
    "writes-fail": Entry(_writes_fail, 3),
    "reads-fail": Entry(_reads_fail, 1),
    "nothing-fails": Entry(_nothing_fails, 4),
    "foreign-comes": Entry(_foreign_comes, 2, anytime=True),
    "foreign-goes": Entry(_foreign_goes, 3, anytime=True),
    "cachetune-comes": Entry(_cachetune_comes, 1),
    "cachetune-goes": Entry(_cachetune_goes, 1),
    "meddle": Entry(_meddle, 3, anytime=True),
    "remove-ours": Entry(_remove_ours, 1, anytime=True),
    "stray": Entry(_stray, 2, anytime=True),
    "cache-goes": Entry(_cache_goes, 2, anytime=True),
    "cache-comes": Entry(_cache_comes, 3, anytime=True),
    "clock-back": Entry(_clock_back, 1, anytime=True),
    "time-passes": Entry(_time_passes, 4),
    "events-lost": Entry(_events_lost, 1),
    "inotify-lost": Entry(_inotify_lost, 1),
    "inotify-overflows": Entry(_inotify_overflows, 2),
    "libvirt-goes": Entry(_libvirt_goes, 1, anytime=True),
    "libvirt-comes": Entry(_libvirt_comes, 2, anytime=True),
    "libvirt-fails": Entry(_libvirt_fails, 1, anytime=True),
    "libvirt-hangs": Entry(_libvirt_hangs, 1),
    "libvirt-heals": Entry(_libvirt_heals, 2),
}
"""Every kind of event by its name."""
