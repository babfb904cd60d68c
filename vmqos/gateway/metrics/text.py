# SPDX-License-Identifier: Apache-2.0
"""The text of ``/metrics``."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from vmqos.daemon.log_once import LogOnce
from vmqos.gateway.health import OpenStackHealth, health
from vmqos.gateway.metrics.agent_answers import CACHES, COUNTERS, HARDWARE_EVENTS, NEIGHBOURS, PARTS, VMS, Answers
from vmqos.gateway.metrics.exposition import NO_METRICS, HostCollector, WithoutAgent
from vmqos.gateway.metrics.kept_counters import KeptCounters
from vmqos.gateway.metrics.known_lines import Encode, KnownLines
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentRefused, LocalApiError, NotOurApi

LOG = logging.getLogger(__name__)

T = TypeVar("T")

SHARED_FOR = 1.0
"""Seconds for which one text serves all who scrape: making it takes a tenth of a second where there are many VMs, and
where the agent hangs, as long as its answer is waited for."""

TIME_TO_ASK = 6.0
"""Seconds after which a scrape asks the agent nothing more, where each of its answers takes long: a client that scrapes
waits for ten by default, and what it does not hear in time it takes for a gateway that is away."""

NEVER_OLD = 5.0
"""Seconds up to which counters are never called old."""

JUDGED_FOR = 120.0
"""Seconds for which it is told who slows whom: the agent judges seldom where it takes long."""

_UNDERSCORES, _ALLOW_UTF8 = "underscores", "allow-utf-8"
"""What a client may have done with characters of names that earlier Prometheus does not take."""

_VERSION = "1.0.0"
"""The newest version of both formats."""


def _formats() -> Iterator[str]:
    yield choose_encoder("")[1]
    for media in ("application/openmetrics-text", "text/plain"):
        yield choose_encoder(media)[1]
        for escaping in (_UNDERSCORES, _ALLOW_UTF8, "dots", "values"):
            yield choose_encoder(f"{media};version={_VERSION};escaping={escaping}")[1]


FORMATS = frozenset(_formats())
"""The media types that are answered. The library also takes every greater version for one that it writes: a client that
invents versions would have as many texts made and kept."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """The VMs and the caches, as the agent told them.

    :ivar revision: of what was told; ``None`` if an earlier agent told it, or none did.
    :ivar told_at: a moment after the agent had told it, by the monotonic clock.
    """

    revision: str | None = None
    told_at: float = -math.inf
    vms: Sequence[contract.Vm] = ()
    caches: Sequence[contract.Cache] = ()


UNAVAILABLE = 503
"""The HTTP status of the agent's answer while it can't read the counters."""


class Metrics:
    """Makes the text of a scrape.

    :param agent: the agent to ask.
    :param openstack: what is known of OpenStack's services.
    :param old_metrics: whether the metrics that others have replaced are told, too.
    :param kept: where the counters are kept over a restart; ``None``: nowhere.
    """

    def __init__(
        self,
        agent: AgentClient,
        openstack: OpenStackHealth,
        old_metrics: bool = True,
        kept: KeptCounters | None = None,
    ) -> None:
        self._agent = agent
        self._openstack = openstack
        self._pid = 0
        self._kept = kept
        self._host = HostCollector(self._ask, old_metrics, kept.read() if kept is not None else None)
        self._registry = CollectorRegistry(auto_describe=False)
        # The registry asks its collectors in this order: the agent's PID comes with its health.
        self._registry.register(self._host)
        ProcessCollector(pid=lambda: self._pid, registry=self._registry)
        own = ProcessCollector(namespace="vmqos_gateway", registry=self._registry)
        self._without_agent = CollectorRegistry(auto_describe=False)
        self._without_agent.register(WithoutAgent(openstack))
        self._without_agent.register(own)
        self._once = LogOnce(LOG)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, bytes]] = {}
        self._lines: tuple[str, KnownLines] | None = None
        self._listing = _Listing()
        self._missing: Mapping[str, str] = {}
        """See :class:`vmqos.gateway.metrics.agent_answers.Answers`, of what was asked last."""

    def answer(self, accept: str) -> tuple[str, bytes]:
        """The media type and the text, in the format that the client wants most; the plain one if that can't be told.

        Where the agent does not answer, the text says so: nothing else lets Prometheus tell an agent that is gone from
        a gateway that is.

        :param accept: the request's ``Accept`` header.
        """
        encode, content_type = _encoder(accept)
        with self._lock:
            now = time.monotonic()
            made_at, text = self._made.get(content_type, (-math.inf, b""))
            if now - made_at > SHARED_FOR:
                # There are many formats, and a text may have megabytes.
                self._made = {kind: made for kind, made in self._made.items() if now - made[0] <= SHARED_FOR}
                try:
                    text = self._make(encode, content_type)
                    self._once.end("agent")
                except LocalApiError as error:
                    # Where there is no answer at all, AgentWatch logs that.
                    if error.is_answer or isinstance(error, NotOurApi):
                        self._once.log(logging.WARNING, "agent", "there are no metrics of the agent: %s", error)
                    text = encode(self._without_agent)
                self._made[content_type] = time.monotonic(), text
        return content_type, text

    def _make(self, encode: Encode, content_type: str) -> bytes:
        """The text of all that the agent answers.

        :raises vmqos.local_api.exceptions.LocalApiError: if it does not answer, or nothing that metrics can be made of.
        """
        try:
            text = self._known_lines(encode, content_type).text(self._registry)
        except NO_METRICS as error:
            self._listing = _Listing()
            problem = f"no metrics can be made of its answers: {type(error).__name__}: {error}"
            raise NotOurApi(socket=self._agent.socket, problem=problem) from error
        self._log_missing(self._missing)
        if self._kept is not None:
            # After each scrape that changed them, for a process may end without a word. It is a hundredth of what the
            # scrape takes.
            self._kept.write(self._host.kept)
        return text

    def _log_missing(self, missing: Mapping[str, str]) -> None:
        """Log which answers the text lacks, and have the VMs and the caches asked for again where it lacks theirs."""
        for part in PARTS:
            if part in missing:
                self._once.log(logging.WARNING, part, "metrics of the agent's %s are missing: %s", part, missing[part])
            elif self._once.end(part):
                LOG.info("the metrics of the agent's %s are there again", part)
        if VMS in missing or CACHES in missing:
            self._listing = _Listing()

    def _known_lines(self, encode: Encode, content_type: str) -> KnownLines:
        """What writes that format. Of one format alone lines are kept: most hosts are scraped in no other."""
        if self._lines is None or self._lines[0] != content_type:
            self._lines = content_type, KnownLines(encode)
        return self._lines[1]

    def _ask(self) -> Answers:
        began, missing = time.monotonic(), dict[str, str]()
        self._missing = missing
        # The counters come first: the agent may read them anew for this, and its health then tells their age.
        counters = _had(missing, COUNTERS, self._counters)
        now = time.monotonic()
        found = health(self._agent, self._openstack)
        self._pid = found["pid"]
        until = began + TIME_TO_ASK
        listing = self._listed(found.get("revision"), missing, until)
        age = max(0.0, now - listing.told_at)
        hardware = _had(missing, HARDWARE_EVENTS, self._hardware_events, until)
        neighbours = _had(missing, NEIGHBOURS, self._neighbours, until)
        return Answers(found, listing.vms, listing.caches, counters, hardware, neighbours, age, missing)

    def _listed(self, revision: str | None, missing: dict[str, str], until: float) -> _Listing:
        """The VMs and the caches; they are asked for only if something has changed since they were told.

        :param revision: what the agent's health says; ``None`` where an earlier agent does not.
        :param missing: gets why one of the two can't be had; none are told, then.
        :param until: the monotonic time after which they are not asked for.
        """
        if revision is None or revision != self._listing.revision:
            vms = _had(missing, VMS, self._agent.vms, until)
            caches = _had(missing, CACHES, self._agent.caches, until)
            self._listing = _Listing(revision, time.monotonic(), vms or (), caches or ())
        return self._listing

    def _counters(self) -> contract.Telemetry | None:
        """The counters as they are now; ``None`` where the agent can't read them, or could not for a while.

        A counter that stands still would be taken for a VM that does.
        """
        try:
            found = self._agent.newest_telemetry()
        except AgentFailed as error:
            if error.values["status"] != UNAVAILABLE:
                raise
            # The agent's log has it, and vmqos_resctrl_up or vmqos_last_sweep_timestamp_seconds says so.
            return None
        return None if _is_old(found["age_seconds"], found["interval"]) else found

    def _hardware_events(self) -> contract.HardwareEvents | None:
        """What the VMs' tasks execute; ``None`` where the agent is an earlier one, or could not tell for a while."""
        try:
            found = self._agent.hardware_events()
        except AgentRefused:
            return None
        if found["unavailable"]:
            return found
        return None if _is_old(found["age_seconds"], found["interval"]) else found

    def _neighbours(self) -> contract.Neighbours | None:
        """Who slows whom; ``None`` where the agent is an earlier one, or has read nothing to judge by for a while."""
        try:
            found = self._agent.neighbours()
        except AgentRefused:
            return None
        newest = found["time"]
        # The clock may have been set back since: what was read after now is old as well.
        return None if newest is None or abs(time.time() - newest) > max(3 * found["interval"], JUDGED_FOR) else found


