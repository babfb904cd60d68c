# SPDX-License-Identifier: Apache-2.0
"""Asking Nova for the extra specs that a VM's description does not have, beside the loop.

Nova writes them into the description since 2025.2. A VM that was started before, or came by live migration from a host
with an older Nova, has none until its next hard reboot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from oslo_config import cfg

from vmqos.agent.observe.running_vms import unexpected
from vmqos.conf import keystone
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.hypervisor.exceptions import HypervisorError
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.openstack import nova
from vmqos.openstack.exceptions import CloudError, Refused, ServerUnknown
from vmqos.openstack.nova import Nova
from vmqos.openstack.service import Service
from vmqos.reason import Reason, of_error

LOG = logging.getLogger(__name__)

_ALL = ""
"""The key under which the back-off keeps failures that concern every VM."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a VM's flavor.

    :ivar extra_specs: its extra specs; ``None`` until Nova has told them.
    :ivar error: why Nova has not told them; empty while it is being asked.
    """

    extra_specs: Mapping[str, str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    process: Process
    """The VM's process. The flavor changes only with it: a resize starts a new process."""
    extra_specs: Mapping[str, str] | None = None


class FlavorLookup:
    """Asks Nova in a thread of its own, and keeps each answer as long as the VM's process lives.

    :param api: Nova; ``None``: Nova is not asked, and there is no thread.
    :param hostname: tells the compute node's hypervisor hostname.
    :param on_answer: called with the UUID of each VM whose extra specs are known now, from the thread.
    :param backoff: the pauses after failures, by UUID.
    """

    def __init__(
        self, api: Nova | None, hostname: Callable[[], str], on_answer: Callable[[str], None], backoff: Backoff
    ) -> None:
        self._api = api
        self._hostname = hostname
        self._on_answer = on_answer
        self._backoff = backoff
        self._worker = Worker("flavors")
        self._once = LogOnce(LOG)
        self._entries: dict[str, _Entry] = {}
        self._one_by_one = False

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, hostname: Callable[[], str], on_answer: Callable[[str], None]) -> FlavorLookup:
        """As the configuration says."""
        is_on = keystone.is_configured(conf, "nova")
        backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        return cls(Nova(Service(conf, "nova", "compute")) if is_on else None, hostname, on_answer, backoff)

    @property
    def is_on(self) -> bool:
        """Whether Nova is asked."""
        return self._api is not None

    @property
    def waiting(self) -> int:
        """How many VMs' extra specs are not known yet."""
        with self._worker.condition:
            return sum(entry.extra_specs is None for entry in self._entries.values())

    @property
    def error(self) -> str:
        """Why Nova answers for no VM at all; empty where it answers, or was not asked yet."""
        with self._worker.condition:
            failure = self._backoff.get(_ALL)
        return failure.reason.text if failure else ""

    def start(self) -> None:
        """Ask from now on."""
        if self._api is not None:
            self._worker.start(partial(self._run, self._api))

    def stop(self) -> None:
        """Ask no more."""
        self._worker.stop()

    def look_up(self, vms: Iterable[VirtualMachine]) -> dict[str, Found]:
        """What is known of these VMs' flavors, by UUID, without waiting; the thread asks Nova for the others.

        :param vms: all VMs that run and whose descriptions have no extra specs; the others are forgotten.
        """
        if self._api is None:
            return {}
        with self._worker.condition:
            before, self._entries = self._entries, {}
            for vm in vms:
                entry = before.get(vm.uuid)
                if entry is None or entry.process != vm.process:
                    entry = _Entry(vm.process)
                    self._backoff.succeed(vm.uuid)
                self._entries[vm.uuid] = entry
            self._backoff.keep_only({_ALL, *self._entries})
            self._worker.condition.notify_all()
            return {uuid: Found(entry.extra_specs, self._error_of(uuid)) for uuid, entry in self._entries.items()}

    def _error_of(self, uuid: str) -> str:
        failure = self._backoff.get(uuid) or self._backoff.get(_ALL)
        return failure.reason.text if failure else ""

    def _run(self, api: Nova) -> None:
        while wanted := self._wait():
            failed = False
            try:
                self._ask(api, wanted)
            except (CloudError, HypervisorError) as error:
                failed = True
                self._failed(_ALL, of_error(error))
            except Exception as error:
                failed = True
                self._failed(_ALL, unexpected("asking Nova for flavors", error), error)
            if failed:
                for uuid in wanted:
                    # The reasons of these VMs then name the error.
                    self._on_answer(uuid)

    def _wait(self) -> dict[str, _Entry]:
        """Wait until Nova is to be asked, and return the VMs to ask for, by UUID; none once the thread is to end."""
        with self._worker.condition:
            while not self._worker.ends:
                unknown = {uuid: entry for uuid, entry in self._entries.items() if entry.extra_specs is None}
                wanted = {uuid: entry for uuid, entry in unknown.items() if not self._backoff.waits(uuid)}
                if wanted and not self._backoff.waits(_ALL):
                    return wanted
                self._worker.condition.wait(self._pause() if unknown else None)
        return {}

    def _pause(self) -> float | None:
        """Seconds until something may be tried again; what concerns every VM comes first."""
        failure = self._backoff.get(_ALL)
        if failure is not None and self._backoff.waits(_ALL):
            return self._backoff.seconds_until(failure)
        return self._backoff.next_due()

    def _ask(self, api: Nova, wanted: Mapping[str, _Entry]) -> None:
        answers, not_listed, is_answered = dict[str, dict[str, str]](), None, False
        try:
            if len(wanted) > 1 and not self._one_by_one:
                answers = self._ask_at_once(api)
        except (CloudError, HypervisorError):
            raise
        except Exception as error:  # for one server's sake, perhaps: one by one the others are answered
            not_listed = error
        for uuid, entry in wanted.items():
            if self._worker.ends:
                return
            try:
                self._answered(uuid, entry, answers[uuid] if uuid in answers else api.extra_specs(uuid))
                is_answered = True
            except (ServerUnknown, Refused) as refusal:
                if isinstance(refusal, ServerUnknown):
                    self._reached()
                self._failed(uuid, of_error(refusal))
            except (CloudError, HypervisorError):
                raise
            except Exception as error:  # of this server's alone
                self._failed(uuid, unexpected("asking Nova for its flavor", error), error)
            self._on_answer(uuid)
        if not_listed is not None and not is_answered:
            raise not_listed

    def _ask_at_once(self, api: Nova) -> dict[str, dict[str, str]]:
        try:
            return api.extra_specs_of_host(self._hostname())
        except Refused as error:
            if not nova.may_not_list(error):
                raise
            self._one_by_one = True
            LOG.info("servers are asked for one by one, not all of this host at once: %s", error)
            return {}

    def _reached(self) -> None:
        with self._worker.condition:
            if self._backoff.get(_ALL) is not None:
                LOG.info("Nova answers again")
            self._backoff.succeed(_ALL)
        self._once.end(_ALL)

    def _answered(self, uuid: str, entry: _Entry, extra_specs: Mapping[str, str]) -> None:
        self._reached()
        with self._worker.condition:
            self._backoff.succeed(uuid)
            self._once.end(uuid)
            if self._entries.get(uuid) == entry:
                self._entries[uuid] = _Entry(entry.process, extra_specs)

    def _failed(self, key: str, reason: Reason, error: Exception | None = None) -> None:
        """Note a failure.

        :param error: the exception whose traceback is worth logging.
        """
        with self._worker.condition:
            self._backoff.fail(key, reason)
        self._once.log(logging.WARNING, key, "a flavor is not known: %s", reason, error=error)
