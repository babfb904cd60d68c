# SPDX-License-Identifier: Apache-2.0
"""The local HTTP API: JSON over Unix sockets. It changes nothing, but for three things.

The gateway alone may tell a flavor, on its own socket. Root alone may have something tried on a VM for some time, and
tell what came of it, which is remembered to be looked at.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec

from vmqos import extra_specs
from vmqos.agent.loop import Agent
from vmqos.agent.observe.told_flavors import Found
from vmqos.agent.sample.hardware_counts import HardwareCounts
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.minutes import MINUTE
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve import caches, capacity, counters, hardware_report, health_report, trials, vms
from vmqos.agent.serve.columns import Columns
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.serve.neighbours import Neighbours
from vmqos.agent.serve.sizes import BadSize, OtherRun, Sizes
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.trial import TrialRefused, untried
from vmqos.allocation import Policy, Request
from vmqos.daemon import bounded_server
from vmqos.extra_specs import CacheRequest
from vmqos.host import describe
from vmqos.host.resctrl_state import ResctrlState
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.visible_text import neutralise

FLAVORS = "/v1/flavors/"
TRIALS = "/v1/trials/"
SIZES = "/v1/sizes"

FLAVOR_PARAMETERS = ("spec", "error", "process")
APART = (extra_specs.CODE_WAYS, extra_specs.DATA_WAYS)
TRIED = (extra_specs.WAYS, *APART, extra_specs.BANDWIDTH_PERCENT, extra_specs.BANDWIDTH_MBPS)
"""What may be tried on a VM."""
TRIAL_PARAMETERS = ("key", *(key.name for key in TRIED), contract.MAY_FILL_FEWER, contract.CONFINE)
SIZE_PARAMETERS = ("pid", "ways", "at_least", "counted", "steady", "part", "curve")

NOT_LISTED = "libvirt has not told yet which VMs run, so what they leave to another one is not known"
"""Why nothing is planned for a client."""

LONGEST_KEY = 64
"""Characters of a client's name for a trial."""

ERROR_MOST = 500
"""Characters of what the gateway says why a flavor is not known."""

LOCK_PATIENCE = 1.5
"""Seconds to wait for resctrl's lock: less than :data:`vmqos.agent.serve.live_reads.PATIENCE`, so that the error names
who holds it."""

LONGEST_WAIT = 8.0
"""Seconds that a client waits for an event: less than :data:`vmqos.local_api.client.TIMEOUT`."""

WAITERS = 2
"""Clients of a socket that wait for events at a time: half of its threads, so that the others answer meanwhile."""

LONGEST_OF_ALL = 3600.0
"""Seconds of minutes that are told of all VMs in one answer: up to 30 KB a VM."""

MOST_NAMED = 8
"""VMs of which a whole day of minutes is told in one answer: up to 0.68 MB a VM."""

_DECIMAL = re.compile(r"(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?")
"""A number of 0 or more. Python itself reads more: blanks around it, ``_`` in it, and the digits of every script."""

KNOWN_SERIES = (*SERIES, *EXECUTED, *PACKAGES)
"""What a history may have of a VM."""

StartResponse = Callable[[str, list[tuple[str, str]]], object]