def _had(missing: dict[str, str], part: str, ask: Callable[[], T], until: float = math.inf) -> T | None:
    """One of the agent's answers; ``None`` where the agent answers, and to this question nothing of use.

    :param missing: gets the reason then.
    :param part: one of :data:`vmqos.gateway.metrics.agent_answers.PARTS`.
    :param until: the monotonic time after which it is not asked for.
    :raises vmqos.local_api.exceptions.LocalApiError: if the agent does not answer at all.
    """
    if time.monotonic() > until:
        missing[part] = f"there was no time left to ask for them: the other answers took {TIME_TO_ASK:g} s or longer"
        return None
    try:
        return ask()
    except LocalApiError as error:
        if not error.is_answer and not isinstance(error, NotOurApi):
            raise
        missing[part] = str(error)
        return None


def _encoder(accept: str) -> tuple[Encode, str]:
    """What writes the format that the client wants most, and the format's media type."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is none: the library compares it with numbers.
        content_type = ""
    if content_type not in FORMATS:
        encode, content_type = choose_encoder("")
    if isinstance(encode, partial) and encode.keywords.get("escaping") == _UNDERSCORES:
        # No name of ours has a character that would be escaped, so the text is the same. To find out, the library goes
        # through the name of each sample letter by letter: a third of the time that it takes to write the text.
        encode = partial(encode, escaping=_ALLOW_UTF8)
    return encode, content_type


def _is_old(age: float | None, interval: float) -> bool:
    """Whether what was read then is not told any more.

    :param age: seconds; ``None`` for what was never read.
    """
    return age is None or age > max(3 * fresh_for(interval), NEVER_OLD)


def fresh_for(interval: float) -> float:
    """Seconds after which the agent reads counters anew for a client that asks for the newest.

    :param interval: seconds between two of its regular looks at them; 0 without such.
    """
    return min(max(1.0, 1.5 * interval), NEVER_OLD)
