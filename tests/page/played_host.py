# SPDX-License-Identifier: Apache-2.0
"""A host that a test makes up: what the agent's API would answer, to be put behind the page's real application."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.page.played_counters import FIRST_PID, WAY, PlayedCounters
from tests.unit.local_api import examples
from vmqos.agent.serve.api import KNOWN_SERIES
from vmqos.daemon.bounded_server import BoundedServer
from vmqos.gateway.page import Site

COLUMNS = "/v1/telemetry/columns"

QUIET = {"time": 1794000000.0, "interval": 1.0, "samples": 90, "counted": False, "vms": [], "pairs": []}
"""No VM slows another."""


@dataclass
class PlayedHost(PlayedCounters):
    """A machine with L3 caches of 11 ways, each VM on all of them.

    :ivar l2_caches: how many L2 caches of 8 ways can be partitioned.
    :ivar cdp: whether code and data have masks of their own.
    :ivar bandwidth_unit: what limits of memory bandwidth are told in; ``None`` without such.
    :ivar locks: pseudo-locked ways of each L3, by the name of their group.
    :ivar broken: paths that are answered by an error, with its status and text.
    :ivar asked: the paths that were asked for.
    :ivar measured: the last bandwidth of a VM that waits for hardware counters, by UUID.
    :ivar ages: seconds since the last look at the VMs, the last pass and the last look at the counters.
    :ivar stale: which of these ages are too great, as the agent judges.
    :ivar unmonitored: the UUIDs of the VMs that no group counts.
    :ivar unserved: why a VM is not served yet, by UUID.
    :ivar events: what changed, the oldest first; ``None`` for an agent that does not tell.
    :ivar neighbours: who slows whom; ``None`` for an agent that does not judge.
    :ivar sizes: what was found of how many ways VMs need; ``None`` for an agent that does not remember it.
    :ivar epoch: which run of the agent that is.
    :ivar names_revisions: whether its health says that something has changed.
    :ivar tells_columns: whether it tells its looks as columns, too.
    :ivar counter_share: the share of their time for which VMs have the processor's counters.
    :ivar held: bytes that a VM holds of each cache, by UUID and cache, where that is not an even share.
    """

    caches: int = 2
    ways: int = 11
    l2_caches: int = 0
    cdp: bool = False
    bandwidth_unit: str | None = None
    locks: dict[str, int] = field(default_factory=dict)
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    measured: dict[str, dict[str, Any]] = field(default_factory=dict)
    ages: dict[str, float | None] = field(default_factory=lambda: {"vms": 0.3, "pass": 0.3, "counters": 0.8})
    stale: list[str] = field(default_factory=list)
    unserved: dict[str, str] = field(default_factory=dict)
    unmonitored: set[str] = field(default_factory=set)
    events: list[dict[str, Any]] | None = field(default_factory=list)
    neighbours: dict[str, Any] | None = field(default_factory=lambda: dict(QUIET))
    sizes: list[dict[str, Any]] | None = field(default_factory=list)
    epoch: str = "first"
    names_revisions: bool = True
    tells_columns: bool = True
    counter_share: float = 1.0
    held: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, name: str, ways: int = 0, policy: str = "exclusive", **changes: Any) -> dict[str, Any]:
        """A VM; an exclusive one takes the lowest ways that are free."""
        identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{len(self.vms)}.{name[:40]}"))
        group, masks = "", {}
        if ways and policy == "exclusive":
            lowest = sum(vm["ways_requested"] or 0 for vm in self.vms if vm["masks"] and vm["policy"] == "exclusive")
            group, mask = f"vmqos.{identity}", ((1 << ways) - 1) << lowest
        elif ways:
            group, mask = f"vmqos.shared-ways{ways}", ((1 << ways) - 1) << (self.ways - ways - 1)
        if ways:
            masks = {str(cache): f"{mask:x}" for cache in range(self.caches)}
        vm = {
            "uuid": identity,
            "name": f"instance-{len(self.vms) + 1:08x}",
            "instance_name": name,
            "flavor": f"c2.cache{ways}" if ways else "m1.small",
            "project": "8d1f2ad9c0de4b6b8d1f2ad9c0de4b6b",
            "state": "kept" if ways else "none",
            "reason": "",
            "policy": policy if ways or changes.get("ways_requested") else None,
            "ways_requested": ways or None,
            "masks": masks,
            "group": group,
            "monitoring_group": None if policy == "exclusive" and ways else f"mon_groups/vmqos.{identity}",
            "unmonitored_reason": "",
            "tasks": 9,
            "tasks_in_place": 9,
            "pid": FIRST_PID + len(self.vms),
            "caches": list(range(self.caches)),
            "outside_at_start": 0.0004,
            "outside_later": 0.0,
            "since": time.time() - 4000,
            "last_error": None,
            "retry_in": None,
        } | changes
        self.vms.append(vm)
        return vm

    def size(self, vm: dict[str, Any], curve: dict[int, float], ways: int, ago: float = 0.0, **changes: Any) -> None:
        """``vmqos size`` found how many ways a VM needs, so many seconds ago.

        :param curve: what it missed, or moved, by ways.
        """
        assert self.sizes is not None
        size = {"uuid": vm["uuid"], "found_at": time.time() - ago, "ways": ways, "at_least": False}
        size |= {"counted": True, "steady": True} | changes
        parts = ("missed", "traffic_part") if size["counted"] else ("traffic_part", "missed")
        least = min(curve.values())
        size["curve"] = [
            dict(zip(parts, (part, None), strict=True))
            | {"ways": number, "slower": (1 + part) / (1 + least) if size["counted"] else None}
            for number, part in curve.items()
        ]
        self.sizes.append(size | changes)

    def named(self, name: str) -> dict[str, Any]:
        """The VM that has this name."""
        return next(vm for vm in self.vms if vm["instance_name"] == name)

    def remove(self, vm: dict[str, Any]) -> None:
        """The VM ends."""
        self.vms.remove(vm)

    def happen(self, vm: dict[str, Any], state: str, before: str, ago: float = 0.0, **changes: Any) -> None:
        """The state of a VM's promise has changed, so many seconds ago."""
        assert self.events is not None
        event = {
            "number": len(self.events) + 1,
            "time": time.time() - ago,
            "kind": "promise",
            "uuid": vm["uuid"],
            "name": vm["instance_name"] or vm["name"],
            "state": state,
            "before": before,
            "reason": "",
            "reason_code": "",
        }
        self.events.append(event | changes)

    def serve(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        """WSGI, as the agent's API."""
        path = environ["PATH_INFO"]
        self.asked.append(path)
        status, body = "200 OK", self._answer(path, parse_qs(environ.get("QUERY_STRING", "")))
        # An agent that does not know of hardware events knows of no columns.
        broken = "/v1/telemetry/hardware-events" if path == COLUMNS else path
        if broken in self.broken:
            status, text = self.broken[broken]
            body = {"error": text}
        elif body is None:
            status, body = "404 Not Found", {"error": "there is nothing here"}
        content = json.dumps(body).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [content]

    def _answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/v1/vms":
            return {"vms": self.vms, "age_seconds": self.ages["vms"]}
        if path == "/v1/caches":
            return {
                "caches": [self._cache(cache) for cache in range(self.caches)],
                "l2_caches": [self._l2_cache(cache) for cache in range(self.l2_caches)],
            }
        if path == "/v1/capabilities":
            unit = {"%": "percent", "MB/s": "1/8 GB/s"}.get(self.bandwidth_unit or "")
            return {
                "num_closids": 16,
                "caches": {},
                "bandwidths": {"MB": {"unit": unit, "bandwidth_gran": 10 if unit == "percent" else 1}} if unit else {},
                "monitoring": {"num_rmids": 224, "events": []},
                "mount_options": ["cdp"] if self.cdp else [],
            }
        if path == "/v1/health":
            return self._health()
        if path == "/v1/telemetry":
            now = float(int(time.time()))
            vms = {vm["uuid"]: self._reading(vm, now) for vm in self.vms if vm["uuid"] not in self.unmonitored}
            rmids = (
                1 + len(self.vms) + len({vm["group"] for vm in self.vms if vm["policy"] == "shared" and vm["masks"]})
            )
            every = {str(cache): self.ways for cache in range(self.caches)}
            sizes = {cache: ways * WAY for cache, ways in every.items()}
            told = {"rmids_used": rmids, "ways": every, "cache_bytes": sizes, "caches": self._rest(vms)}
            return {"taken_at": now, "interval": 1.0, "vms": vms, "host": told, "age_seconds": self.ages["counters"]}
        if path == "/v1/telemetry/hardware-events":
            return self._hardware_events()
        if path == COLUMNS and self.tells_columns:
            return self._columns(query.get("basis", [""])[0])
        if path == "/v1/neighbours" and self.neighbours is not None:
            return self.neighbours
        if path == "/v1/sizes" and self.sizes is not None:
            return {"sizes": self.sizes}
        if path == "/v1/events" and self.events is not None:
            known = int(query["after"][0]) if query.get("epoch", [self.epoch]) == [self.epoch] else 0
            news = [event for event in self.events if event["number"] > known]
            return {"epoch": self.epoch, "first": 1, "last": len(self.events), "events": news}
        if path == "/v1/telemetry/history" and "resolution" in query and self.minutes is not None:
            assert query["resolution"] == ["60"]
            return self._minutes(float(query["seconds"][0]), query["vm"])
        if path == "/v1/telemetry/history":
            seconds, uuids = min(self.remembers, int(query["seconds"][0])), query.get("vm")
            return self._history(seconds, uuids, query.get("series", KNOWN_SERIES))
        return None

    def _health(self) -> Any:
        states = [vm["state"] for vm in self.vms]
        told = examples.health() | {
            "status": "degraded" if self.stale or self.unserved else "ok",
            "ages": self.ages,
            "stale": self.stale,
            "unserved": self.unserved,
            "hostname": "compute-7",
            "version": "1.4.0",
            "uptime_seconds": 93784.0,
            "passes": 93000,
            "last_pass_ms": 4.2,
            "vms": {state: states.count(state) for state in ("kept", "pending", "degraded", "none")},
        }
        if not self.names_revisions:
            del told["revision"], told["last_event"]
            return told
        state = [self._answer(path, {}) for path in ("/v1/vms", "/v1/caches", "/v1/capabilities")]
        known = hashlib.sha256(json.dumps(state).encode()).hexdigest()
        last_event = f"{self.epoch}.{len(self.events or ())}"
        return told | {"revision": f"{self.epoch}.{known}", "last_event": last_event}

    def _cache(self, cache: int) -> Any:
        locked = sum(self.locks.values())
        groups = [
            self._group(name, "foreign", mask, cache, {}, mode="pseudo-locked") for name, mask in self.locks.items()
        ]
        return self._told(cache, self.ways, "masks", groups, locked) | {
            "resource": "L3",
            "shareable_bits": f"{3 << (self.ways - 2):x}",
            "cpus": f"{cache * 16}-{cache * 16 + 15}",
            "bandwidth_unit": self.bandwidth_unit,
        }

    def _l2_cache(self, cache: int) -> Any:
        return self._told(cache, 8, "l2_masks", [], 0) | {"resource": "L2", "cpus": f"{2 * cache}-{2 * cache + 1}"}

    def _told(self, cache: int, ways: int, field: str, groups: list[dict[str, Any]], locked: int) -> dict[str, Any]:
        """One cache with the groups of the VMs, each with its masks of that field."""
        every, held = (1 << ways) - 1, locked
        exclusive = [vm for vm in self.vms if vm["group"] and vm["policy"] != "shared"]
        for vm in exclusive:
            held |= int(vm.get(field, {}).get(str(cache), "0"), 16)
        rest = every & ~held
        for vm in self.vms:
            if vm["group"] and vm["group"] not in [group["name"] for group in groups]:
                mask = int(vm.get(field, {}).get(str(cache), f"{rest:x}"), 16)
                groups.append(self._group(vm["group"], "vm" if vm in exclusive else "class", mask, cache, vm))
        groups.insert(0, self._group("", "default", rest, cache, {}))
        free = max(0, ways - held.bit_count() - 4)
        return {
            "id": cache,
            "cbm_mask": f"{every:x}",
            "ways": ways,
            "way_bytes": WAY,
            "size_bytes": WAY * ways,
            "shareable_bits": "0",
            "reserved": "0",
            "free_ways": free,
            "largest_free_run": free,
            "bandwidth_unit": None,
            "groups": groups,
        }

    def _group(
        self, name: str, owner: str, mask: int, cache: int, vm: dict[str, Any], mode: str = "shareable"
    ) -> dict[str, Any]:
        parts = [vm.get(field, {}).get(str(cache), f"{mask:x}") for field in ("code_masks", "data_masks")]
        return {
            "name": name,
            "owner": owner,
            "mask": f"{mask:x}",
            "code_mask": parts[0] if self.cdp else None,
            "data_mask": parts[1] if self.cdp else None,
            "bandwidth": vm.get("bandwidth", {}).get(str(cache)),
            "mode": mode,
            "vm": vm["uuid"] if owner == "vm" else None,
            "vm_name": vm["instance_name"] if owner == "vm" else None,
        }

    def _reading(self, vm: dict[str, Any], now: float) -> Any:
        occupancy, total, local = self._played(vm, now)
        held = self.held.get(vm["uuid"], {})
        occupancy = sum(held.values()) if held else occupancy
        share = {"llc_occupancy": occupancy // self.caches, "mbm_total_bytes": 10**12, "mbm_local_bytes": 10**11}
        missing = self.missing.get(vm["uuid"], {})
        share = {event: None if event in missing else value for event, value in share.items()}
        unknown = "mbm_total_bytes" in missing
        return {
            "group": vm["group"],
            "policy": vm["policy"],
            "ways": {cache: int(mask, 16).bit_count() for cache, mask in vm["masks"].items()},
            "allocated_bytes": self._allocated(vm),
            "caches": {
                cache: share | ({"llc_occupancy": held[cache]} if held else {})
                for cache in map(str, range(self.caches))
            },
            "totals": share | {"llc_occupancy": None if "llc_occupancy" in missing else occupancy},
            "missing": missing,
            "rates_missing": dict.fromkeys(("total", "local", "remote"), missing["mbm_total_bytes"]) if unknown else {},
            "rates": {"total": None, "local": None, "remote": None}
            if unknown
            else {"total": total, "local": local, "remote": total - local},
            **({"measured": self.measured[vm["uuid"]]} if vm["uuid"] in self.measured else {}),
            "package_rates": self._in_packages(vm, now) if self.packages else {},
        }

    def _rest(self, readings: dict[str, Any]) -> dict[str, Any]:
        """What the default group holds of each cache: its VMs, and a way of the host itself."""
        held = sum(
            reading["caches"]["0"]["llc_occupancy"] or 0 for reading in readings.values() if not reading["group"]
        )
        return {str(cache): {"llc_occupancy": WAY + held} for cache in range(self.caches)}

    def _columns(self, basis: str) -> Any:
        """What both looks have, as columns where all of a VM's numbers are known."""
        telemetry, hardware = self._answer("/v1/telemetry", {}), dict(self._hardware_events())
        whole, apart = {}, {}
        for identity, vm in telemetry.pop("vms").items():
            is_apart = vm["missing"] or vm["package_rates"] or "measured" in vm
            (apart if is_apart else whole)[identity] = vm
        changing = ("caches", "totals", "rates", "rates_missing", "package_rates")
        executed = hardware.pop("vms")
        counted = {identity: vm for identity, vm in executed.items() if not vm["reason"]}
        same = {
            "counters": {
                identity: {name: value for name, value in vm.items() if name not in changing}
                for identity, vm in whole.items()
            },
            "hardware_events": list(counted),
        }
        name = f"{self.epoch}.{hashlib.sha256(json.dumps(same).encode()).hexdigest()}"
        held = {
            str(cache): [vm["caches"][str(cache)]["llc_occupancy"] for vm in whole.values()]
            for cache in range(self.caches)
        }
        rates = {of: [round(vm["rates"][of]) for vm in whole.values()] for of in ("total", "local", "remote")}
        events = next(iter(counted.values()))["rates"] if counted else {}
        columns = {event: [round(vm["rates"][event]) for vm in counted.values()] for event in events}
        columns["share"] = [vm["share"] for vm in counted.values()]
        told = {
            "basis": name,
            "counters": telemetry | {"columns": {"held": held, **rates}, "apart": apart},
            "hardware_events": hardware
            | {"columns": columns, "apart": {one: vm for one, vm in executed.items() if one not in counted}},
        }
        if "/v1/telemetry" in self.broken:
            told["error"] = self.broken["/v1/telemetry"][1]
            del told["counters"]
        return told if name == basis else told | {"same": same}

    def _hardware_events(self) -> Any:
        now = time.time()
        told = {} if self.unavailable else {vm["uuid"]: self._counts(vm, now) for vm in self.vms}
        return {"taken_at": now, "interval": 1.0, "age_seconds": 0.4, "unavailable": self.unavailable, "vms": told}

    def _counts(self, vm: dict[str, Any], now: float) -> Any:
        reason = self.uncounted.get(vm["uuid"], "")
        rates = self._executed(vm, now)
        nothing = dict.fromkeys(rates)
        return {
            "since": None if reason else now - 900,
            "counts": nothing if reason else {name: int(900 * value) for name, value in rates.items()},
            "rates": nothing if reason else rates,
            "share": None if reason else self.counter_share,
            "reason": reason,
            "reason_code": "refused" if reason else "",
        }


@contextlib.contextmanager
def serving(host: PlayedHost, port: int = 0) -> Iterator[int]:
    """Serve the page of a host on loopback while the block runs; the port."""
    server = BoundedServer(Site(host.serve), "page", host="127.0.0.1", port=port)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
