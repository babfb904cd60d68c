# SPDX-License-Identifier: Apache-2.0
"""The judge: looks after each single write of the agent's, after each pass, and once all is quiet.

It shares no code with the agent but the names of groups and the grammar of flavors. It asks the simulated hardware,
``/proc`` and the VMs as they really are; of the agent it takes only what the API tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.campaign.trouble.quiet_host import PlayedVm, QuietHost
from tests.campaign.trouble.seen import Cache, Seen
from tests.campaign.trouble.verdicts import LASTING, Kind, Violation
from tests.campaign.trouble.writes import CLASS_PREFIX, PREFIX, Writes
from vmqos.agent.serve import vms as api
from vmqos.conf.libvirt import DEFAULT_GROUP
from vmqos.extra_specs import CachePolicy, cpu_spec


class Judge:
    """Watches one host.

    :ivar violations: what was wrong so far.
    :ivar writes: how many writes it looked after.
    """

    def __init__(self, host: QuietHost) -> None:
        self.host = host
        self.violations: list[Violation] = []
        self.writes = 0
        self._told = api.Vms()
        self._had: dict[object, tuple[str, Mapping[Cache, int]]] = {}
        """The groups that gave VMs something before the passes of one event, and their ways, by the VM's process."""
        self._agent: object = None
        """The agent that began the pass."""
        self._judge = Writes(host.troubled.hardware, host.vms.values, lambda: host.meddled)
        self._judge.foreign = host.foreign
        host.troubled.after = self.after
        host.before_pass = self.before_pass
        host.on_pass = self.after_pass
        host.on_begun = self.after_begin
        host.on_touch = self.touch

    def touch(self, vm: PlayedVm | None) -> None:
        """Something happened to a VM, or to all of them: its promise is not known to be in force any more."""
        for one in [vm] if vm is not None else self.host.vms.values():
            one.in_force, one.is_touched = False, True

    # After each write.

    def after(self, operation: str, path: str, data: str) -> None:
        """Look at all promises that are in force, and at the tasks that were moved."""
        self.writes += 1
        self.violations += [Violation(Kind.OVERLAP, text) for text in self._judge.after(operation, path, data)]

    # After each early start.

    def after_begin(self, vm: PlayedVm) -> None:
        """Look at the group of a VM that was moved there before it runs: it must have what the pass will find.

        If a pass has found since the group was made that a cache which has come online has no ways left for it, the
        group has the default group's mask there. That is nobody's own, and no other VM's ways are in it.
        """
        groups = self.host.troubled.groups()
        own = groups.get(vm.group)
        if own is None or vm.pid not in own.tasks or not vm.is_exclusive:
            return
        if vm.is_incoming and self.host.incoming_memory == DEFAULT_GROUP:
            self._note(Kind.OVERLAP, f"{vm.group} has a task of a VM whose memory is yet to come", "at its start")
        if self.host.meddled or not self.host.last_pass_ended_well:
            return
        had_a_pass = self.host.passes > vm.passes_at_start
        for cache in self.host.troubled.reach(vm.promised_cpus()):
            mask = own.masks.get(cache, 0)
            if had_a_pass and mask == groups[""].masks.get(cache, 0):
                continue
            if mask.bit_count() != self._judge.asked(vm):
                text = f"{vm.group} has {mask:x} on {cache} and asks for {dict(vm.specs)}"
                self._note(Kind.OVERLAP, text, "at its start")

    # Before and after each pass.

    def before_pass(self) -> None:
        """Note which VMs have ways of their own or of a class where they can run, and are not told otherwise."""
        self._had, groups, rows = {}, self.host.troubled.groups(), self._rows()
        self._agent = self.host.agent
        for vm in self.host.vms.values():
            # Where a CLOSID has to be freed first, a VM gives its class up before its next group can be made.
            if not groups or len(groups) >= self._closids or vm.pid not in vm.promised_tasks():
                continue
            # An agent that was just started has told nothing yet.
            if not (name := self._place(vm)) or (vm.uuid in rows and rows[vm.uuid]["group"] != name):
                continue
            caches = self.host.troubled.reach(vm.promised_cpus())
            # What another program has made the default group's, too, is nobody's own.
            masks, shared = groups[name].masks, groups[""].masks
            own = any(masks.get(cache, 0) and not masks[cache] & shared.get(cache, 0) for cache in caches)
            # A class may have its limit of bandwidth on other caches only.
            if name.startswith(f"{CLASS_PREFIX}ways") or (name == vm.group and own):
                self._had[vm.process] = name, {cache: masks.get(cache, 0) for cache in caches}

    def after_pass(self) -> None:
        """Hold what the API tells against what is so."""
        for text in self.host.faults:
            self._note(Kind.FAULT, text, "in a pass")
        self.host.faults.clear()
        untold, self._judge.untold = self._judge.untold, {}
        without, self._judge.without = self._judge.without, {}
        if self.host.meddled or not self.host.last_pass_ended_well or not self.host.troubled.machine.is_mounted:
            return
        groups, rows = self.host.troubled.groups(), self._rows()
        for uuid, text in untold.items():
            # An agent that was killed before the end of its pass tells nothing; what a later step mended is not told.
            row, vm = rows.get(uuid), self.host.vms.get(uuid)
            if vm is None or vm.group not in groups or not any(self._judge.sharing(vm, groups)):
                continue
            # A VM that lacks something else, too, has the code of what is weightier.
            if row is not None and (row["state"] == "kept" or "ways of this VM" not in row["reason"]):
                self._note(Kind.OVERLAP, text, f"and {row['state']} was told")
        for uuid, text in without.items():
            if uuid in rows and rows[uuid]["state"] == "kept":
                self._note(Kind.OVERLAP, text, "and kept was told")
        for vm in self.host.vms.values():
            row = rows.get(vm.uuid)
            if row is None or row["pid"] != vm.process.pid or vm.is_touched:
                continue
            wrong = self._wrong(vm, row, groups)
            self._note(Kind.WORD, wrong, f"told {row['state']} after a pass")
            had, masks = self._had.get(vm.process, ("", {}))
            is_refused = row["state"] == "pending" and row["reason_code"] == "refused"
            is_known = self._agent is self.host.agent and vm.wants is not None
            if had and is_known and is_refused and not self._place(vm):
                # It asks for something still, so it keeps what it has until it has something else. Where a second step
                # is refused before the ways that the steps before the first one took are given back, it has none.
                is_there = had in groups and all(groups[had].masks.get(cache) == mask for cache, mask in masks.items())
                if is_there or self.host.refusals <= 1:
                    self._note(Kind.UNSERVED, f"{vm.group} has lost what it had in {had}", row["reason"])
            if (
                row["state"] == "kept"
                and vm.is_exclusive
                and self._knows(vm, row)
                and not wrong
                and not self._judge.broken(vm, groups)
            ):
                vm.in_force = True

    def _place(self, vm: PlayedVm) -> str:
        """The group of ours in which a VM is; empty where it is in none."""
        name = self.host.troubled.group_of(vm.pid)
        return name if name.startswith(PREFIX) else ""

    def _knows(self, vm: PlayedVm, row: Any) -> bool:
        """Whether the agent knows what the VM is to have now: libvirt may not have told it yet."""
        wants = vm.wants
        if wants is None:
            return False
        vcpus = None if wants.vcpus is None else cpu_spec.show(wants.vcpus)
        told = row["ways_requested"], row["vcpus_requested"], row["l2_ways_requested"], row["bandwidth_requested"]
        known = self.host.agent.snapshot.vms[vm.uuid].observed.vm.waiting_vcpus
        asked = wants.l3_ways or None, vcpus, wants.l2_ways, wants.bandwidth_percent
        return bool(told == asked and known == vm.waiting)

    def _rows(self) -> dict[str, Any]:
        return {row["uuid"]: row for row in self._told.told(self.host.agent.snapshot)}

    def _wrong(self, vm: PlayedVm, row: Any, groups: dict[str, Seen]) -> str:
        """What of the API's words on a VM is not so; empty where all is."""
        state, name = row["state"], row["group"]
        if state in ("pending", "degraded") and not (row["reason"] and row["reason_code"]):
            return f"{vm.group} is {state} without a reason"
        if text := self._wrongly_counted(vm, row, groups):
            return text
        own, is_kept = groups.get(name), state == "kept" and self._knows(vm, row)
        if is_kept and (own is None or not name):
            return f"{vm.group} is told to have all that it was promised, and to be in no group"
        if own is None:
            return f"{vm.group} is told to be in {name}, which is not there" if row["masks"] else ""
        for level, told in ((3, row["masks"]), (2, row["l2_masks"])):
            for number, mask in told.items():
                if own.masks.get((level, int(number))) != int(mask, 16):
                    return f"{name} is told to have {mask} on L{level} {number} and has {own.masks}"
        for use, told in (("CODE", row["code_masks"]), ("DATA", row["data_masks"])):
            for number, mask in told.items():
                parts = own.parts.get((3, int(number)), {})
                if parts.get(use) != int(mask, 16):
                    return f"{name} is told to have {mask} for {use} and has {parts}"
        if not is_kept:
            return ""
        if vm.is_exclusive and {int(mask, 16).bit_count() for mask in row["masks"].values()} - {self._judge.asked(vm)}:
            return f"{name} is told to have all that it was promised, {self._judge.asked(vm)} ways, and {row['masks']}"
        missing = {tid for tid in vm.promised_tasks() if self.host.troubled.group_of(tid) != name}
        if missing & vm.promised_tasks():
            return f"{len(missing)} tasks of {vm.group} are not in {name}: {sorted(missing)}"
        if name == vm.group:
            own_masks = {(3, number): text for number, text in row["masks"].items()}
            own_masks |= {(2, number): text for number, text in row["l2_masks"].items()}
            for (level, number), text in own_masks.items():
                mask = int(text, 16)
                for other, seen in groups.items():
                    if other != name and seen.masks.get((level, int(number)), 0) & mask:
                        return f"{name} has {text} on L{level} {number}, and {other or 'the default group'} has it too"
        return ""

    def _wrongly_counted(self, vm: PlayedVm, row: Any, groups: dict[str, Seen]) -> str:
        """What of the API's words on a VM's monitoring group is not so."""
        told = row["monitoring_group"]
        if told is None:
            has_reason = row["unmonitored_reason"] or row["group"] == vm.group or vm.has_cachetune
            return "" if has_reason else f"{vm.group} has no monitoring group, and no reason is told"
        control, _, name = told.removeprefix("mon_groups/").rpartition("/mon_groups/")
        if control not in groups or name not in groups[control].monitoring:
            return f"{vm.group} is told to be counted by {told}, which is not there"
        return ""

    # Once all is quiet.

    def unsettled(self) -> list[Violation]:
        """What is not yet as it should be on a quiet host."""
        found = list[Violation]()
        host, rows, groups = self.host, self._rows(), self.host.troubled.groups()
        for uuid, why in host.agent.health.unserved.items():
            found.append(Violation(Kind.UNSERVED, f"{uuid}: {why}"))
        if not host.last_pass_ended_well:
            found.append(Violation(Kind.UNSERVED, f"passes fail: {host.agent.health.last_error}"))
        for vm in host.vms.values():
            row = rows.get(vm.uuid)
            text = f"{vm.group} is not told of" if row is None else self._unserved(vm, row, rows, groups)
            if text:
                found.append(Violation(Kind.UNSERVED, text))
        for uuid in rows.keys() - host.vms.keys():
            found.append(Violation(Kind.WORD, f"{uuid} is told of, and has ended"))
        found += [Violation(Kind.LEAK, text) for text in self._leaked(rows, groups)]
        return found

    def _unserved(self, vm: PlayedVm, row: Any, rows: dict[str, Any], groups: dict[str, Seen]) -> str:
        state, code, name = row["state"], row["reason_code"], row["group"]
        if row["pid"] != vm.process.pid:
            return f"{vm.group} is told with the process of an earlier one"
        if vm.has_cachetune:
            return ""
        elsewhere = {tid for tid in vm.promised_tasks() if self.host.troubled.group_of(tid) != name}
        if elsewhere & vm.promised_tasks() and code != "foreign-tasks":
            return f"{len(elsewhere)} tasks of {vm.group} are not in {name or 'the default group'}"
        wants = vm.wants
        if wants is None:
            return "" if state in ("none", "degraded") else f"{vm.group} is {state} and asks for nothing"
        if state == "none":
            return f"{vm.group} asks for {dict(vm.specs)} and is told to ask for nothing"
        if not self._knows(vm, row) and code != "no-vcpu":
            return f"{vm.group} asks for {dict(vm.specs)} and is told to ask for {row['ways_requested']} ways"
        if state == "kept":
            if vm.is_exclusive:
                return self._judge.broken(vm, groups)
            if wants.policy is CachePolicy.SHARED and wants.ways and not name.startswith(CLASS_PREFIX):
                return f"{vm.group} asks for a class and is in {name}"
            return ""
        text = f"{vm.group} asks for {dict(vm.specs)} and is {state}: {row['reason']}"
        if code not in LASTING:
            return text if not self._lacks_rmids(code) else ""
        if code == "no-closid" and len(groups) < self._closids:
            return f"{text}; {len(groups)} of {self._closids} CLOSIDs are used"
        if code == "no-ways" and self._fits(vm, rows, groups):
            return f"{text}; but there is room: { {name: seen.masks for name, seen in groups.items()} }"
        return ""

    @property
    def _closids(self) -> int:
        policy = self.host.policy
        return self.host.troubled.machine.mounted.closids - ("shared_classes" in policy)

    def _lacks_rmids(self, code: str) -> bool:
        """Whether a refusal of the kernel is for want of an RMID."""
        return code in ("refused", "other") and not self.host.troubled.machine.hardware.rmids.free

    def _fits(self, vm: PlayedVm, rows: dict[str, Any], groups: dict[str, Seen]) -> bool:
        """Whether an exclusive VM surely fits: the free ways suffice in number wherever it can run (rule 5).

        Where other VMs wait too, or other programs have ways that cut the rest into pieces, this is not sure.
        """
        host = self.host
        l3 = host.troubled.machine.hardware.profile.l3
        others = [row for uuid, row in rows.items() if uuid != vm.uuid]
        foreign = [name for name in groups if name and not name.startswith(PREFIX)]
        if not vm.is_exclusive or l3 is None or foreign or any(row["state"] not in ("kept", "none") for row in others):
            return False
        caps = [other.wants.ways or 0 for other in host.vms.values() if other.wants and not other.is_exclusive]
        pool = max([3 if "default_ways_min" in host.policy else 2, *caps])
        for cache in host.troubled.reach(vm.promised_cpus()):
            owners = [one for one in self._owners(rows, groups, cache) if one is not vm]
            taken = sum(groups[one.group].masks[cache].bit_count() for one in owners)
            if l3.ways - l3.shareable_bits.bit_count() - taken - pool < self._judge.asked(vm):
                return False
        return bool(host.troubled.reach(vm.promised_cpus()))

    def _owners(self, rows: dict[str, Any], groups: dict[str, Seen], cache: Cache) -> list[PlayedVm]:
        return [
            vm
            for vm in self.host.vms.values()
            if vm.group in groups and str(cache[1]) in rows.get(vm.uuid, {}).get("masks", {})
        ]

    def _leaked(self, rows: dict[str, Any], groups: dict[str, Seen]) -> Iterator[str]:
        """Groups of ours that no VM needs."""
        needed = {row["group"] for uuid, row in rows.items() if uuid in self.host.vms}
        for name, seen in groups.items():
            if name.startswith(PREFIX) and name not in needed:
                yield f"the group {name} is left"
            if name and not name.startswith(PREFIX):
                continue
            for child in seen.monitoring:
                uuid = child.removeprefix(PREFIX)
                if child.startswith(PREFIX) and uuid not in self.host.vms:
                    yield f"the monitoring group {child} is left in {name or 'the default group'}"

    def _note(self, kind: Kind, text: str, at: str) -> None:
        if text:
            self.violations.append(Violation(kind, f"{text} ({at})"))
