# SPDX-License-Identifier: Apache-2.0
"""The way to libvirt: which VMs run, word when one changes, and a new connection when the old one is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import libvirt

from vmqos.hypervisor import cgroup, domain_xml, event_loop, exceptions, qemu_process, status_file, vcpu_threads
from vmqos.hypervisor.domain_xml import DomainDescription
from vmqos.hypervisor.model import VirtualMachine

LOG = logging.getLogger(__name__)

KEEPALIVE_INTERVAL = 5
"""Seconds between questions whether libvirtd still answers."""
KEEPALIVE_COUNT = 3
"""How many unanswered ones end the connection: a hung libvirtd is noticed after 15 to 20 seconds."""

RETRY_DELAY_MIN = 0.2
"""Seconds until a lost connection is tried again; doubled after each failure."""
RETRY_DELAY_MAX = 10.0

EVENTS = (
    libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
    libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
    libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE,
)
"""What changes a VM's tasks, CPUs or promise. Events that a guest can cause at will, such as a reboot (which keeps
every thread), are left out: no guest shall keep the host's agent busy."""

_NOT_OF_RUNNING_VMS = (libvirt.VIR_DOMAIN_EVENT_DEFINED, libvirt.VIR_DOMAIN_EVENT_UNDEFINED)
"""Events about what a VM will be when it is started next: one that runs stays as it is."""

_CLOSE_REASONS = {
    libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "the connection broke",
    libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "libvirtd closed the connection",
    libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "libvirtd does not answer any more",
    libvirt.VIR_CONNECT_CLOSE_REASON_CLIENT: "the connection was closed",
}

