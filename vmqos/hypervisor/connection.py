# SPDX-License-Identifier: Apache-2.0
"""The way to libvirt: which VMs run, word when one changes, and a new connection when the old one is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import libvirt

from vmqos.hypervisor import cgroup, domain_xml, event_loop, exceptions, qemu_process, run_files, vm_tasks
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

ANSWER_PATIENCE = 10.0
"""Seconds after which another try to connect is made beside one that has no answer. Keep-alive messages do not guard it
yet, and libvirt's library was seen to wait for ever for a daemon that had just been started."""

MOST_TRIES = 4
"""Tries under way at most. Where so many have no answer, the daemon itself hangs, and one of them is waited for."""

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
"""Connections besides the first that are kept open for calls. A libvirtd takes 5000 clients (``max_clients``)."""

MOST = 64
"""Connections at most. Where so many calls are under way, libvirt answers none, and the next call waits."""

MOST_OPENING = 16
"""Connections besides the first that are being opened at most, each by a thread. A libvirtd that hangs may never answer
one, and a call that gave up waiting makes room for the next call."""

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Client:
    """One connection to libvirtd.

    :ivar libvirt: the connection itself; ``None`` while it is opened.
    :ivar is_busy: whether a call is under way.
    :ivar is_first: whether it has the events.
    """

    libvirt: Any = None
    is_busy: bool = False
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class _First:
    """The connection that has the events.

    :ivar libvirt: the connection itself.
    :ivar hostname: the host's name, as libvirt tells it.
    :ivar callbacks: libvirt's numbers of what is called at an event.
    :ivar token: what libvirt says when this connection is closed.
    """

    libvirt: Any
    hostname: str = ""
    callbacks: list[int] = field(default_factory=list)
    token: object = field(default_factory=object)


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
    starts or ends it, and a list of all VMs waits for that (``virDomainObjListFilter`` in virdomainobjlist.c).

    Each call has a connection of its own while it is under way. libvirt's own library, from 6.1 to 10.2, may crash or
    hang where two threads call on one connection (CVE-2024-4418, ``virNetClientIOEventLoop`` in virnetclient.c). And a
    call that is not answered may keep those that are made on the same connection after it: libvirtd reads nothing more
    of a client that has five (``max_client_requests`` in libvirtd.conf).

    :param uri: libvirt's connection URI, such as ``qemu:///system``.
    :param on_change: called with a VM's UUID when something of it changed, and with ``None`` when anything may have:
        after each connect and each loss, and after a first try that failed. It is called from threads of the
        connection's own and should only take a note.
    :param run_dir: where libvirt keeps the VMs' PID files and status files.
    :param tells_of_waiting: whether to find out which VMs wait for their memory (:attr:`VirtualMachine.waiting_vcpus`).
    :param keepalive: seconds between keep-alive messages, and how many may stay unanswered.
    :param retry_delays: seconds until a lost connection is tried again, at first and at most.
    :param answer_patience: seconds after which another try is made beside one that libvirt does not answer.
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
        answer_patience: float = ANSWER_PATIENCE,
    ) -> None:
        self._uri = uri
        self._on_change = on_change
        self._run_dir = run_dir
        self._tells_of_waiting = tells_of_waiting
        self._keepalive = keepalive
        self._retry_delays = retry_delays
        self._answer_patience = answer_patience
        self._tries: list[Future[_First]] = []
        self._last_error = "not connected yet"
        self._hostname: str | None = None
        self._under_way: list[Call] = []
        # libvirt-python frees a connection under a call that still uses it, so the close waits for all calls.
        self._condition = threading.Condition()
        self._may_open = threading.BoundedSemaphore(MOST_OPENING)
        self._clients: list[_Client] = []
        """The first one has the events. Where it is lost, all are given up."""
        self._token: object = None
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

        def ask(connection: Any) -> dict[str, int]:
            domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            return {domain.UUIDString(): domain.ID() for domain in domains}

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
            waiting = vm_tasks.of_vcpus(process) if self._waits_for_memory(domain) else {}
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
            vcpus=domain.vcpus,
        )

    def _waits_for_memory(self, domain: DomainDescription) -> bool:
        """Whether a VM's memory comes from another host, and the guest does not run before it is all there.

        libvirt's API tells both ends of a migration alike: that the VM is paused for it.
        """
        if not self._tells_of_waiting:
            return False
        status = run_files.read_status(os.path.join(self._run_dir, f"{domain.name}.xml"))
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

        def ask(connection: Any) -> _T | None:
            try:
                return question(connection.lookupByUUIDString(uuid))
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    return None
                raise

        return self._call("", ask)

    def _call(self, name: str, ask: Callable[[Any], _T]) -> _T:
        """Ask libvirt something.

        :param name: the call, for :attr:`under_way`; empty where it is about one VM.
        """
        with self._noted(name) if name else contextlib.nullcontext(), self._own_client() as client:
            try:
                return ask(client.libvirt)
            except libvirt.libvirtError as error:
                if client.libvirt.isAlive():
                    raise exceptions.HypervisorFailed(uri=self._uri, error=error) from error
                if client is next(iter(self._clients), None):
                    self._lose(str(error))
                raise exceptions.HypervisorUnreachable(uri=self._uri, error=error) from error

    @contextlib.contextmanager
    def _own_client(self) -> Iterator[_Client]:
        """A connection for one call, which no other thread uses meanwhile: an idle one, or else a new one.

        :raises vmqos.hypervisor.exceptions.HypervisorUnreachable: if there is no connection, or no further one.
        """
        client = self._take()
        try:
            if client.libvirt is None:
                self._open_spare(client)
            yield client
        finally:
            self._give_back(client)

    def _take(self) -> _Client:
        """An idle connection, or one that the caller is to open; waits while :data:`MOST` are busy."""
        with self._condition:
            while self._clients:
                # The first one is taken last: its events come while nothing else does.
                for client in reversed(self._clients):
                    if not client.is_busy:
                        client.is_busy = True
                        return client
                if len(self._clients) < MOST:
                    client = _Client(is_busy=True)
                    self._clients.append(client)
                    return client
                self._condition.wait()
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=self._last_error)

    def _give_back(self, client: _Client) -> None:
        """End the use of a connection. It is closed if it is broken, or if enough others are idle."""
        with self._condition:
            idle = sum(not each.is_busy for each in self._clients[1:])
            is_good = client.libvirt is not None and idle < SPARES and client.libvirt.isAlive()
            # Where the first one was lost meanwhile, this one is among those that are given up.
            is_kept = client.is_first or (is_good and client in self._clients)
            if not is_kept and client in self._clients:
                self._clients.remove(client)
            client.is_busy = False
            self._condition.notify_all()
        if not is_kept and client.libvirt is not None:
            _ignore_errors(client.libvirt.close)

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
                    first = self._connect()
            except Exception as error:
                # Not only libvirt's: a host may also have no thread left for the try.
                LOG.debug("libvirt can't be reached at %s: %s", self._uri, error)
                self._last_error = str(error)
                if not self._tried.is_set():
                    self._tried.set()
                    self._tell(None)
                self._closing.wait(delay)
                delay = min(2 * delay, self._retry_delays[1])
                continue
            with self._condition:
                self._hostname, self._last_error = first.hostname, ""
                self._clients, self._token = [_Client(first.libvirt, is_first=True)], first.token
            if not first.libvirt.isAlive():
                # It was closed before anybody listened to that.
                self._lose("libvirtd closed the connection")
            LOG.info("connected to libvirt at %s", self._uri)
            delay = self._retry_delays[0]
            self._tried.set()
            self._tell(None)
            try:
                # They may take for ever to open, as any connection may.
                threading.Thread(target=self._open_spares, name="libvirt-spares", daemon=True).start()
            except RuntimeError as error:
                # Without them, calls open their own. This thread alone would notice that the first one is lost.
                LOG.info("no further connection to libvirt is opened ahead: %s", error)
            if not self._closing.is_set():
                self._lost.wait()
            self._disconnect(first)
            if not self._closing.is_set():
                LOG.debug("lost libvirt at %s: %s", self._uri, self._last_error)
                self._tell(None)
                self._closing.wait(delay)
        for late in self._tries:
            late.add_done_callback(self._drop)
        event_loop.release()

    def _connect(self) -> _First:
        """Open the connection that has the events. A try that took too long may still come to an end here.

        :raises libvirt.libvirtError: if libvirt can't be reached.
        :raises TimeoutError: if it does not answer.
        """
        if len(self._tries) < MOST_TRIES:
            self._tries.append(_begin(self._open_first))
        ended, _ = wait(self._tries, self._answer_patience, FIRST_COMPLETED)
        if not ended:
            raise TimeoutError(self._unanswered)
        one = min(ended, key=lambda each: each.exception() is not None)
        self._tries.remove(one)
        first = one.result()
        for other in self._tries:
            other.add_done_callback(self._drop)
        self._tries = []
        return first

    def _drop(self, late: Future[_First]) -> None:
        """Close the connection of a try that is not needed any more."""
        if late.exception() is None:
            self._shut(late.result())

    def _open_first(self) -> _First:
        connection = libvirt.openReadOnly(self._uri)
        first = _First(connection)
        try:
            first = replace(first, hostname=str(connection.getHostname()))
            connection.registerCloseCallback(self._closed, first.token)
            connection.setKeepAlive(*self._keepalive)
            for event in EVENTS:
                note = self._lifecycle if event == libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE else self._event
                first.callbacks.append(connection.domainEventRegisterAny(None, event, note, None))
        except libvirt.libvirtError:
            self._shut(first)
            raise
        return first

    def _open_spares(self) -> None:
        """Open connections ahead, which no call waits for."""
        for _ in range(SPARES):
            with self._condition:
                if self._lost.is_set() or self._closing.is_set() or len(self._clients) > SPARES:
                    return
                client = _Client(is_busy=True)
                self._clients.append(client)
            try:
                self._open_spare(client)
            except exceptions.HypervisorUnreachable as error:
                if self._lost.is_set() or self._closing.is_set():
                    return  # The connection was given up meanwhile, and this one with it.
                LOG.info("libvirt takes no further connection now: %s", error)
                return
            finally:
                self._give_back(client)

    def _open_spare(self, client: _Client) -> None:
        """Open a connection besides the first.

        :raises vmqos.hypervisor.exceptions.HypervisorUnreachable: if libvirt takes no further one, or does not answer.
        """
        if not self._may_open.acquire(timeout=self._answer_patience):
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=self._unanswered)
        try:
            begun = _begin(self._open)
        except RuntimeError as error:
            self._may_open.release()
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=error) from error
        begun.add_done_callback(lambda _: self._may_open.release())
        try:
            connection = begun.result(self._answer_patience)
        except TimeoutError as error:
            begun.add_done_callback(_close_late)
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=self._unanswered) from error
        except libvirt.libvirtError as error:
            raise exceptions.HypervisorUnreachable(uri=self._uri, error=error) from error
        with self._condition:
            if client in self._clients:
                client.libvirt = connection
                return
        # Meanwhile the first connection was lost.
        _ignore_errors(connection.close)
        raise exceptions.HypervisorUnreachable(uri=self._uri, error=self._last_error)

    def _open(self) -> Any:
        connection = libvirt.openReadOnly(self._uri)
        _ignore_errors(connection.setKeepAlive, *self._keepalive)
        return connection

    @property
    def _unanswered(self) -> str:
        return f"it does not answer within {self._answer_patience:g} s"

    def _disconnect(self, first: _First) -> None:
        with self._condition:
            clients, self._clients, self._token = self._clients, [], None
            self._condition.notify_all()
            # A call may hang on any other one. Who makes it closes it then.
            idle = [client for client in clients[1:] if not client.is_busy]
            self._condition.wait_for(lambda: not clients[0].is_busy)
        for spare in idle:
            _ignore_errors(spare.libvirt.close)
        self._shut(first)

    def _shut(self, first: _First) -> None:
        for callback in first.callbacks:
            _ignore_errors(first.libvirt.domainEventDeregisterAny, callback)
        _ignore_errors(first.libvirt.unregisterCloseCallback)
        _ignore_errors(first.libvirt.close)

    def _closed(self, connection: Any, reason: int, token: object) -> None:
        if token is self._token:
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


def _begin(ask: Callable[[], _T]) -> Future[_T]:
    """Ask libvirt something in a thread of its own, because the answer may never come.

    :raises RuntimeError: if there can be no further thread.
    """
    begun = Future[_T]()

    def run() -> None:
        try:
            begun.set_result(ask())
        except Exception as error:
            begun.set_exception(error)

    threading.Thread(target=run, name="libvirt-try", daemon=True).start()
    return begun


def _close_late(late: Future[Any]) -> None:
    """Close a connection that nobody waits for any more."""
    if late.exception() is None:
        _ignore_errors(late.result().close)
