# SPDX-License-Identifier: Apache-2.0
"""``vmqos replay``: what 'vmqos neighbours' would have said of what was recorded."""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rich.console import Group
from rich.text import Text

from vmqos.cli import exceptions
from vmqos.cli.common.option_values import seconds, whole_number
from vmqos.cli.common.output import Listing, as_rows, is_for_machines, terminal_of
from vmqos.cli.neighbours import answer, recording, view
from vmqos.cli.neighbours.output import Told, Verdicts
from vmqos.cli.neighbours.recording import Facts, Header, Record, Sweep
from vmqos.cli.show import terminal, units, utc, vm_view
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.insight import judge
from vmqos.local_api import contract

WINDOW = 120
"""Samples of each VM by which the agent judges (:data:`vmqos.agent.sample.recent.MOST`)."""

_LONGEST_WINDOW = 1000
"""Samples of each VM that may be judged at most: that takes a time that grows with the square of them."""

_LONGEST = 86400.0
_MOST_NAMES = 5
_MOST_SAMPLES = 500_000
"""Samples of all VMs in a window: of a thousand VMs these are a hundred and twenty thousand."""
_MOST_HELD = 4_000_000
"""Figures of what a VM holds of a cache, of some ninety bytes each, in a window: of a thousand VMs on thirty caches
these are 3.6 million."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said at one moment.

    :ivar at: of the newest sample, in seconds since the recording's first one.
    :ivar left: seconds for which the recording is too short for the moment that was wanted.
    :ivar vms: what VMs are called, as in the API; their keys are their UUIDs.
    """

    at: float
    left: float
    answer: contract.Neighbours
    vms: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Moments:
    """When to judge, in seconds since the recording's first sample; at its end, where neither is given.

    :ivar window: samples of each VM that a verdict looks at.
    """

    at: float | None = None
    every: float | None = None
    window: int = WINDOW