class _Answer(Exception):
    """An answer other than 200."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """The WSGI application; it answers from the agent's last snapshot.

    Where the snapshot does not have what is asked for, resctrl is read: by one thread, and for a bounded time.

    :param agent: the agent to tell about.
    :param telemetry: the host's counters.
    :param live: reads resctrl.
    :param gateways: UIDs of the users who may ask what OpenStack is to know, and may tell the flavors that the agent
        wants; none on the socket that is open to others.
    :param hardware: what the VMs' tasks execute.
    :param neighbours: who slows whom.
    :param triers: UIDs of the users who may have something tried on a VM, and tell how many ways it needs; none on the
        gateway's socket.
    :param sizes: how many ways VMs need.
    """

    def __init__(
        self,
        agent: Agent,
        telemetry: Telemetry,
        live: LiveReads,
        gateways: Collection[int] = frozenset(),
        hardware: HardwareCounts | None = None,
        neighbours: Neighbours | None = None,
        triers: Collection[int] = frozenset(),
        sizes: Sizes | None = None,
    ) -> None:
        self._agent = agent
        self._telemetry = telemetry
        self._live = live
        self._gateways = frozenset(map(bounded_server.user, gateways))
        self._triers = frozenset(map(bounded_server.user, triers))
        self._sizes = sizes
        self._told_counters = counters.Counters()
        self._columns = Columns(telemetry, self._told_counters, hardware)
        self._told_vms = vms.Vms()
        self._waits = threading.BoundedSemaphore(WAITERS)
        self._known_capacity: tuple[tuple[ResctrlState, Policy, Sequence[Request]], contract.Capacity] | None = None
        self._routes: dict[str, Callable[[dict[str, list[str]]], Any]] = {
            "/v1/vms": lambda query: self._vms(),
            "/v1/caches": lambda query: self._caches(),
            "/v1/capabilities": self._capabilities,
            "/v1/groups": lambda query: self._groups(),
            contract.HEALTH: lambda query: health_report.health(agent, telemetry),
            "/v1/plan": self._plan,
            "/v1/telemetry": self._counters,
            "/v1/telemetry/columns": lambda query: self._columns.told(query.get("basis", [""])[-1]),
            "/v1/telemetry/history": self._history,
            "/v1/events": self._events,
        }
        if hardware is not None:
            self._routes["/v1/telemetry/hardware-events"] = lambda query: hardware_report.report(hardware, telemetry)
        if neighbours is not None:
            self._routes["/v1/neighbours"] = lambda query: neighbours.verdicts()
            self._routes["/v1/neighbours/samples"] = lambda query: neighbours.samples(_number("since", query, "0"))
        if sizes is not None:
            self._routes[SIZES] = lambda query: sizes.told()
        if gateways:
            self._routes["/v1/openstack"] = lambda query: self._openstack()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI (PEP 3333)."""
        status = "200 OK"
        try:
            body = self._answer(environ)
        except _Answer as answer:
            status, body = answer.status, {"error": str(answer)}
        except ResctrlError as error:
            status, body = "503 Service Unavailable", {"error": str(error)}
        content = _encoded(body)
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    def _answer(self, environ: dict[str, Any]) -> Any:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if self._gateways:
            client = environ["REMOTE_ADDR"]
            if client not in self._gateways:
                raise _Answer("403 Forbidden", f"this socket is the gateway's: {client} has no business here")
            if environ["REQUEST_METHOD"] == "PUT" and path.startswith(FLAVORS):
                return self._take_flavor(path.removeprefix(FLAVORS), environ.get("QUERY_STRING", ""))
        if self._triers and path.startswith(TRIALS):
            return self._trial(environ, path.removeprefix(TRIALS))
        if self._triers and environ["REQUEST_METHOD"] == "PUT" and path.startswith(f"{SIZES}/"):
            return self._take_size(environ, path.removeprefix(f"{SIZES}/"))
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise _Answer("405 Method Not Allowed", "here, this API only answers GET: nothing can be changed")
        route, query = self._routes.get(path), environ.get("QUERY_STRING", "")
        if route is not None:
            _only(query, contract.TAKEN_BY.get(path, ()))
            return route(parse_qs(query))
        if path.startswith("/v1/vms/"):
            _only(query, ())
            return self._vm(path.removeprefix("/v1/vms/"))
        known = ", ".join((*self._routes, "/v1/vms/<uuid>"))
        raise _Answer("404 Not Found", f"there is no {path[:80] or '/'} here, but {known}")

    def _vms(self) -> contract.Vms:
        health = self._agent.health
        found = self._told_vms.told(self._agent.snapshot)
        return {"vms": found, "age_seconds": health_report.oldest(health.looked_at, health.passed_at)}

    def _caches(self) -> contract.Caches:
        snapshot = self._agent.snapshot
        return {
            "caches": caches.caches(snapshot),
            "l2_caches": caches.l2_caches(snapshot),
            "age_seconds": health_report.age(self._agent.health.passed_at),
        }

    def _vm(self, uuid: str) -> contract.DetailedVm:
        agent, snapshot = self._agent, self._agent.snapshot
        try:
            found = vms.vm(snapshot, snapshot.vms[uuid])
            tasks = self._live.read(lambda: vms.task_list(snapshot, agent.filesystem, uuid, LOCK_PATIENCE))
        except KeyError as error:
            raise self._unknown(uuid) from error
        in_place = sum(task["in_place"] for task in tasks)
        return {**found, "tasks": len(tasks), "tasks_in_place": in_place, "task_list": tasks}

    def _unknown(self, uuid: str) -> _Answer:
        """Why nothing is told of a VM."""
        health = self._agent.health
        if why := health.unserved.get(uuid):
            return _Answer("404 Not Found", f"VM {uuid} runs, and is not served: {why}")
        if not health.looked:
            return _Answer("404 Not Found", f"whether VM {uuid[:80]} runs on this host is not known yet")
        return _Answer("404 Not Found", f"no VM {uuid[:80]} runs on this host")

    def _openstack(self) -> contract.OpenStack:
        return {
            "hypervisor_hostname": self._agent.hostname,
            "capacity": self._capacity(self._agent.snapshot),
            "flavors_wanted": self._agent.flavors.wanted(),
        }

    def _capacity(self, snapshot: Snapshot) -> contract.Capacity | None:
        """What the host can promise. It is asked for every second, and mostly nothing has changed since."""
        if snapshot.resctrl is None:
            return None
        basis = snapshot.resctrl, snapshot.policy, snapshot.requests
        known = self._known_capacity
        if known is None or any(before is not now for before, now in zip(known[0], basis, strict=True)):
            found = capacity.of(snapshot.resctrl, snapshot.policy, untried(snapshot))
            known = self._known_capacity = basis, found
        return known[1]

    def _take_flavor(self, uuid: str, text: str) -> contract.Taken:
        _only(text, FLAVOR_PARAMETERS)
        query = parse_qs(text, keep_blank_values=True)
        specs = dict(spec.partition("=")[::2] for spec in query.get("spec", []))
        error = query.get("error", [""])[0][:ERROR_MOST]
        found = Found(None, neutralise(error)) if error else Found(specs)
        try:
            self._agent.flavors.tell(uuid, query.get("process", [""])[0], found)
        except LookupError as refusal:
            raise _Answer("404 Not Found", str(refusal)[:ERROR_MOST]) from refusal
        return {"uuid": uuid}

    def _trial(self, environ: dict[str, Any], uuid: str) -> contract.RunningTrial:
        """Begin a trial, ask for it again or give it back; what is told of it is in ``/v1/health``, too."""
        if (client := environ["REMOTE_ADDR"]) not in self._triers:
            raise _Answer("403 Forbidden", f"only root may have something tried on a VM, and {client} is not root")
        method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if method not in ("PUT", "DELETE"):
            raise _Answer("405 Method Not Allowed", "a trial is begun by PUT and given back by DELETE")
        _only(environ.get("QUERY_STRING", ""), TRIAL_PARAMETERS)
        key, running = query.get("key", [""])[-1], self._agent.trials
        if not 0 < len(key) <= LONGEST_KEY:
            raise _Answer(
                "400 Bad Request", f"key is to be this client's name for the trial: 1 to {LONGEST_KEY} characters"
            )
        try:
            if method == "DELETE":
                running.end(key)
            elif wants := _tried(query):
                fewer, confine = (_is_said(name, query, wants) for name in (contract.MAY_FILL_FEWER, contract.CONFINE))
                trials.begin(self._agent, key, uuid, wants, may_fill_fewer=fewer, confine=confine)
            else:
                running.renew(key)
        except KeyError as error:
            raise self._unknown(uuid) from error
        except TrialRefused as refusal:
            raise _Answer("409 Conflict", str(refusal)) from refusal
        return {"trial": trials.told(running), "left_bytes": trials.left_bytes(self._agent, uuid)}

    def _take_size(self, environ: dict[str, Any], uuid: str) -> contract.Taken:
        if (client := environ["REMOTE_ADDR"]) not in self._triers:
            raise _Answer("403 Forbidden", f"only root may tell how many ways a VM needs, and {client} is not root")
        if self._sizes is None:
            raise _Answer("404 Not Found", "how many ways VMs need is not remembered here")
        _only(environ.get("QUERY_STRING", ""), SIZE_PARAMETERS)
        try:
            self._sizes.take(uuid, parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True))
        except BadSize as error:
            raise _Answer("400 Bad Request", str(error)) from error
        except KeyError as error:
            raise self._unknown(uuid) from error
        except OtherRun as error:
            raise _Answer("404 Not Found", str(error)) from error
        return {"uuid": uuid}

    def _capabilities(self, query: dict[str, list[str]]) -> Any:
        resctrl = self._agent.snapshot.resctrl
        if resctrl is None:
            raise _Answer("503 Service Unavailable", self._agent.health.resctrl_error or "resctrl was not read yet")
        agent, known = self._agent, resctrl.capabilities
        return self._live.read(lambda: describe.capabilities(agent.filesystem, known, agent.resctrl.sysfs_cpu_path))

    def _groups(self) -> contract.Groups:
        filesystem = self._agent.filesystem
        found = self._live.read(lambda: describe.control_groups(filesystem, LOCK_PATIENCE))
        return {"groups": cast(list[contract.ControlGroup], found)}

    def _plan(self, query: dict[str, list[str]]) -> contract.Plan:
        specs: dict[str, str] = {}
        for spec in query.get("spec", []):
            key, separator, value = spec.partition("=")
            if not separator:
                raise _Answer("400 Bad Request", f"{spec!r} is no extra spec: write KEY=VALUE, such as hw:cache_ways=2")
            if key in specs:
                first = f"{key}={specs[key]}"
                text = f"{key!r} is given twice, as {first!r} and as {spec!r}: a flavor has one value for a key"
                raise _Answer("400 Bad Request", text)
            specs[key] = value
        parsed = extra_specs.parse(specs)
        if parsed.errors:
            raise _Answer("400 Bad Request", "; ".join(str(error) for error in parsed.errors))
        if parsed.request is None or not extra_specs.asks_for(parsed.request):
            text = "nothing is asked for: name hw:cache_ways=N, or another key for ways or memory bandwidth"
            raise _Answer("400 Bad Request", text)
        if self._agent.snapshot.resctrl is not None and not self._agent.health.looked:
            # To the planner, the groups of VMs that it is not asked for are those of VMs that have ended.
            raise _Answer("503 Service Unavailable", NOT_LISTED)
        try:
            return vms.what_if(self._agent.snapshot, parsed.request)
        except LookupError as error:
            raise _Answer("503 Service Unavailable", self._agent.health.resctrl_error or str(error)) from error

    def _counters(self, query: dict[str, list[str]]) -> contract.Telemetry:
        if query.get("newest") == ["1"]:
            # Bandwidths are known from one regular sweep to the next; here each is told as one that is not known.
            snapshot, found = self._telemetry.newest(), None
        else:
            snapshot, found = self._telemetry.sampled()
        last = counters.measured(self._telemetry.measured(), time.monotonic())
        told = self._told_counters.telemetry(snapshot, found, self._telemetry.interval, last)
        return {**told, "age_seconds": health_report.age(snapshot.monotonic)}

    def _events(self, query: dict[str, list[str]]) -> contract.Events:
        after, wait = _number("after", query, "0"), _number("wait", query, "0")
        log, epoch = self._agent.events, query.get("epoch", [""])[-1]
        if wait and self._waits.acquire(blocking=False):
            try:
                return log.after(int(after), epoch, min(wait, LONGEST_WAIT))
            finally:
                self._waits.release()
        return log.after(int(after), epoch)

    def _history(self, query: dict[str, list[str]]) -> contract.History | contract.HistoryOfMinutes:
        uuids = frozenset(query["vm"]) if "vm" in query else None
        if "resolution" in query:
            return self._minutes(query, uuids)
        past = self._telemetry.past(_number("seconds", query, "600"), uuids, _series(query))
        return counters.history(past, self._telemetry.interval)

    def _minutes(self, query: dict[str, list[str]], uuids: frozenset[str] | None) -> contract.HistoryOfMinutes:
        resolution, seconds = _number("resolution", query, ""), _number("seconds", query, "3600")
        if resolution != MINUTE:
            text = f"resolution={resolution:g} can't be: write {MINUTE}, or nothing for each look at the counters"
            raise _Answer("400 Bad Request", text)
        if seconds > LONGEST_OF_ALL and (uuids is None or len(uuids) > MOST_NAMED):
            text = f"more than {LONGEST_OF_ALL:g} seconds are told of {MOST_NAMED} VMs at most: name them with vm=UUID"
            raise _Answer("400 Bad Request", text)
        try:
            return counters.minutes(self._telemetry.minutes.copy(time.time() - seconds, uuids))
        except TimeoutError as error:
            text = f"what is older than an hour or two can't be told: {error.strerror}"
            raise _Answer("503 Service Unavailable", text) from error