SPARES = 8
"""Connections besides the first, for calls about VMs. A libvirtd takes 5000 clients (``max_clients``)."""

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Client:
    """One connection to libvirtd.

    :ivar libvirt: the connection itself.
    :ivar calls: how many are under way.
    """

    libvirt: Any
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A call that libvirt has not answered yet.

    :ivar name: libvirt's own name of it, and the VM it is about.
    :ivar since: when it was made, by :func:`time.monotonic`.
    """

    name: str
    since: float


class Connection:
    """A connection to libvirt that comes back by itself; every method may be called from any thread.

    The connection is read-only: nothing here can change a VM.

    A call may take for ever. The keep-alive messages end it where the whole of libvirtd hangs, but a libvirtd all of
    whose workers hang still answers them, by its main thread (``virKeepAliveCheckMessage`` in virnetserverclient.c).
    Calls are made side by side, so that one about a VM need not wait for one about another: libvirt locks a VM while it
    starts or ends it, and a list of all VMs waits for that (``virDomainObjListFilter`` in virdomainobjlist.c). A call
    that is not answered may keep those that are made on the same connection after it: that was seen with two such
    calls, and is certain with five, for libvirtd then reads nothing more of a client (``max_client_requests`` in
    libvirtd.conf). So there are several connections, and a call about a VM takes the one with the fewest calls.

    :param uri: libvirt's connection URI, such as ``qemu:///system``.
    :param on_change: called with a VM's UUID when something of it changed, and with ``None`` when anything may have:
        after each connect and each loss. It is called from threads of the connection's own and should only take a note.
    :param run_dir: where libvirt keeps the VMs' PID files and status files.
    :param tells_of_waiting: whether to find out which VMs wait for their memory (:attr:`VirtualMachine.waiting_vcpus`).
    :param keepalive: seconds between keep-alive messages, and how many may stay unanswered.
    :param retry_delays: seconds until a lost connection is tried again, at first and at most.
    """

    def __init__(
        self,
        uri: str,
        on_change: Callable[[str | None], None],
        run_dir: str = "/run/libvirt/qemu",
        *,
        tells_of_waiting: bool = False,
        keepalive: tuple[int, int] = (KEEPALIVE_INTERVAL, KEEPALIVE_COUNT),
        retry_delays: tuple[float, float] = (RETRY_DELAY_MIN, RETRY_DELAY_MAX),
    ) -> None:
        self._uri = uri
        self._on_change = on_change
        self._run_dir = run_dir
        self._tells_of_waiting = tells_of_waiting
        self._keepalive = keepalive
        self._retry_delays = retry_delays
        self._last_error = "not connected yet"
        self._hostname: str | None = None
        self._under_way: list[Call] = []
        # libvirt-python frees a connection under a call that still uses it, so the close waits for all calls.
        self._condition = threading.Condition()
        self._clients: list[_Client] = []
        """The first one has the events and all calls that are not about one VM."""
        self._domains: dict[str, Any] = {}
        self._callbacks: list[int] = []
        self._lost = threading.Event()
        self._tried = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_connected, name="libvirt-connection", daemon=True)

    def start(self, wait: bool = False, timeout: float = 30.0) -> None:
        """Connect, and stay connected until :meth:`close`; a failure is no error, it is tried again.

        :param wait: whether to return only after the first try, well or ill.
        :param timeout: seconds to wait at most, for a libvirtd that accepts but does not answer.
        """
        self._thread.start()
        if wait:
            self._tried.wait(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Disconnect and end the threads. Not for :attr:`on_change`.

        :param timeout: seconds to wait for a libvirtd that does not answer.
        """
        self._closing.set()
        self._lost.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
            if self._thread.is_alive():
                LOG.warning("libvirt at %s does not answer: its connection is left open", self._uri)

    @property
    def is_connected(self) -> bool:
        """Whether libvirt could be reached when last heard of."""
        return bool(self._clients) and not self._lost.is_set()

    @property
    def was_tried(self) -> bool:
        """Whether the first try to connect has ended, well or ill."""
        return self._tried.is_set()

    @property
    def last_error(self) -> str:
        """Why there is no connection; empty while there is one."""
        return self._last_error

    @property
    def hostname(self) -> str | None:
        """The host's name as libvirt told it at the last connect; ``None`` before.

        Nova takes it for the compute node's (``Host.get_hostname``).
        """
        return self._hostname

    @property
    def under_way(self) -> Call | None:
        """The oldest call that libvirt has not answered yet, if there is one; those about one VM are left out."""
        return next(iter(self._under_way), None)

    def list_running(self) -> dict[str, int]:
        """The running VMs (paused ones too): libvirt's ID of each by UUID, by one call.

        :raises vmqos.hypervisor.exceptions.HypervisorUnreachable: if there is no connection.
        :raises vmqos.hypervisor.exceptions.HypervisorFailed: if libvirt refuses.
        """

        def ask(first: _Client) -> dict[str, int]:
            domains = first.libvirt.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            self._domains = {domain.UUIDString(): domain for domain in domains}
            return {uuid: domain.ID() for uuid, domain in self._domains.items()}

        return self._call("virConnectListAllDomains", ask)

    def describe(self, uuid: str) -> VirtualMachine | None:
        """A running VM, its QEMU process and cgroup included.

        :returns: ``None`` where no such VM runs, or it is only being started (which will be reported).
        :raises vmqos.hypervisor.exceptions.HypervisorUnreachable: if there is no connection.
        :raises vmqos.hypervisor.exceptions.NoProcess: if no process of this host is its QEMU, as far as can be told.
        :raises vmqos.hypervisor.exceptions.HypervisorError: if libvirt refuses, or /proc can't be read.
        """
        xml = self._ask_about(uuid, lambda domain: str(domain.XMLDesc(0)))
        domain = None if xml is None else domain_xml.parse(xml)
        if domain is None or domain.libvirt_id is None:
            return None
        process = qemu_process.by_pid_file(domain, self._run_dir)
        if process is None and self._is_starting(uuid):
            return None
        process = process or qemu_process.by_search(domain)
        if process is None:
            raise exceptions.NoProcess(uuid=uuid)
        try:
            own_cgroup = cgroup.vm_cgroup(process.pid)
            waiting = vcpu_threads.find(process) if self._waits_for_memory(domain) else {}
        except exceptions.ProcessVanished:
            return None
        return VirtualMachine(
            uuid=domain.uuid,
            name=domain.name,
            libvirt_id=domain.libvirt_id,
            process=process,
            cgroup=own_cgroup,
            has_cachetune=domain.has_cachetune,
            metadata=domain.metadata,
            metadata_error=domain.metadata_error,
            waiting_vcpus=frozenset(waiting.values()) or None,
        )

    def _waits_for_memory(self, domain: DomainDescription) -> bool:
        """Whether a VM's memory comes from another host, and the guest does not run before it is all there.

        libvirt's API tells both ends of a migration alike: that the VM is paused for it.
        """
        if not self._tells_of_waiting:
            return False
        status = status_file.read(os.path.join(self._run_dir, f"{domain.name}.xml"))
        if status is None or not status.is_incoming or status.domain.uuid != domain.uuid:
            return False
        state = self._ask_about(domain.uuid, lambda known: known.state())
        return bool(state and state[0] == libvirt.VIR_DOMAIN_PAUSED)

    def _is_starting(self, uuid: str) -> bool:
        """Whether libvirt is just starting the VM, so that a missing QEMU process is no surprise."""
        starting = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]
        is_starting = self._ask_about(uuid, lambda domain: bool(domain.state() == starting))
        return is_starting is not False

    def _ask_about(self, uuid: str, question: Callable[[Any], _T]) -> _T | None:
        """Ask libvirt about one VM; ``None`` where it knows no such VM."""

        def ask(client: _Client) -> _T | None:
            # libvirt's word on a VM is bound to the connection that it came by.
            known = self._domains.get(uuid) if client is self._first else None
            try:
                return question(known or client.libvirt.lookupByUUIDString(uuid))
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    return None
                raise

        return self._call("", ask)

    @property
    def _first(self) -> _Client | None:
        return next(iter(self._clients), None)

    def _call(self, name: str, ask: Callable[[_Client], _T]) -> _T:
        """Ask libvirt something.

        :param name: the call, for :attr:`under_way`; empty where it is about one VM.
        """
        with self._condition:
            first = self._first
            if first is None:
                raise exceptions.HypervisorUnreachable(uri=self._uri, error=self._last_error)
            alive = [client for client in self._clients if client is first or client.libvirt.isAlive()]
            client = first if name else min(alive, key=lambda client: client.calls)
            client.calls += 1
        try:
            with self._noted(name) if name else contextlib.nullcontext():
                return ask(client)
        except libvirt.libvirtError as error:
            if client.libvirt.isAlive():
                raise exceptions.HypervisorFailed(uri=self._uri, error=error) from error
            if client is first:
                self._lose(str(error))
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=error) from error
        finally:
            with self._condition:
                client.calls -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        call = Call(name, time.monotonic())
        self._under_way.append(call)
        try:
            yield
        finally:
            self._under_way.remove(call)

    def _keep_connected(self) -> None:
        """The life of the connection's thread."""
        event_loop.acquire()
        delay = self._retry_delays[0]
        while not self._closing.is_set():
            self._lost.clear()
            try:
                with self._noted("virConnectOpenReadOnly"):
                    self._connect()
            except libvirt.libvirtError as error:
                if str(error) != self._last_error:
                    LOG.warning("libvirt can't be reached at %s: %s", self._uri, error)
                self._last_error = str(error)
                self._tried.set()
                self._closing.wait(delay)
                delay = min(2 * delay, self._retry_delays[1])
                continue
            LOG.info("connected to libvirt at %s", self._uri)
            delay = self._retry_delays[0]
            self._tried.set()
            self._tell(None)
            self._open_spares()
            if not self._closing.is_set():
                self._lost.wait()
            self._disconnect()
            if not self._closing.is_set():
                LOG.warning("lost libvirt at %s: %s", self._uri, self._last_error)
                self._tell(None)
                self._closing.wait(delay)
        event_loop.release()

    def _connect(self) -> None:
        connection = libvirt.openReadOnly(self._uri)
        self._callbacks = []
        try:
            self._hostname = str(connection.getHostname())
            connection.registerCloseCallback(self._closed, None)
            connection.setKeepAlive(*self._keepalive)
            for event in EVENTS:
                note = self._lifecycle if event == libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE else self._event
                self._callbacks.append(connection.domainEventRegisterAny(None, event, note, None))
        except libvirt.libvirtError:
            self._shut(connection)
            raise
        with self._condition:
            self._last_error = ""
            self._clients = [_Client(connection)]

    def _open_spares(self) -> None:
        """Open the other connections. No call waits for that: where a libvirtd hangs, it may take for ever."""
        for _ in range(SPARES):
            if self._lost.is_set() or self._closing.is_set():
                return
            try:
                connection = libvirt.openReadOnly(self._uri)
                connection.setKeepAlive(*self._keepalive)
            except libvirt.libvirtError as error:
                LOG.info("libvirt takes no further connection, so calls share those that there are: %s", error)
                return
            with self._condition:
                self._clients.append(_Client(connection))

    def _disconnect(self) -> None:
        with self._condition:
            clients, self._clients = self._clients, []
            self._condition.wait_for(lambda: not any(client.calls for client in clients))
            self._domains = {}
        first, *spares = clients
        for spare in spares:
            _ignore_errors(spare.libvirt.close)
        self._shut(first.libvirt)

    def _shut(self, connection: Any) -> None:
        for callback in self._callbacks:
            _ignore_errors(connection.domainEventDeregisterAny, callback)
        _ignore_errors(connection.unregisterCloseCallback)
        _ignore_errors(connection.close)

    def _closed(self, connection: Any, reason: int, opaque: object) -> None:
        self._lose(_CLOSE_REASONS.get(reason, f"the connection was closed (reason {reason})"))

    def _lose(self, error: str) -> None:
        self._last_error = error
        self._lost.set()

    def _lifecycle(self, connection: Any, domain: Any, event: int, detail: int, opaque: object) -> None:
        if event not in _NOT_OF_RUNNING_VMS:
            self._event(connection, domain, event, detail, opaque)

    def _event(self, connection: Any, domain: Any, *details: object) -> None:
        LOG.debug("VM %s: event %s", domain.UUIDString(), details[:-1])
        self._tell(domain.UUIDString())

    def _tell(self, uuid: str | None) -> None:
        try:
            self._on_change(uuid)
        except Exception:
            LOG.exception("a change of VM %s was not taken note of", uuid or "(any)")


def _ignore_errors(function: Callable[..., object], *arguments: object) -> None:
    """Tidy up what a lost connection may have taken along already."""
    try:
        function(*arguments)
    except libvirt.libvirtError as error:
        LOG.debug("%s: %s", getattr(function, "__name__", function), error)
