# SPDX-License-Identifier: Apache-2.0
"""Asking Nova for the extra specs that the agent wants, and telling them to the agent.

Nova writes them into a VM's description since 2025.2. A VM that was started before, or came by live migration from a
host with an older Nova, has none until its next hard reboot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oslo_config import cfg

from vmqos import extra_specs
from vmqos.conf import keystone
from vmqos.daemon.backoff import Backoff, Failure
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentRefused, NotOurApi
from vmqos.openstack import nova
from vmqos.openstack.exceptions import CloudError, FlavorHidden, HostnameUnknown, Refused, ServerUnknown
from vmqos.openstack.nova import Nova
from vmqos.openstack.service import Service
from vmqos.reason import Code, Reason, of_error

LOG = logging.getLogger(__name__)

ERROR_LENGTH = 500
"""Characters of an unexpected error that are told."""

LISTS_AGAIN_AFTER = 300.0
"""Seconds after which listing the servers of the host is tried again where Nova refused it: the user may have got the
right, or the refusal was a passing one."""

MOST_FAILED = 3
"""Servers for which Nova fails (5xx), where it failed to list them and has answered for none, until it is let be."""

_ALL = ""
"""The key under which the back-off keeps failures that concern every VM."""

_LISTING = ("listing",)
"""The key under which it is logged that Nova refuses to list servers."""


@dataclass(slots=True)
class _Entry:
    """A VM whose flavor the agent wants.

    :ivar extra_specs: those of Nova's answer that are about vmqos; ``None`` until Nova has answered. The worker's
        condition is held while they are changed.
    :ivar told: the failure that the agent was told last; of no concern to the worker.
    """

    wanted: contract.WantedFlavor
    extra_specs: Mapping[str, str] | None = None
    told: Failure | None = None


class FlavorLookup:
    """Asks Nova in a thread of its own, and keeps each answer until the agent has it.

    :param api: Nova.
    :param agent: wants the answers.
    :param backoff: the pauses after failures, by UUID.
    """

    def __init__(self, api: Nova, agent: AgentClient, backoff: Backoff) -> None:
        self._api = api
        self._agent = agent
        self._backoff = backoff
        self._worker = Worker("flavors")
        self._once = LogOnce(LOG)
        self._entries: dict[str, _Entry] = {}
        self._hostname: str | None = None
        self._list_from = 0.0
        """The monotonic time before which the servers are not listed."""
        self._refused = ""
        """Why Nova told nothing where it refused each of the last questions; empty where it did not."""

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, agent: AgentClient) -> FlavorLookup | None:
        """As the configuration says; ``None`` where Nova is not to be asked."""
        if not keystone.is_configured(conf, "nova"):
            return None
        backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        return cls(Nova(Service(conf, "nova", "compute")), agent, backoff)

    @property
    def health(self) -> contract.NovaHealth:
        """Why Nova answers for no VM at all, and how many VMs' extra specs it has not told yet."""
        with self._worker.condition:
            failure = self._backoff.get(_ALL)
            waiting = sum(entry.extra_specs is None for entry in self._entries.values())
            refused = self._refused if waiting else ""
        return {"error": failure.reason.text if failure else refused or None, "waiting": waiting}

    def start(self) -> None:
        """Ask from now on."""
        self._worker.start(self._run)

    def stop(self) -> None:
        """Ask no more."""
        self._worker.stop()

    def answer(self, wanted: Iterable[contract.WantedFlavor], hostname: str | None) -> None:
        """Tell the agent what is known of these flavors, without waiting for Nova; the thread asks Nova for the others.

        The agent is told an error again after each further try: it may have been started anew meanwhile.

        :param wanted: all that the agent wants; the others are forgotten.
        :param hostname: the compute node's hypervisor hostname; ``None`` where it is not known yet.
        :raises vmqos.local_api.exceptions.LocalApiError: if the agent went away meanwhile.
        """
        for entry, failure in self._take_over(wanted, hostname):
            try:
                if entry.extra_specs is not None:
                    self._agent.tell_flavor(entry.wanted, entry.extra_specs)
                elif failure is not None and failure is not entry.told:
                    entry.told = failure
                    self._agent.flavor_is_not_known(entry.wanted, failure.reason.text)
            except (AgentRefused, AgentFailed, NotOurApi) as error:
                self._not_taken(entry, error)

    def agent_is_away(self) -> None:
        """Note that the agent does not answer: the one that comes back may not know what was told."""
        for entry in self._entries.values():
            entry.told = None

    def _take_over(
        self, wanted: Iterable[contract.WantedFlavor], hostname: str | None
    ) -> list[tuple[_Entry, Failure | None]]:
        """Everything that is wanted now, with its last failure."""
        with self._worker.condition:
            self._hostname = hostname
            before, self._entries = self._entries, {}
            for one in wanted:
                uuid = one["uuid"]
                entry = before.get(uuid)
                if entry is None or entry.wanted["process"] != one["process"]:
                    # The flavor changes only with the VM's process: a resize starts a new one.
                    entry = _Entry(one)
                    self._backoff.succeed(uuid)
                self._entries[uuid] = entry
            # Where nothing is asked of Nova any more, nothing would ever say that it answers again.
            is_asked = any(entry.extra_specs is None for entry in self._entries.values())
            self._backoff.keep_only({*self._entries, *([_ALL] if is_asked else [])})
            self._worker.condition.notify_all()
            failure = self._backoff.get(_ALL)
            return [(entry, self._backoff.get(uuid) or failure) for uuid, entry in self._entries.items()]

    def _not_taken(self, entry: _Entry, error: Exception) -> None:
        """Forget an answer that the agent does not take, and ask Nova again in a while if it is wanted still."""
        uuid = entry.wanted["uuid"]
        self._once.log(logging.INFO, ("told", uuid), "VM %s: the agent does not take what Nova told: %s", uuid, error)
        with self._worker.condition:
            if entry.extra_specs is not None:
                entry.extra_specs = None
                self._backoff.fail(uuid, of_error(error))

    def _run(self) -> None:
        while wanted := self._wait():
            try:
                self._ask(wanted)
            except CloudError as error:
                self._failed(_ALL, of_error(error))
            except Exception as error:
                self._failed(_ALL, _unexpected("asking Nova for flavors", error), error)

    def _wait(self) -> list[_Entry]:
        """Wait until Nova is to be asked, and return the VMs to ask for; none once the thread is to end."""
        with self._worker.condition:
            while not self._worker.ends:
                unknown = {uuid: entry for uuid, entry in self._entries.items() if entry.extra_specs is None}
                wanted = [uuid for uuid in unknown if not self._backoff.waits(uuid)]
                if wanted and not self._backoff.waits(_ALL):
                    # Those that failed come last: where Nova is let be after some failures, others have had their turn.
                    return [unknown[uuid] for uuid in sorted(wanted, key=lambda uuid: bool(self._backoff.get(uuid)))]
                self._worker.condition.wait(self._pause() if unknown else None)
        return []

    def _pause(self) -> float | None:
        """Seconds until something may be tried again; what concerns every VM comes first."""
        failure = self._backoff.get(_ALL)
        if failure is not None and self._backoff.waits(_ALL):
            return self._backoff.seconds_until(failure)
        return self._backoff.next_due()

    def _ask(self, wanted: list[_Entry]) -> None:
        answers, is_answered, refused, failed = dict[str, dict[str, str]](), False, "", 0
        not_listed: Exception | None = None
        try:
            if len(wanted) > 1 and time.monotonic() >= self._list_from:
                answers = self._ask_at_once()
        except CloudError as error:
            if not isinstance(error, Refused) or 0 < error.status < 500:
                raise
            # It may be for one server's sake that Nova fails, or answers what makes no sense: the others are answered.
            not_listed = error
        except Exception as error:
            not_listed = error
        for entry in wanted:
            if self._worker.ends:
                return
            uuid = entry.wanted["uuid"]
            try:
                self._answered(entry, answers[uuid] if uuid in answers else self._api.extra_specs(uuid))
                is_answered = True
            except (ServerUnknown, FlavorHidden, Refused) as refusal:
                if not isinstance(refusal, Refused):
                    self._reached()
                if isinstance(refusal, FlavorHidden) or (isinstance(refusal, Refused) and refusal.status):
                    refused = str(refusal)
                self._failed(uuid, of_error(refusal))
                failed += isinstance(refusal, Refused) and refusal.status >= 500
                if not_listed is not None and not is_answered and failed == MOST_FAILED:
                    break
            except CloudError:
                raise
            except Exception as error:  # of this server's alone
                self._failed(uuid, _unexpected("asking Nova for its flavor", error), error)
        if not_listed is not None and not is_answered:
            raise not_listed
        with self._worker.condition:
            # It may be for one server's sake, so no other one waits for this.
            self._refused = "" if is_answered else refused

    def _ask_at_once(self) -> dict[str, dict[str, str]]:
        with self._worker.condition:
            hostname = self._hostname
        if hostname is None:
            raise HostnameUnknown()
        try:
            found = self._api.extra_specs_of_host(hostname)
        except Refused as error:
            if not nova.may_not_list(error):
                raise
            self._list_from = time.monotonic() + LISTS_AGAIN_AFTER
            told = "servers are asked for one by one, not all of this host at once: %s"
            self._once.log(logging.INFO, _LISTING, told, error)
            return {}
        if self._once.end(_LISTING):
            LOG.info("the servers of this host are asked for at once again")
        return found

    def _reached(self) -> None:
        with self._worker.condition:
            if self._backoff.get(_ALL) is not None:
                LOG.info("Nova answers again")
            self._backoff.succeed(_ALL)
            self._refused = ""
        self._once.end(_ALL)

    def _answered(self, entry: _Entry, found: Mapping[str, str]) -> None:
        self._reached()
        uuid = entry.wanted["uuid"]
        with self._worker.condition:
            self._backoff.succeed(uuid)
            entry.extra_specs = extra_specs.relevant(found)
        self._once.end(uuid)

    def _failed(self, key: str, reason: Reason, error: Exception | None = None) -> None:
        """Note a failure.

        :param error: the exception whose traceback is worth logging.
        """
        with self._worker.condition:
            self._backoff.fail(key, reason)
        self._once.log(logging.WARNING, key, "a flavor is not known: %s", reason, error=error)


def _unexpected(doing: str, error: Exception) -> Reason:
    return Reason(Code.OTHER, f"{doing} failed unexpectedly: {type(error).__name__}: {error}"[:ERROR_LENGTH])