def _encoded(body: object) -> bytes:
    """JSON. What 200 VMs answer takes json a millisecond, ten times as long as msgspec."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # A foreign group may have a name that is no UTF-8, which json writes as it is (RFC 8259, section 8.2).
        return json.dumps(body).encode()


def _only(query: str, known: Sequence[str]) -> None:
    """Refuse a parameter that is not known: one that is misspelt would be ignored."""
    if wrong := contract.unknown_parameter(query, known):
        raise _Answer("400 Bad Request", wrong)


def _series(query: dict[str, list[str]]) -> frozenset[str] | None:
    """The series that are asked for; all, if none is named."""
    if "series" not in query:
        return None
    for name in query["series"]:
        if name not in KNOWN_SERIES:
            raise _Answer("400 Bad Request", f"series={name[:40]!r} can't be: write one of {', '.join(KNOWN_SERIES)}")
    return frozenset(query["series"])


def _tried(query: dict[str, list[str]]) -> CacheRequest | None:
    """The ways, or the limit of bandwidth, that are to be tried; ``None`` where neither is named."""
    named = {key: query[key.name][-1] for key in TRIED if key.name in query}
    if not named:
        return None
    if len(named) > 1 and tuple(named) != APART:
        raise _Answer("400 Bad Request", f"name one of these alone: {' or '.join(key.name for key in named)}")
    if len(named) == 1 and (key := next(iter(named))) in APART:
        raise _Answer("400 Bad Request", f"{key.name} alone can't be: name {' and '.join(one.name for one in APART)}")
    for key, text in named.items():
        if not key.takes(text):
            raise _Answer("400 Bad Request", f"{key.name}={text[:20]!r} can't be: {key.allowed}")
    return CacheRequest(**{key.field: key.read(text) for key, text in named.items()})  # type: ignore[arg-type]


def _is_said(name: str, query: dict[str, list[str]], wants: CacheRequest) -> bool:
    """Whether the client says ``true`` to something that is about the ways that are tried."""
    text = query.get(name, ["false"])[-1]
    if text not in ("true", "false"):
        raise _Answer("400 Bad Request", f"{name}={text[:20]!r} can't be: true or false is allowed")
    if name in query and not wants.l3_ways:
        raise _Answer("400 Bad Request", f"{name} belongs to {extra_specs.WAYS.name}")
    return text == "true"


def _number(name: str, query: dict[str, list[str]], otherwise: str) -> float:
    """A parameter that is a number of 0 or more."""
    text = query.get(name, [otherwise])[-1]
    number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    if number == math.inf:
        raise _Answer("400 Bad Request", f"{name}={text[:20]!r} can't be: write a number of 0 or more")
    return number
