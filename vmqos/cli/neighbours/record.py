# SPDX-License-Identifier: Apache-2.0
"""``vmqos record``: what the agent judges neighbours by, written into a file."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, TextIO

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.option_values import seconds, size
from vmqos.cli.neighbours import ask, recording
from vmqos.cli.neighbours.recording import Facts, Header, Sweep
from vmqos.cli.neighbours.view import count_of
from vmqos.cli.show import terminal as terminals
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.insight import Cache, Host, Sample, Vm
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentHungUp, AgentNotRunning, AgentTimeout

DURATION = 120.0
LONGEST = 86400.0
MOST_BYTES = "64M"
LEAST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two questions; in between, it is the agent's own interval."""

SPARE = 3
"""Samples that are asked for once more with each question."""

STANDARD_OUTPUT = "-"

_BAR = 30


class Record(Documented):
    """Record what the agent judges neighbours by, for a bug report on a verdict of 'vmqos neighbours'.

    The file has what the agent counted of each VM: how much of the L3 caches it holds, its traffic with memory, how
    long it ran and, where the host counts them, its hardware events. It also has which ways each VM may fill, and
    what its flavor promises. It begins with what the agent still knows of the last minutes (four, unless
    [telemetry] interval says otherwise), and goes on for --seconds. So a verdict that was just given can still be
    recorded: --seconds 0 writes down what the agent knows, and ends at once.

    There are no names and no UUIDs in the file: VMs are called vm-1, vm-2 and so on, flavors flavor-1, flavor-2. The
    command prints which is which at its end. With --names, the names and UUIDs are in the file.

    It ends after --seconds, with Ctrl-C, or when the file has --max-size bytes, and then says what is in the file.
    Whatever ends it, a full disk included, the file can be replayed ('vmqos replay'). If the host's clock is set back
    meanwhile, later samples get later times in the file than the clock said, and a line says so.

    Only its owner may read the file, and a file that is there already is never written to. Each line of it is an
    object in JSON. With -o - the recording goes to standard output, and what the command says to standard error.

    For example::

        vmqos record
        vmqos record --seconds 0 -o verdict.jsonl
        vmqos record --seconds 3600 --max-size 1G --names
        vmqos record --seconds 0 -o - | gzip >verdict.jsonl.gz
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add how long, where to, and with which names."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--seconds",
            metavar="N",
            type=seconds(0.0, LONGEST),
            default=DURATION,
            help=f"how long to go on; with 0, only what the agent knows already is recorded; {DURATION:g} unless given",
        )
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="the file, which must not be there yet, or - for standard output; vmqos-record-TIME.jsonl in this "
            "directory unless given",
        )
        parser.add_argument(
            "--max-size",
            metavar="SIZE",
            type=size("64K", "1G"),
            default=MOST_BYTES,
            help=f"how large the file may be, in bytes, such as 10M, from 64K to 1G; {MOST_BYTES} unless given",
        )
        parser.add_argument(
            "--names", action="store_true", help="have the names and UUIDs of VMs and flavors in the file"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Ask the agent again and again, and write down what it tells."""
        if parsed_args.output == STANDARD_OUTPUT and self.app.stdout.isatty():
            problem = "-o - is for a pipe or a file, and standard output is a terminal"
            raise exceptions.NotTogether(problem=problem, command="record")
        agent = settings.agent(self.app.options)
        interval = ask.verdicts(agent)["interval"]
        if not interval:
            raise exceptions.NothingSampled()
        called = distinct_names(agent.vms())
        series = Series(called, parsed_args.names, interval)
        first, header = ask.samples(agent), Header(interval, agent.health()["version"])
        path = parsed_args.output or time.strftime("vmqos-record-%Y%m%d-%H%M%S.jsonl", time.gmtime())
        most = parsed_args.max_size
        with Pipe(self.app.stdout.buffer, most) if path == STANDARD_OUTPUT else File(path, most) as file:
            file.write(recording.header_line(header))
            progress = Progress(self.app.stderr, self.app.options.no_color, parsed_args.seconds)
            try:
                for lines in self._ask(agent, series, first, parsed_args.seconds, interval, progress):
                    if not file.take(lines):
                        self.app.LOG.warning(f"the file is full (--max-size): it has {units.size(file.size)}")
                        break
            except KeyboardInterrupt:
                # That is how one ends it.
                pass
            finally:
                progress.end()
                self._say(file, interval, series)
        return 0

    def _ask(
        self,
        agent: AgentClient,
        series: Series,
        found: contract.NeighbourSamples,
        duration: float,
        interval: float,
        progress: Progress,
    ) -> Iterator[list[Facts | Sweep]]:
        """What each answer adds, until the time is over."""
        end = time.monotonic() + duration
        is_away = False
        while True:
            yield series.add(found)
            left = end - time.monotonic()
            progress.show(duration - left, series)
            if left <= 0:
                return
            time.sleep(min(left, max(LEAST_PAUSE, min(interval, LONGEST_PAUSE))))
            # What was told is kept where the agent ends before it tells the names.
            found = {**found, "samples": {}}
            try:
                found = ask.samples(agent, series.since(time.time()))
                if found["host"]["vms"].keys() - series.called.keys():
                    series.call(distinct_names(agent.vms()))
                is_away = False
            except (AgentNotRunning, AgentHungUp, AgentTimeout, AgentFailed) as error:
                if not is_away:
                    progress.end()
                    self.app.LOG.warning(f"{error}; waiting for it")
                is_away = True

    def _say(self, file: File, interval: float, series: Series) -> None:
        """What is in the file, and who is who in it."""
        tell = (self.app.stderr if isinstance(file, Pipe) else self.app.stdout).write
        path = "What was written" if isinstance(file, Pipe) else neutralise(shlex.quote(file.path))
        events = "with hardware events" if series.is_counted else "without hardware events"
        samples = f"{count_of(file.sweeps, 'sample')} of {interval:g} s of {count_of(len(series.keys))}"
        tell(f"{path} has {samples}, {events}: {units.size(file.size)}.\n")
        if series.set_back:
            tell(
                f"The clock was set back by about {units.duration(series.set_back)} in that time. In the file, all "
                "samples after that have times that are as much later: they stand in the order in which they were "
                "taken.\n"
            )
        if series.left_out:
            tell(f"It leaves out {count_of(series.left_out, 'sample')} of VMs that ended.\n")
        if series.has_names:
            tell("It has the names and UUIDs of VMs and flavors.\n")
        else:
            tell("It has no names and no UUIDs. This list is not in the file:\n")
            for uuid, key in series.keys.items():
                tell(f"  {key} is {series.called.get(uuid) or neutralise(uuid)}\n")
            for flavor, key in series.flavors.items():
                tell(f"  {key} is {neutralise(flavor)}\n")
        tell(f"See what it says with 'vmqos replay {'FILE' if isinstance(file, Pipe) else path}'.\n")


