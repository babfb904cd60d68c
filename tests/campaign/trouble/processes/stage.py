# SPDX-License-Identifier: Apache-2.0
"""Real processes, and what happens to them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.trouble import logged
from tests.campaign.trouble.choices import POLICIES
from tests.campaign.trouble.processes.judging_simulator import COUNTDOWN, FAULTS, TRUTH, VERDICTS
from tests.campaign.trouble.seen import Seen
from tests.campaign.trouble.settled import unsettled
from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind, Violation
from tests.campaign.trouble.vm import Vm
from tests.functional.agent.tree import Tree
from tools.lab import mounts, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls
from tools.lab.versions import Exchangeable
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace
from vmqos.conf.libvirt import DEFAULT_GROUP, OWN_WAYS
from vmqos.gateway.main import LOOK_INTERVAL

MOST_VMS = 5
WITHIN = 3.0
"""Seconds after which all must be settled once it is quiet and the agent has looked at its host: one second is the
agent's, and the others are for a machine on which every CPU is wanted. Those in which it has none for anybody do not
count. The stories that are played within one process know the time that the agent itself takes (``QUIET``)."""

GIVE_UP = 60.0
"""Seconds to wait for that at most."""
POLL = 0.05
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
"""How many events of a directory the kernel keeps."""
STATE_SIZE = 64 << 10
"""Bytes of the filesystem that the agent's state is on while it is full."""

FLAVORS: tuple[Mapping[str, str], ...] = (
    {"hw:cache_ways": "1"},
    {"hw:cache_ways": "2"},
    {"hw:cache_ways": "4"},
    {"hw:cache_ways": "2", "hw:cache_policy": "shared"},
    {},
)


@dataclass
class Actor:
    """A VM of libvirt's, and what the judge is told of it."""

    running: RunningVm
    truth: Vm