class Replay(Verdicts):
    """Judge a recording of 'vmqos record' again: print what 'vmqos neighbours' would have said.

    The verdicts are those at the end of the recording, or with --at at a moment in it, or with --every every so many
    seconds of it. Seconds are counted from its first sample. It needs no agent, and the host that was recorded may be
    another one.

    Where a verdict of 'vmqos neighbours' looks wrong: record it ('vmqos record --seconds 0' as soon as it is seen),
    replay the file to see that it says the same, and send the file with the report.

    With -f json or yaml the answer is an object as 'vmqos neighbours' prints it; with --every it is a list of them,
    each with 'at', the seconds. With -f csv or value there is a row for each pair.

    For example::

        vmqos replay verdict.jsonl
        vmqos replay verdict.jsonl vm-3 --at 60
        vmqos replay verdict.jsonl --every 10 -f json
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to judge, and when."""
        parser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="what 'vmqos record' wrote")
        parser.add_argument(
            "vm", metavar="NAME", nargs="?", help="only what concerns this VM, as it is called in the recording"
        )
        moments = parser.add_mutually_exclusive_group()
        moments.add_argument(
            "--at", metavar="SECONDS", type=seconds(0.0, 1e9), help="judge as it was then; at the end unless given"
        )
        moments.add_argument(
            "--every",
            metavar="SECONDS",
            type=seconds(1.0, _LONGEST),
            help="judge again and again, every so many seconds, and at the end",
        )
        parser.add_argument(
            "--window",
            metavar="N",
            type=whole_number(1, _LONGEST_WINDOW),
            default=WINDOW,
            help=f"how many samples of each VM a verdict looks at, {_LONGEST_WINDOW} at most; {WINDOW} unless given, "
            "as the agent",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read, and judge."""
        path = neutralise(parsed_args.file)

        def refuse(line: int, problem: str) -> exceptions.BadRecording:
            return exceptions.BadRecording(path=path, line=line, problem=neutralise(problem))

        try:
            with open(parsed_args.file, "rb") as stream:
                records = recording.read(stream, refuse, self.app.LOG.warning)
                moments = Moments(parsed_args.at, parsed_args.every, parsed_args.window)
                found = list(verdicts(records, moments, refuse))
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise exceptions.UnusableFile(path=path, problem=neutralise(problem)) from error
        if not found:
            raise exceptions.NotInRecording(path=path, wanted="samples", there_is="there is nothing to judge")
        if parsed_args.at is not None and found[-1].left:
            there_is = f"it ends {units.duration(found[-1].at)} after its first sample"
            raise exceptions.NotInRecording(path=path, wanted=f"second {parsed_args.at:g}", there_is=there_is)
        self._series = self._named(found, parsed_args.vm, path)
        if not parsed_args.every:
            return self.prepare(self._series[-1][1], parsed_args)
        if is_for_machines(parsed_args):
            return as_rows([{"at": verdict.at, **told.answer} for verdict, told in self._series])
        rows = [(f"{one.at:g}", *row) for one, told in self._series for row in view.rows(told.answer, told.called)]
        return ("At", *view.TITLES), rows

    def _named(self, found: Sequence[Verdict], vm: str | None, path: str) -> list[tuple[Verdict, Told]]:
        """What is to be printed of each verdict; those of moments at which the VM was not there are left out.

        :raises vmqos.cli.exceptions.NotInRecording: if it never was.
        """
        series: list[tuple[Verdict, Told]] = []
        for verdict in found:
            try:
                series.append((verdict, _told(verdict, vm, path)))
            except exceptions.NotInRecording:
                if verdict is found[-1] and not series:
                    raise
        return series

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]) -> int:
        """Print one verdict as any other, several as a list or one below the other."""
        if not parsed_args.every:
            return super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter != "table" or parsed_args.columns:
            return Listing.produce_output(self, parsed_args, column_names, data)
        screen = terminal_of(self)
        for number, (verdict, told) in enumerate(self._series):
            title = f"At {verdict.at:g} s, {utc.clock(verdict.answer['time'])}:"
            drawn = view.draw(told.answer, told.called, told.vm, screen)
            heading = Text("\n" * (number > 0) + title, style="bold underline")
            terminal.show(Group(heading, drawn), self.app.stdout, screen)
        return 0


def verdicts(records: Iterable[Record], moments: Moments, refuse: Callable[[int, str], Exception]) -> Iterator[Verdict]:
    """What is said at these moments, and at the end; not at moments at which nothing new was recorded.

    :param records: those of a file, the first being that of its first line.
    :param refuse: makes the error of a line's number and of what is wrong there; it is raised.
    """
    interval, facts, due = 0.0, None, moments.every or 0.0
    begun: float | None = None
    kept: deque[Sweep] = deque()
    # What was known at the last of these; of those before, a window would hold as many hosts.
    known: Facts | None = None
    count, held, is_judged = 0, 0, True
    for number, record in enumerate(records, 1):
        if isinstance(record, Header):
            interval = record.interval
            continue
        if isinstance(record, Facts):
            facts = record
            continue
        assert facts is not None, "recording.Lines lets none through before them"
        begun = record.time if begun is None else begun
        passed = record.time - begun
        if moments.at is not None and passed > moments.at:
            assert known is not None, "a moment before the first sample can't be asked for"
            yield _judge(kept, known, interval, begun)
            return
        if moments.every and passed > due:
            if known is not None and not is_judged:
                yield _judge(kept, known, interval, begun)
            due = moments.every * math.ceil(passed / moments.every)
        if known is not None and known.host.caches.keys() != facts.host.caches.keys():
            # A cache went offline, or came: the agent begins anew then, too.
            kept.clear()
            count = held = 0
        kept.append(record)
        known = facts
        count, held = count + len(record.samples), held + _held(record)
        if len(kept) > moments.window:
            oldest = kept.popleft()
            count, held = count - len(oldest.samples), held - _held(oldest)
        if count > _MOST_SAMPLES:
            raise refuse(number, f"with it, {len(kept)} samples of all VMs are more than {_MOST_SAMPLES}")
        if held > _MOST_HELD:
            raise refuse(number, f"with it, {len(kept)} samples have more than {_MOST_HELD} figures of caches")
        is_judged = False
    if known is not None and begun is not None and not is_judged:
        yield _judge(kept, known, interval, begun, left=max(0.0, (moments.at or 0.0) - (kept[-1].time - begun)))


def _held(sweep: Sweep) -> int:
    """How many figures a sample of each VM has of caches."""
    return sum(len(sample.occupancy) for sample in sweep.samples.values())


def _judge(kept: Sequence[Sweep], facts: Facts, interval: float, begun: float, left: float = 0.0) -> Verdict:
    """What is said of the sweeps of a window, by what was known at its end. VMs that are gone by then are left out."""
    newest = kept[-1]
    history = {vm: [sweep.samples[vm] for sweep in kept if vm in sweep.samples] for vm in facts.host.vms}
    history = {vm: samples for vm, samples in history.items() if samples}
    found = answer.of(
        judge(facts.host, history),
        time=newest.time,
        interval=interval,
        samples=max(map(len, history.values()), default=0),
        counted=any(sample.counts is not None for samples in history.values() for sample in samples),
        traffic_counted=any(sample.bandwidth is not None for samples in history.values() for sample in samples),
    )
    vms = [{"uuid": vm, "instance_name": facts.names.get(vm, ""), "name": vm} for vm in facts.host.vms]
    return Verdict(newest.time - begun, left, found, vms)


def _told(verdict: Verdict, wanted: str | None, path: str) -> Told:
    """What of a verdict is to be printed.

    :param wanted: which VM it is to be about.
    :raises vmqos.cli.exceptions.NotInRecording: if there is no such VM.
    """
    called = distinct_names(verdict.vms)
    if wanted is None:
        return Told(verdict.answer, called)
    try:
        uuid = vm_view.find(cast(Sequence[contract.Vm], verdict.vms), wanted)["uuid"]
    except exceptions.NoSuchVm as error:
        some = ", ".join(list(called.values())[:_MOST_NAMES]) + ", ..." * (len(called) > _MOST_NAMES)
        raise exceptions.NotInRecording(
            path=path, wanted=f"VM '{neutralise(wanted)}'", there_is=f"there are {some or 'none'}"
        ) from error
    return Told(view.of_vm(verdict.answer, uuid), called, uuid)
