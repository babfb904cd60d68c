# SPDX-License-Identifier: Apache-2.0
"""The file in which samples are recorded: JSON, an object on each line.

The first line says what the file is: ``{"format": "vmqos-neighbours", "version": 1, "interval": 1.0, "vmqos": "3.1"}``.
Then come lines of two kinds. ``{"host": ...}`` is what is known of the host's caches and VMs from then on, as in the
agent's API; a VM may have its ``name``. ``{"time": ..., "vms": {VM: ...}}`` is one sample of each VM. A line is valid
or is refused, with what is wrong in it: the sender of a file may have written anything.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from vmqos.insight import Cache, Counts, Host, LimitedIn, PercentSteps, Promise, Sample, Vm, plain_host, plain_sample

FORMAT = "vmqos-neighbours"
VERSION = 1

MOST_BYTES = 1 << 30
"""Of a file."""
LONGEST_LINE = 4 << 20
"""Bytes. A sample of a thousand VMs on eight caches has a tenth of that."""

_MOST_ENTRIES = 4096
"""Caches, or VMs, on a line."""
_LONGEST_NAME = 1024
_MOST_WAYS = 64
_MOST_ASKED = 999_999_999
"""The greatest number that an extra spec can have."""
_GREATEST = 1e18
"""The greatest figure. Counts and bytes a second of real machines are far below."""
_LATEST = 1e11
"""The last moment, in seconds since 1970."""
_MASK = re.compile(r"[0-9a-f]{1,16}", re.ASCII)
_CACHE = re.compile(r"[0-9]{1,9}", re.ASCII)
_MEMORY_SECONDS = (1e-10, 1e-3)
_MEMORY_CYCLES = (1.0, 1e6)
_INTERVAL = (1e-3, 86400.0)


class Invalid(Exception):
    """A line that no recording has; the text says what is wrong, and with which value."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a recording says of itself.

    :ivar interval: seconds from one sample to the next.
    :ivar made_by: the agent's version.
    """

    interval: float
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the host from here on.

    :ivar names: what VMs are called; empty where the recording has no names.
    """

    host: Host
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sample of each VM; all of them have its time."""

    time: float
    samples: Mapping[str, Sample]


Record = Header | Facts | Sweep


class Lines:
    """Takes a recording line by line.

    :ivar facts: the newest ones.
    """

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self._header: Header | None = None
        self._time = -1.0

    def take(self, line: bytes) -> Record:
        """What a line says.

        :raises Invalid: if it may not stand there.
        """
        found = _decoded(line)
        if self._header is None:
            self._header = _header(found)
            return self._header
        if "host" in found:
            self.facts = _facts(found["host"])
            return self.facts
        if "time" not in found:
            raise Invalid(f"{reprlib.repr(found)} has neither 'host' nor 'time'")
        if self.facts is None:
            raise Invalid("a sample comes before the line 'host', without which no VM is known")
        sweep = _sweep(found, self.facts.host)
        if sweep.time <= self._time:
            raise Invalid(f"time: {sweep.time!r} is not later than {self._time!r}, which came before")
        self._time = sweep.time
        return sweep


def read(
    stream: BinaryIO, refuse: Callable[[int, str], Exception], tell: Callable[[str], object] = lambda text: None
) -> Iterator[Record]:
    """The lines of a file. An unfinished last one is left out: the command that recorded was killed there.

    :param refuse: makes the error of a line's number and of what is wrong there; it is raised.
    :param tell: called with a sentence on what was left out.
    """
    lines, number, size = Lines(), 0, 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        size += len(line)
        if len(line) > LONGEST_LINE:
            raise refuse(number, f"it is longer than {LONGEST_LINE} bytes: {reprlib.repr(line[:100])}")
        if size > MOST_BYTES:
            raise refuse(number, f"the file is longer than {MOST_BYTES} bytes")
        if not line.endswith(b"\n") and number > 1:
            tell(f"line {number}, the last one, is unfinished and left out")
            break
        try:
            yield lines.take(line)
        except Invalid as error:
            raise refuse(number, str(error)) from error
    if not number:
        raise refuse(1, "the file is empty")


def header_line(header: Header) -> bytes:
    """The first line."""
    return _line({"format": FORMAT, "version": VERSION, "interval": header.interval, "vmqos": header.made_by})


def facts_line(facts: Facts) -> bytes:
    """A line of the host."""
    told = plain_host(facts.host)
    for key, name in facts.names.items():
        told["vms"][key]["name"] = name
    return _line({"host": told})


def sweep_line(sweep: Sweep) -> bytes:
    """A line of samples."""
    return _line({"time": sweep.time, "vms": {key: plain_sample(sample) for key, sample in sweep.samples.items()}})


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{reprlib.repr(line[:100])} is no JSON") from error
    if not isinstance(found, dict):
        raise Invalid(f"{reprlib.repr(found)} is no JSON object")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON that has each name once: of two samples of a VM, neither is known to be the right one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Invalid(f"{reprlib.repr(twice)} comes twice in one object")
    return found


def _header(found: dict[str, Any]) -> Header:
    if found.get("format") != FORMAT:
        raise Invalid(f"format: {reprlib.repr(found.get('format'))} is not {FORMAT!r}, so this is no recording")
    if found.get("version") is True or found.get("version") != VERSION:
        version = reprlib.repr(found.get("version"))
        raise Invalid(f"version: {version} is not {VERSION}, so a vmqos of another version has to replay it")
    return Header(
        _number(found.get("interval"), "interval", *_INTERVAL),
        _text(found["vmqos"], "vmqos") if "vmqos" in found else "",
    )


def _facts(value: object) -> Facts:
    host = _object(value, "host")
    caches = _each(host.get("caches"), "host.caches", _cache_id, _cache)
    vms = _each(host.get("vms"), "host.vms", _text, lambda vm, where: _vm(vm, where, caches))
    return Facts(
        Host(
            caches,
            {key: vm for key, (vm, _) in vms.items()},
            _number(host.get("memory_seconds"), "host.memory_seconds", *_MEMORY_SECONDS),
            _number(host.get("memory_cycles"), "host.memory_cycles", *_MEMORY_CYCLES),
            # Earlier versions did not record it.
            _limited_in(host["bandwidth_unit"]) if "bandwidth_unit" in host else LimitedIn.UNKNOWN,
            _percent_steps(host) if "bandwidth_gran" in host else None,
        ),
        {key: name for key, (_, name) in vms.items() if name is not None},
    )


def _limited_in(value: object) -> LimitedIn:
    units = {unit.value: unit for unit in LimitedIn if unit is not LimitedIn.UNKNOWN}
    if not (value is None or isinstance(value, str)) or value not in units:
        raise Invalid(f"host.bandwidth_unit: {reprlib.repr(value)} is neither '%' nor 'MB/s' nor null")
    return units[value]


def _percent_steps(host: Mapping[str, Any]) -> PercentSteps:
    return PercentSteps(
        _whole(host["bandwidth_gran"], "host.bandwidth_gran", 1, 100),
        _whole(host.get("min_bandwidth"), "host.min_bandwidth", 1, 100),
    )


def _cache(value: object, where: str) -> Cache:
    found = _object(value, where)
    bandwidth = found.get("bandwidth")
    return Cache(
        _whole(found.get("size"), f"{where}.size", 1, 1 << 40),
        _whole(found.get("ways"), f"{where}.ways", 1, _MOST_WAYS),
        None if bandwidth is None else _number(bandwidth, f"{where}.bandwidth", 1.0, _GREATEST),
    )


def _vm(value: object, where: str, caches: Mapping[int, Cache]) -> tuple[Vm, str | None]:
    found = _object(value, where)

    def mask(text: object, place: str) -> int:
        if not isinstance(text, str) or not _MASK.fullmatch(text):
            raise Invalid(f"{place}: {reprlib.repr(text)} is no mask in hexadecimal digits")
        return int(text, 16)

    masks = _each(found.get("masks"), f"{where}.masks", _cache_id, mask)
    for cache, bits in masks.items():
        if cache not in caches:
            raise Invalid(f"{where}.masks: there is no cache {cache}")
        if bits >> caches[cache].ways:
            raise Invalid(f"{where}.masks.{cache}: {bits:x} has more than the {caches[cache].ways} ways of the cache")
    flavor = _text(found.get("flavor"), f"{where}.flavor")
    # Earlier versions recorded neither.
    promise = _promise(found["promise"], f"{where}.promise") if "promise" in found else Promise()
    vcpus = _whole(found.get("vcpus", 0), f"{where}.vcpus", 0, _MOST_ASKED)
    return Vm(flavor, masks, promise, vcpus), _text(found["name"], f"{where}.name") if "name" in found else None


def _promise(value: object, where: str) -> Promise:
    found = _object(value, where)

    def asked(name: str, most: int = _MOST_ASKED) -> int:
        return _whole(found.get(name, 0), f"{where}.{name}", 0, most)

    is_shared = found.get("is_shared", False)
    if not isinstance(is_shared, bool):
        raise Invalid(f"{where}.is_shared: {reprlib.repr(is_shared)} is neither true nor false")
    return Promise(
        asked("ways"), asked("code_ways"), asked("data_ways"), is_shared, asked("percent", 100), asked("mbps")
    )


def _sweep(found: dict[str, Any], host: Host) -> Sweep:
    time = _number(found["time"], "time", 0.0, _LATEST)
    samples = _each(found.get("vms"), "vms", _text, lambda sample, where: _sample(sample, where, time))
    for key in samples:
        if key not in host.vms:
            raise Invalid(f"vms: no line 'host' before this one has a VM {reprlib.repr(key)}")
    return Sweep(time, samples)


def _sample(value: object, where: str, time: float) -> Sample:
    found = _object(value, where)
    counts, bandwidth, cpu_time = found.get("counts"), found.get("bandwidth"), found.get("cpu_time")
    return Sample(
        time,
        _each(found.get("occupancy"), f"{where}.occupancy", _cache_id, _figure),
        None if bandwidth is None else _figure(bandwidth, f"{where}.bandwidth"),
        None if counts is None else _counts(counts, f"{where}.counts"),
        # Earlier versions did not record it.
        None if cpu_time is None else _figure(cpu_time, f"{where}.cpu_time"),
    )


def _counts(value: object, where: str) -> Counts:
    found = _object(value, where)
    names = ("cycles", "instructions", "references", "misses")
    return Counts(*(_figure(found.get(name), f"{where}.{name}") for name in names))


Key = TypeVar("Key", str, int)
Value = TypeVar("Value")


def _each(
    value: object, where: str, key_of: Callable[[str, str], Key], value_of: Callable[[object, str], Value]
) -> dict[Key, Value]:
    found = _object(value, where)
    if len(found) > _MOST_ENTRIES:
        raise Invalid(f"{where}: {len(found)} entries are more than {_MOST_ENTRIES}")
    known = {key_of(key, where): value_of(item, f"{where}.{reprlib.repr(key)[1:-1]}") for key, item in found.items()}
    if len(known) != len(found):
        raise Invalid(f"{where}: {reprlib.repr(list(found))} name one of them twice")
    return known


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(f"{where}: {reprlib.repr(value)} is no JSON object")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{where}: {reprlib.repr(value)} is no text")
    if len(value) > _LONGEST_NAME:
        raise Invalid(f"{where}: {reprlib.repr(value)} is longer than {_LONGEST_NAME} characters")
    return value


def _cache_id(text: str, where: str) -> int:
    if not _CACHE.fullmatch(text):
        raise Invalid(f"{where}: {reprlib.repr(text)} is no cache id")
    return int(text)


def _figure(value: object, where: str) -> float:
    return _number(value, where, 0.0, _GREATEST)


def _number(value: object, where: str, least: float, most: float) -> float:
    # The comparison refuses NaN, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Invalid(f"{where}: {reprlib.repr(value)} is no number from {least:g} to {most:g}")
    return value


def _whole(value: object, where: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{where}: {reprlib.repr(value)} is no whole number from {least} to {most}")
    return value