class Series:
    """What the agent told, answer after answer, as a recording has it.

    The times of a recording ascend. Where the host's clock was set back, later samples get later times than the agent
    told, so that the recording has them in the order in which they were taken, as the agent judges them.

    :param called: what VMs are called, by UUID.
    :param has_names: whether names and UUIDs may be recorded.
    :param interval: seconds from one sample to the next.
    :ivar keys: what each VM is called in the recording, by UUID; ``flavors`` the same of flavors, by name.
    :ivar is_counted: whether any sample had hardware events.
    :ivar left_out: samples of VMs of which the agent tells no more than these.
    :ivar set_back: by how many seconds the clock was set back, all in all, so that samples have later times.
    """

    def __init__(self, called: Mapping[str, str], has_names: bool, interval: float) -> None:
        self.called = dict(called)
        self.has_names = has_names
        self.keys: dict[str, str] = {}
        self.flavors: dict[str, str] = {}
        self.is_counted = False
        self.left_out = 0
        self.set_back = 0.0
        self._interval = interval
        self._taken: set[float] = set()
        self._last: float | None = None
        self._facts: Facts | None = None

    def call(self, called: Mapping[str, str]) -> None:
        """Take the names of VMs that came later; what a VM was called before it still is."""
        self.called = {**called, **self.called}

    def since(self, now: float) -> float | None:
        """The time after which samples are to be asked for; ``None``: for all that the agent has.

        :param now: what the host's clock says, in seconds since 1970.
        """
        if self._last is None or now < self._last:
            # A sample of the future was taken before the clock was set back: what was taken since is not after it.
            return None
        # Nor is what was taken between a clock that was set back a little and this question.
        return self._last - SPARE * self._interval

    def add(self, found: contract.NeighbourSamples) -> list[Facts | Sweep]:
        """What an answer adds: facts, where they have changed, and samples, in the order in which they were taken."""
        facts = self._of_host(found["host"])
        lines: list[Facts | Sweep] = [facts] if facts != self._facts else []
        self._facts = facts
        by_time: dict[float, dict[str, Sample]] = {}
        new = {sample["time"] for samples in found["samples"].values() for sample in samples} - self._taken
        for uuid, samples in found["samples"].items():
            for sample in samples:
                if sample["time"] not in new:
                    continue
                if uuid not in found["host"]["vms"]:
                    self.left_out += 1
                    continue
                by_time.setdefault(sample["time"], {})[self.keys[uuid]] = ask.plain(sample)
                self.is_counted = self.is_counted or sample["counts"] is not None
        self._taken |= new
        for moment in _as_taken(found["samples"].values(), by_time.keys()):
            if self._last is not None and moment <= self._last:
                # How long ago the last one was then, no clock says: most likely an interval.
                self.set_back += self._last + self._interval - moment
            self._last = moment
            lines.append(_at(moment + self.set_back, by_time[moment]))
        return lines

    def _of_host(self, host: contract.SampledHost) -> Facts:
        for uuid in host["vms"]:
            self.keys.setdefault(uuid, uuid if self.has_names else f"vm-{len(self.keys) + 1}")
        vms = {
            self.keys[uuid]: Vm(self._flavor(vm["flavor"]), _masks(vm), ask.promise(vm), vm.get("vcpus", 0))
            for uuid, vm in host["vms"].items()
        }
        names = {uuid: self.called[uuid] for uuid in host["vms"] if self.has_names and uuid in self.called}
        caches = {
            int(number): Cache(cache["size"], cache["ways"], cache["bandwidth"])
            for number, cache in host["caches"].items()
        }
        figures = host["memory_seconds"], host["memory_cycles"]
        known = Host(caches, vms, *figures, ask.limited_in(host), ask.percent_steps(host))
        return Facts(known, names)

    def _flavor(self, name: str) -> str:
        if self.has_names or not name:
            return name
        return self.flavors.setdefault(name, f"flavor-{len(self.flavors) + 1}")