@dataclass
class Stage:
    """What the trouble befalls.

    :ivar installed: the version of agent and gateway that their next start is of.
    :ivar folder: the judge's, see :mod:`tests.campaign.trouble.processes.judging_simulator`.
    :ivar stalls: when the machine had no CPU for anybody.
    :ivar other: another host, of which the agent knows nothing.
    :ivar actors: the VMs of this host.
    :ivar others: the VMs of the other host.
    :ivar outcome: what came of it so far.
    :ivar happened: the events so far, for people.
    :ivar left: how many VMs have migrated to the other host.
    :ivar came: how many have come from there.
    """

    workspace: Workspace
    host: PrivateLibvirt
    agent: Agent
    installed: Exchangeable
    tree: Tree
    simulator: Simulator
    folder: Path
    stalls: Stalls
    other: PrivateLibvirt
    actors: list[Actor] = field(default_factory=list)
    others: list[Actor] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome(stories=1))
    happened: list[str] = field(default_factory=list)
    left: int = 0
    came: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self._logs = (self.agent, self.agent.log), (self.agent.gateway, self.agent.gateway.log)

    # What the judge is told.

    def tell_truth(self) -> None:
        """Have the judge know the VMs as they are."""
        everyone = [actor.truth for actor in (*self.actors, *self.others)]
        told = [{**asdict(vm), "cpus": sorted(vm.cpus)} for vm in everyone]
        new = self.folder / f"{TRUTH}.new"
        new.write_text(json.dumps(told))
        new.rename(self.folder / TRUTH)

    def touch(self, actor: Actor) -> None:
        """Something is about to happen to a VM."""
        actor.truth.in_force = False
        self.tell_truth()

    # What happens.

    def start_vm(self, luck: random.Random) -> None:
        if len(self.actors) >= MOST_VMS:
            return self.end_vm(luck)
        self.actors.append(self.run_vm(self.host, luck.choice(FLAVORS)))
        self.tell_truth()

    def run_vm(self, host: PrivateLibvirt, specs: Mapping[str, str]) -> Actor:
        """A new VM on one of the two hosts."""
        self.number += 1
        running = vms.run(host, vms.Vm(f"trouble-{self.number}", vms.Flavor("flavor", specs), vcpus=1))
        return self.actor(running, specs)

    def actor(self, running: RunningVm, specs: Mapping[str, str]) -> Actor:
        """A VM that runs on one of the two hosts, as the judge is to know it."""
        cpus, is_elsewhere = frozenset(os.sched_getaffinity(0)), running.host is self.other
        return Actor(running, Vm(uuid=running.uuid, specs=specs, pid=running.pid, cpus=cpus, is_elsewhere=is_elsewhere))

    def end_vm(self, luck: random.Random) -> None:
        if self.actors:
            actor = self.actors.pop(luck.randrange(len(self.actors)))
            self.tell_truth()
            vms.remove(self.host.connection(), actor.running.uuid)

    def kill_vm(self, luck: random.Random) -> None:
        if self.actors:
            actor = self.actors.pop(luck.randrange(len(self.actors)))
            self.tell_truth()
            os.kill(actor.truth.pid, signal.SIGKILL)

    def resize_vm(self, luck: random.Random) -> None:
        if self.actors:
            self.resize(luck.choice(self.actors), luck.choice(FLAVORS))

    def resize(self, actor: Actor, specs: Mapping[str, str]) -> None:
        """Give a VM of one of the two hosts another flavor."""
        self.touch(actor)
        actor.truth.specs = specs
        self.tell_truth()
        actor.running.change_flavor(vms.Flavor("another", specs))

    def choose_incoming_memory(self, luck: random.Random) -> None:
        """The agent reads it when it is started next."""
        self.agent.configure({"libvirt": {"incoming_memory": luck.choice((OWN_WAYS, DEFAULT_GROUP))}})

    def kill_agent(self, luck: random.Random) -> None:
        self.agent.kill()
        self.choose_incoming_memory(luck)
        self.outcome.kills += 1
        self.agent.start(wait=luck.random() < 0.5)

    def kill_agent_at_a_write(self, luck: random.Random) -> None:
        """It dies at one of its next writes; until then it goes on."""
        countdown = self.folder / COUNTDOWN
        new = countdown.with_suffix(".new")
        new.write_text(str(luck.randint(1, 10)))
        new.rename(countdown)
        self.resize_vm(luck)
        # Where there is less to write than that, nothing happens.
        until = time.monotonic() + 1.0
        while countdown.exists() and time.monotonic() < until:
            time.sleep(POLL)
        if not self._is_disarmed():
            self.outcome.kills += 1
            # It may be dying still.
            self.agent.kill()
            self.agent.start()

    def _is_disarmed(self) -> bool:
        """Whether nobody was killed, nor is any more."""
        countdown = self.folder / COUNTDOWN
        with contextlib.suppress(FileNotFoundError), countdown.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                countdown.unlink()
                return True
        return False

    def stop_agent_for_a_while(self, luck: random.Random) -> None:
        assert self.agent.pid is not None
        os.kill(self.agent.pid, signal.SIGSTOP)
        self.resize_vm(luck)
        time.sleep(luck.random())
        os.kill(self.agent.pid, signal.SIGCONT)

    def restart_agent(self, luck: random.Random) -> None:
        self.agent.stop()
        self.choose_incoming_memory(luck)
        self.start_vm(luck)
        self.agent.start()

    def exchange_agent(self, luck: random.Random) -> None:
        """Agent and gateway are exchanged for the version before, and after a while for this one again."""
        for is_new in (False, True):
            self.install(is_new=is_new)
            if luck.random() < 0.5:
                self.agent.stop()
            else:
                self.agent.end()
            luck.choice((self.start_vm, self.end_vm, self.resize_vm))(luck)
            self.agent.start()
            self.resize_vm(luck)

    def install(self, *, is_new: bool) -> None:
        """Install this version of agent and gateway, or the one before, which has logs that nobody judges."""
        self.installed.install(agent=is_new, gateway=is_new)
        for program, log in self._logs:
            program.log = log if is_new else log.with_name(f"{log.stem}-before{log.suffix}")

    def overflow_inotify(self, luck: random.Random) -> None:
        """More files change in libvirt's directory than the kernel keeps for the agent; a VM starts or ends as well."""
        assert self.agent.pid is not None
        files = [self.host.run_dir / name for name in ("flood-1", "flood-2")]
        files[0].touch()
        os.kill(self.agent.pid, signal.SIGSTOP)
        try:
            self.end_vm(luck)
            # Renamed to and fro: the kernel keeps only one of several events that say the same.
            for number in range(int(QUEUE.read_text()) + 100):
                files[number % 2].rename(files[1 - number % 2])
            self.start_vm(luck)
        finally:
            os.kill(self.agent.pid, signal.SIGCONT)
            for file in files:
                file.unlink(missing_ok=True)

    def reload_agent(self, luck: random.Random) -> None:
        """The operator writes another policy, and has the agent read it, once it can be told (SIGHUP ends it before).

        systemd tells no service to reload that has not said that it is ready (``Type=notify``).
        """
        self._until(self._answers)
        self.agent.configure({"allocation": luck.choice(POLICIES)})
        self.agent.reload()

    def fail_counters(self, luck: random.Random) -> None:
        """From the next write on no counter can be read, or all can be again."""
        faults = self.folder / FAULTS
        if faults.exists():
            faults.unlink()
        else:
            faults.touch()

    def hold_the_lock(self, luck: random.Random) -> None:
        """Another program holds the lock on resctrl for a while."""
        root = os.open(self.tree.root, os.O_RDONLY)
        try:
            fcntl.flock(root, fcntl.LOCK_EX)
            self.resize_vm(luck)
            time.sleep(luck.random())
        finally:
            os.close(root)

    def kill_gateway(self, luck: random.Random) -> None:
        self.agent.gateway.kill()
        self.agent.gateway.start()

    def stop_gateway_for_a_while(self, luck: random.Random) -> None:
        """For longer than it waits between two looks at the agent, or not."""
        if (pid := self.agent.gateway.pid) is not None:
            os.kill(pid, signal.SIGSTOP)
            self.resize_vm(luck)
            time.sleep(luck.uniform(0.0, 1.5 * LOOK_INTERVAL))
            os.kill(pid, signal.SIGCONT)

    def kill_libvirtd(self, luck: random.Random) -> None:
        self.host.kill()
        if luck.random() < 0.5:
            self.kill_vm(luck)
        time.sleep(luck.random())
        self.host.start()

    def fill_the_disk(self, luck: random.Random) -> None:
        """The agent is started anew where nothing more can be written."""
        state = self.agent.socket.parent
        self.agent.stop()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_SIZE}", "tmpfs", str(state)], check=True)
        self.workspace.record_mount(state)
        try:
            with contextlib.suppress(OSError), (state / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
            self.agent.start()
            self.resize_vm(luck)
            self.settle()
            self.agent.stop()
        finally:
            mounts.unmount(state)
        self.agent.start()

    # Once it is quiet.

    def settle(self) -> None:
        """Wait until all is settled; note how long it took, and what is wrong if it never is."""
        if self.agent.pid is None:
            self.agent.start()
        self._until(self._has_looked)
        began = time.monotonic()
        wrong = list[Violation]()

        def is_settled() -> bool:
            wrong[:] = self._wrong()
            return not wrong

        self._until(is_settled)
        took = self.stalls.took(began)
        self.outcome.quiets += 1
        self.outcome.longest = max(self.outcome.longest, took)
        if wrong:
            self.outcome.violations += wrong
        elif took > WITHIN:
            self.outcome.violations.append(Violation(Kind.UNSERVED, f"all was settled after {took:.1f} s only"))
        for actor in self.actors:
            actor.truth.in_force = actor.truth.is_exclusive and self._row(actor)["state"] == "kept"
        self.tell_truth()

    def _wrong(self) -> list[Violation]:
        """What is not as it should be on a quiet host."""
        if self.agent.gateway.has_ended:
            return [Violation(Kind.UNSERVED, "the gateway has ended, and nobody had it end")]
        try:
            rows, groups = self.agent.get("/v1/vms")["vms"], self._groups()
        except (OSError, RuntimeError) as error:
            return [Violation(Kind.UNSERVED, f"{type(error).__name__}: {error}")]
        return list(unsettled(rows, [actor.truth for actor in self.actors], groups))

    def _groups(self) -> dict[str, Seen]:
        """The control groups, as other programs see them."""
        tree, found = self.tree, dict[str, Seen]()
        for name in ("", *tree.groups()):
            masks = {(3, cache): mask for cache, mask in tree.masks(name).items()}
            tasks = frozenset(tree.tasks(name)) if name else frozenset[int]()
            found[name] = Seen(masks, {}, {}, tasks, frozenset(), tuple(tree.monitoring_groups(name)))
        return found

    def _row(self, actor: Actor) -> Any:
        return next(row for row in self.agent.get("/v1/vms")["vms"] if row["uuid"] == actor.truth.uuid)

    def _answers(self) -> bool:
        """Whether the agent answers: it heeds signals by then."""
        try:
            self.agent.get("/v1/health")
        except (OSError, RuntimeError):
            return False
        return True

    def _has_looked(self) -> bool:
        try:
            health = self.agent.get("/v1/health")
        except (OSError, RuntimeError):
            return False
        return bool(health["status"] != "starting" and health["libvirt"]["connected"])

    def _until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + GIVE_UP
        while not condition() and time.monotonic() < until:
            time.sleep(POLL)

    def close(self) -> Outcome:
        """What came of all, with the judge's verdicts and the faults that agent and gateway logged."""
        verdicts = self.folder / VERDICTS
        texts = verdicts.read_text().splitlines() if verdicts.exists() else []
        self.outcome.violations += [Violation(Kind.OVERLAP, text) for text in texts]
        for who, (_, log) in zip(("the agent", "the gateway"), self._logs, strict=True):
            self.outcome.violations += logged.faults(log, who)
        self.outcome.writes = len(self.simulator.changes())
        return self.outcome


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Another program wants every CPU, as a VM's would."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(["nice", *command]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def judging(simulator: Simulator, folder: Path) -> Iterator[None]:
    """Replaces the simulator by one with the judge in it, as long as the block runs."""
    (folder / TRUTH).write_text("[]")
    module = "tests.campaign.trouble.processes.judging_simulator"
    with simulator.replaced(module, simulator.profile, simulator.root, simulator.sysfs, simulator.log, folder):
        yield
