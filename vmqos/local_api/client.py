# SPDX-License-Identifier: Apache-2.0
"""Questions to the agent over its Unix socket."""

from __future__ import annotations

import contextlib
import errno
import grp
import http.client
import json
import os
import socket as sockets
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from vmqos.local_api import contract, exceptions
from vmqos.visible_text import neutralise

TIMEOUT = 10.0
"""Seconds to wait for an answer. The agent answers from memory; only a stuck one takes longer."""

LONGEST_ANSWER = 64 << 20
"""Bytes of an answer: a host of a thousand VMs with all their counters is told in some ten million."""

DEEPEST_ANSWER = 32
"""Lists and objects within each other; the agent's own answers have eight at most."""

BUSY_PAUSE = 0.01
"""Seconds until a full queue of connections is tried again. A connect with a time limit is refused at once there, with
``EAGAIN`` (``unix_stream_connect`` in net/unix/af_unix.c): Python has the socket not block."""

MOST_KEPT = 4
"""Connections that a client keeps, if it keeps any."""

_CHUNK = 1 << 16

_ABSENT = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENOTSOCK}


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket.

    :param path: the socket's.
    :param timeout: seconds that each step may take.
    """

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("vmqos-agent", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect.

        :raises OSError: if that fails.
        """
        self.sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class AgentClient:
    """The agent's API, one method a resource; every method may be called from any thread.

    Every method raises:

    :raises vmqos.local_api.exceptions.AgentNotRunning: if no process listens on the socket.
    :raises vmqos.local_api.exceptions.SocketForbidden: if the caller may not use it.
    :raises vmqos.local_api.exceptions.AgentTimeout: if no answer comes.
    :raises vmqos.local_api.exceptions.AgentHungUp: if the connection ends before the answer does.
    :raises vmqos.local_api.exceptions.AgentRefused: if the question is wrong; it carries the agent's text.
    :raises vmqos.local_api.exceptions.AgentFailed: if the agent can't answer; it carries the agent's text.
    :raises vmqos.local_api.exceptions.NotOurApi: if the answer is not what :mod:`vmqos.local_api.contract` says.

    :param socket: the path of the agent's Unix socket, or of the gateway's, which answers the same questions.
    :param timeout: seconds to wait for an answer.
    :param program: which program answers there, for the errors.
    :param named_by: what names the socket, such as an option, for the errors; empty for its usual place.
    :param keeps_connections: whether a connection is kept for later questions; else each question has its own.
    """

    socket: str
    timeout: float = TIMEOUT
    program: str = "vmqos-agent"
    keeps_connections: bool = False
    named_by: str = ""
    _kept: list[_Connection] = field(default_factory=list, init=False, repr=False, compare=False)

    def vms(self) -> list[contract.Vm]:
        """Every running VM, in the agent's order."""
        return cast(list[contract.Vm], self._one("/v1/vms", contract.Vms)["vms"])

    def vm(self, uuid: str) -> contract.DetailedVm:
        """One VM with its threads."""
        return cast(contract.DetailedVm, self._one(f"/v1/vms/{uuid}", contract.DetailedVm))

    def caches(self) -> list[contract.Cache]:
        """Every cache that can be partitioned and who may fill which of its ways: those of L3, then those of L2."""
        found = self._one("/v1/caches", contract.Caches)
        # An agent before these does not tell of L2 caches.
        return cast(list[contract.Cache], found["caches"] + found.get("l2_caches", []))

    def groups(self) -> list[contract.ControlGroup]:
        """Every control group: what it has, and who is in it."""
        return cast(list[contract.ControlGroup], self._one("/v1/groups", contract.Groups)["groups"])

    def capabilities(self) -> dict[str, Any]:
        """What resctrl offers on this host, as ``info/`` says."""
        return self._get("/v1/capabilities")

    def health(self) -> contract.Health:
        """How the agent fares."""
        return cast(contract.Health, self._one("/v1/health", contract.Health))

    def telemetry(self) -> contract.Telemetry:
        """The newest look at every VM's counters."""
        return cast(contract.Telemetry, self._one("/v1/telemetry", contract.Telemetry))

    def events(self, after: int, epoch: str = "", wait: float = 0.0) -> contract.Events:
        """What changed after the event of that number.

        :param epoch: the epoch of the answer that the number is from.
        :param wait: seconds that the agent is to wait for an event; it may wait for less.
        """
        parameters = (("after", str(after)), ("epoch", epoch), ("wait", str(wait)))
        return cast(contract.Events, self._one("/v1/events", contract.Events, parameters))

    def plan(self, extra_specs: Sequence[str]) -> contract.Plan:
        """What would happen to a VM whose flavor carries these ``key=value`` extra specs."""
        parameters = tuple(("spec", spec) for spec in extra_specs)
        return cast(contract.Plan, self._one("/v1/plan", contract.Plan, parameters))

    def newest_telemetry(self) -> contract.Telemetry:
        """Every VM's counters as they are now: the agent reads them again where the last look is a second old."""
        return cast(contract.Telemetry, self._one("/v1/telemetry", contract.Telemetry, (("newest", "1"),)))

    def hardware_events(self) -> contract.HardwareEvents:
        """What every VM's tasks have executed; an agent before this one refuses the question."""
        return cast(contract.HardwareEvents, self._one("/v1/telemetry/hardware-events", contract.HardwareEvents))

    def neighbours(self) -> contract.Neighbours:
        """Who slows whom, as the agent judges; an agent before this one refuses the question."""
        return cast(contract.Neighbours, self._one("/v1/neighbours", contract.Neighbours))

    def neighbour_samples(self, since: float | None = None) -> contract.NeighbourSamples:
        """The series that :meth:`neighbours` is judged by; an agent before this one refuses the question.

        :param since: only the samples after this one's time; all that the agent has if ``None``.
        """
        parameters = () if since is None else (("since", repr(since)),)
        found = self._one("/v1/neighbours/samples", contract.NeighbourSamples, parameters)
        return cast(contract.NeighbourSamples, found)

    def begin_trial(
        self, uuid: str, key: str, tried: str, *, may_fill_fewer: bool = False, confine: bool = False
    ) -> contract.RunningTrial:
        """Have something tried on a VM for as long as :meth:`renew_trial` follows every second; for root alone.

        Its memory bandwidth is limited, or it has more ways, or ways of its own; for still more of these, it is begun
        again.

        :param key: a name for the trial that no other one has.
        :param tried: as an extra spec, such as ``hw:mem_bandwidth_percent=20`` or ``hw:cache_ways=5``; or as two with
            a blank between them: ``hw:cache_code_ways=2 hw:cache_data_ways=3``.
        :param may_fill_fewer: whether a VM that is promised no ways may have fewer to fill than it fills now.
        :param confine: whether the ways are to keep the VM from those that others fill: for a minute at most.
        """
        parameters = [("key", key)]
        for spec in tried.split():
            name, _, value = spec.partition("=")
            parameters.append((name, value))
        if may_fill_fewer:
            parameters.append((contract.MAY_FILL_FEWER, "true"))
        if confine:
            parameters.append((contract.CONFINE, "true"))
        return self._trial("PUT", uuid, parameters)

    def renew_trial(self, uuid: str, key: str) -> contract.RunningTrial:
        """Ask for a trial again, and how it stands; it is refused where the trial is over."""
        return self._trial("PUT", uuid, [("key", key)])

    def end_trial(self, uuid: str, key: str) -> contract.RunningTrial:
        """Give a trial back; it is refused where the trial is over."""
        return self._trial("DELETE", uuid, [("key", key)])

    def sizes(self) -> list[contract.VmSize]:
        """How many ways VMs need, as it was found last; an agent before this one refuses the question."""
        return cast(list[contract.VmSize], self._one("/v1/sizes", contract.Sizes)["sizes"])

    def tell_size(self, uuid: str, pid: int, size: contract.FoundSize) -> None:
        """Have the agent remember how many ways a VM needs, to be looked at; for root alone.

        :param pid: the VM's process, of which it was found.
        """
        truths = {"at_least": size["at_least"], "counted": size["counted"], "steady": size["steady"]}
        parameters = [("pid", str(pid)), ("ways", str(size["ways"]))]
        parameters += [(name, "true" if value else "false") for name, value in truths.items()]
        parameters += [("curve", ",".join(map(_point, size["curve"])))]
        # An agent before this one does not know of parts, and there they are not tried.
        parameters += [("part", size["part"])] if size.get("part") else []
        self._one(f"/v1/sizes/{uuid}", contract.Taken, parameters, "PUT")

    def openstack(self) -> contract.OpenStack:
        """What OpenStack is to be told of this host, and what it is to be asked; for the gateway's socket alone."""
        return cast(contract.OpenStack, self._one("/v1/openstack", contract.OpenStack))

    def tell_flavor(self, wanted: contract.WantedFlavor, extra_specs: Mapping[str, str]) -> None:
        """Answer one of :meth:`openstack`'s wanted flavors; for the gateway's socket alone.

        :param extra_specs: those that are about vmqos (:func:`vmqos.extra_specs.relevant`).
        """
        self._write(wanted, [("spec", f"{key}={value}") for key, value in extra_specs.items()])

    def flavor_is_not_known(self, wanted: contract.WantedFlavor, why: str) -> None:
        """Say why one of :meth:`openstack`'s wanted flavors can't be told; for the gateway's socket alone.

        The agent goes on wanting it.
        """
        self._write(wanted, [("error", why)])

    def relay(self, path: str, query: str) -> tuple[int, bytes]:
        """The status and the body that the agent answers a ``GET`` with, whatever they are.

        :param query: what stands behind the question mark, as it came.
        """
        return self._send("GET", path, tuple(parse_qsl(query, keep_blank_values=True)))

    def _trial(self, method: str, uuid: str, parameters: list[tuple[str, str]]) -> contract.RunningTrial:
        found = self._one(f"/v1/trials/{uuid}", contract.RunningTrial, parameters, method)
        return cast(contract.RunningTrial, found)

    def _write(self, wanted: contract.WantedFlavor, parameters: list[tuple[str, str]]) -> None:
        parameters.append(("process", wanted["process"]))
        self._get(f"/v1/flavors/{wanted['uuid']}", parameters, "PUT")

    def _one(
        self, path: str, kind: type, parameters: Iterable[tuple[str, str]] = (), method: str = "GET"
    ) -> dict[str, Any]:
        """An answer that is what its type says. It is kept as it is, with all that a later agent adds."""
        answer = self._get(path, parameters, method)
        try:
            msgspec.convert(answer, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            # UnicodeEncodeError: JSON may have half of a pair of surrogates (RFC 8259, section 8.2).
            raise exceptions.NotOurApi(self.program, socket=self.socket, problem=f"{path}: {error}") from error
        return answer

    def _get(self, path: str, parameters: Iterable[tuple[str, str]] = (), method: str = "GET") -> dict[str, Any]:
        return self._decode(path, *self._send(method, path, tuple(parameters)))

    def _send(self, method: str, path: str, parameters: tuple[tuple[str, str], ...]) -> tuple[int, bytes]:
        """The status and the body of the agent's answer."""
        try:
            return self._ask(method, path, parameters)
        except TimeoutError as error:
            raise exceptions.AgentTimeout(self.program, socket=self.socket, seconds=self.timeout) from error
        except (OSError, http.client.IncompleteRead) as error:
            raise exceptions.AgentHungUp(self.program, socket=self.socket) from error
        except http.client.HTTPException as error:
            problem = str(error) or type(error).__name__
            raise exceptions.NotOurApi(self.program, socket=self.socket, problem=problem) from error

    def _ask(self, method: str, path: str, parameters: tuple[tuple[str, str], ...]) -> tuple[int, bytes]:
        question = quote(path, errors="replace")
        if parameters:
            question += "?" + urlencode(parameters, errors="replace")
        if method == "GET" and (kept := self._kept_one()) is not None:
            # The agent ends a connection that was idle for some seconds, and all of them when it ends itself.
            with contextlib.suppress(ConnectionError):
                return self._over(kept, method, path, question)
        return self._over(self._connected(), method, path, question)

    def _kept_one(self) -> _Connection | None:
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def _connected(self) -> _Connection:
        deadline = time.monotonic() + self.timeout
        while True:
            connection = _Connection(self.socket, self.timeout)
            try:
                connection.connect()
                return connection
            except BlockingIOError:
                connection.close()
                if time.monotonic() + BUSY_PAUSE > deadline:
                    raise TimeoutError from None
                # Others fill the agent's queue of connections at this moment.
                time.sleep(BUSY_PAUSE)
            except TimeoutError:
                connection.close()
                raise
            except OSError as error:
                connection.close()
                raise self._why_no_connection(error) from error

    def _over(self, connection: _Connection, method: str, path: str, question: str) -> tuple[int, bytes]:
        is_kept = False
        try:
            connection.request(method, question)
            answer = connection.getresponse()
            with answer:
                body = self._body(path, answer)
            is_kept = self.keeps_connections and not answer.will_close and len(self._kept) < MOST_KEPT
            if is_kept:
                self._kept.append(connection)
            return answer.status, body
        finally:
            if not is_kept:
                connection.close()

    def _body(self, path: str, answer: http.client.HTTPResponse) -> bytes:
        """The answer's body, bounded in size and time: another program may listen there and send without end."""
        chunks, count, deadline = [], 0, time.monotonic() + 2 * self.timeout
        while chunk := answer.read1(_CHUNK):
            chunks.append(chunk)
            count += len(chunk)
            if count > LONGEST_ANSWER:
                problem = f"{path} is longer than {LONGEST_ANSWER} bytes"
                raise exceptions.NotOurApi(self.program, socket=self.socket, problem=problem)
            if time.monotonic() > deadline:
                raise exceptions.AgentTimeout(self.program, socket=self.socket, seconds=2 * self.timeout)
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(chunks)

    def _decode(self, path: str, status: int, body: bytes) -> dict[str, Any]:
        try:
            value = _loads(body)
        except (ValueError, RecursionError) as error:
            problem = f"{path} is no JSON (HTTP {status})"
            raise exceptions.NotOurApi(self.program, socket=self.socket, problem=problem) from error
        if _is_deeper(value, DEEPEST_ANSWER):
            problem = f"{path} is more than {DEEPEST_ANSWER} lists and objects deep"
            raise exceptions.NotOurApi(self.program, socket=self.socket, problem=problem)
        if not isinstance(value, dict):
            raise exceptions.NotOurApi(self.program, socket=self.socket, problem=f"{path} is no JSON object")
        if 200 <= status < 300:
            return value
        text = str(value.get("error") or f"HTTP {status}")
        if 400 <= status < 500:
            raise exceptions.AgentRefused(self.program, text=neutralise(text), status=status)
        raise exceptions.AgentFailed(self.program, text=neutralise(text), status=status)

    def _why_no_connection(self, error: OSError) -> exceptions.LocalApiError:
        socket = f"{self.socket} (from {self.named_by})" if self.named_by else self.socket
        if isinstance(error, PermissionError):
            return exceptions.SocketForbidden(self.program, socket=socket, **_access(self.socket))
        if _is_other_file(self.socket):
            return exceptions.SocketUnusable(self.program, socket=socket, problem="it is no socket")
        if error.errno in _ABSENT:
            return exceptions.AgentNotRunning(self.program, socket=socket)
        return exceptions.SocketUnusable(self.program, socket=socket, problem=str(error))


def _loads(body: bytes) -> Any:
    """What JSON says. Of 200 VMs that takes json twice as long as msgspec, which refuses some of what json takes.

    :raises ValueError: if it is none.
    :raises RecursionError: if it is too deep.
    """
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return json.loads(body)


def _point(point: contract.SizePoint) -> str:
    part = point["missed"] if point["missed"] is not None else point["traffic_part"]
    numbers = (number for number in (part, point["slower"]) if number is not None)
    return ":".join([str(point["ways"]), *(f"{number:.4f}" for number in numbers)])


def _is_deeper(value: object, most: int) -> bool:
    """Whether there are more than so many lists and objects within each other; JSON has no other containers."""
    containers = dict, list
    level: list[Any] = [value] if type(value) in containers else []
    for _ in range(most + 1):
        if not level:
            return False
        level = [
            inside
            for outer in level
            for inside in (outer.values() if type(outer) is dict else outer)
            if type(inside) in containers
        ]
    return True


def _is_other_file(path: str) -> bool:
    """Whether there is something that is no socket. The kernel refuses to connect to it as if no program listened."""
    try:
        return not stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _access(path: str) -> dict[str, str]:
    """The socket's mode and group in words, and what helps; its directory's where the socket is not to be seen."""
    for candidate in (path, os.path.dirname(path) or "."):
        try:
            found = os.stat(candidate)
        except OSError:
            continue
        try:
            group = grp.getgrgid(found.st_gid).gr_name
        except KeyError:
            group = str(found.st_gid)
        where = "" if candidate == path else f"{candidate} has "
        access = f"{where}mode {stat.S_IMODE(found.st_mode):04o}, group '{group}'"
        return {"access": access, "mend": f"join the group '{group}' or use sudo"}
    return {"access": "its directory keeps you out", "mend": "use sudo"}