class File:
    """The file that is recorded into. Whenever it ends, it has whole lines alone, each of which can be replayed.

    :param most: bytes that it may have.
    :ivar size: bytes that it has; ``sweeps`` is how many samples of each VM these are.
    """

    def __init__(self, path: str, most: int) -> None:
        self.path = path
        self.size = self.sweeps = 0
        self._most = most
        self._lines = recording.Lines()
        self._open(path)

    def _open(self, path: str) -> None:
        try:
            # Not what another user laid there: a file that is there, or a link to one, is refused.
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileExistsError as error:
            raise self._unusable("it is there already; name another one with -o") from error
        except (OSError, ValueError) as error:
            raise self._unusable(getattr(error, "strerror", None) or str(error)) from error

    def __enter__(self) -> File:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._cut()
            if not self.size:
                os.unlink(self.path)
            os.fsync(self._fd)
        except OSError as problem:
            raise self._unusable(problem.strerror or str(problem)) from problem
        finally:
            os.close(self._fd)

    def take(self, records: list[Facts | Sweep]) -> bool:
        """Write lines; returns whether there was room for all of them."""
        for record in records:
            line = recording.facts_line(record) if isinstance(record, Facts) else recording.sweep_line(record)
            if self.size + len(line) > self._most:
                return False
            self.write(line)
            self.sweeps += isinstance(record, Sweep)
        return True

    def write(self, line: bytes) -> None:
        """Write a line, whole or not at all.

        :raises vmqos.cli.exceptions.UnusableFile: if it can't be written, or could not be replayed.
        """
        try:
            self._lines.take(line)
        except recording.Invalid as error:
            raise self._unusable(f"the agent told what can't be recorded: {error}") from error
        if len(line) > recording.LONGEST_LINE:
            raise self._unusable(f"the agent told more than {recording.LONGEST_LINE} bytes at once")
        try:
            self._put(line)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._cut()
            raise self._unusable(error.strerror or str(error)) from error
        self.size += len(line)

    def _put(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _cut(self) -> None:
        """Take away what was begun and not ended."""
        os.ftruncate(self._fd, self.size)

    def _unusable(self, problem: str) -> exceptions.UnusableFile:
        return exceptions.UnusableFile(path=neutralise(self.path), problem=neutralise(problem))


class Pipe(File):
    """Standard output in the place of a file. A line that was begun is ended by the stream, when Python ends at last.

    :param stream: where the lines go.
    :raises BrokenPipeError: where nobody reads them any more.
    """

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        super().__init__("standard output", most)

    def _open(self, path: str) -> None:
        """It is open already."""

    def __exit__(self, *error: object) -> None:
        """It stays open."""

    def _put(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()

    def _cut(self) -> None:
        """It can't be taken away."""


class Progress:
    """Tells on standard error how far it is: in a terminal by a line that changes, elsewhere once.

    :param duration: seconds that it takes.
    """

    def __init__(self, stream: TextIO, no_color: bool, duration: float) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._screen = terminals.of_stream(stream, os.environ, no_color)
        self._duration = duration
        if not self._live and duration:
            self._write(f"Recording for {duration:g} s; Ctrl-C ends it earlier.\n")

    def show(self, passed: float, series: Series) -> None:
        """Show how many seconds have passed."""
        if self._live:
            done = min(_BAR, int(_BAR * passed / self._duration)) if self._duration else _BAR
            bar = self._screen.glyph("█", "#") * done + self._screen.glyph("░", ".") * (_BAR - done)
            text = f"{bar} {min(passed, self._duration):.0f} of {self._duration:.0f} s, {count_of(len(series.keys))}"
            self._write(f"\r\x1b[K{text}, Ctrl-C ends it"[: 4 + self._screen.width - 1])

    def end(self) -> None:
        """Take the line away."""
        if self._live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _at(moment: float, samples: Mapping[str, Sample]) -> Sweep:
    return Sweep(moment, {key: replace(sample, time=moment) for key, sample in samples.items()})


def _as_taken(answer: Iterable[Sequence[contract.NeighbourSample]], times: Collection[float]) -> list[float]:
    """These times in the order in which the samples were taken, which is that of each VM's samples in an answer.

    A sample that comes after one with a later time was taken after the clock had been set back.
    """
    set_back: dict[float, int] = {}
    for samples in answer:
        count, before = 0, -math.inf
        for sample in samples:
            count += sample["time"] < before
            before = sample["time"]
            # A VM that came after it knows nothing of it.
            set_back[before] = max(count, set_back.get(before, 0))
    return sorted(times, key=lambda moment: (set_back[moment], moment))


def _masks(vm: contract.SampledVm) -> dict[int, int]:
    return {int(cache): units.parse_mask(mask) for cache, mask in vm["masks"].items()}
