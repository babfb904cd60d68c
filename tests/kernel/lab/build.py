# SPDX-License-Identifier: Apache-2.0
"""Making what the cache lacks, and what Debian has newer packages for."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.kernel.lab import debian, needs
from tests.kernel.lab.cache import Cache, Part
from tests.kernel.lab.errors import BuildFailed, LabError
from tests.kernel.lab.progress import Display
from tests.kernel.lab.recipes import Recipe, recipes

WEEK = 7 * 86400
"""Seconds after which a build asks the mirror for newer versions."""

FULL = 1 << 20
"""Bytes: a disk that has no more left is full for a build."""

LOG_TAIL = 25
"""Lines of a log that an error shows."""


def ready(cache: Cache) -> dict[str, Part]:
    """All parts, by name. The plugin, which needs neither root nor a network, is made if need be.

    :raises NotBuilt: where a part is missing.
    :raises BuildFailed: if the plugin can't be compiled.
    :raises Lacking: if there is no compiler.
    """
    for recipe in recipes():
        if recipe.packages is None and cache.find(recipe.name, recipe.digest) is None and cache.root.exists():
            build(cache, Display(quiet=True), only=(recipe.name,))
    return {recipe.name: cache.get(recipe.name, recipe.digest) for recipe in recipes()}


def build(cache: Cache, display: Display, *, refresh: bool = False, only: Iterable[str] = ()) -> dict[str, Part]:
    """Make what is missing or, if the last look is a week ago, outdated.

    :param refresh: look for newer packages now.
    :param only: names of parts; all, if empty.
    :returns: the parts, by name.
    :raises BuildFailed: the message has the end of the log.
    :raises Lacking: if the machine lacks something; the message says what.
    """
    wanted = [recipe for recipe in recipes() if not only or recipe.name in only]
    if refresh or any(_why(cache, recipe) for recipe in wanted):
        with cache.locked(lambda: display.say(f"waiting for another build in {cache.root}")):
            # Whoever we waited for may have made it.
            to_make = _to_make(cache, wanted, display, refresh=refresh)
            if to_make:
                _require(cache, to_make)
                with display.showing():
                    _make_all(cache, to_make, display)
            cache.remove_unused()
    return {recipe.name: cache.get(recipe.name, recipe.digest) for recipe in wanted}


def _why(cache: Cache, recipe: Recipe) -> str:
    """Why a part needs a look: ``missing``, ``old`` or nothing."""
    part = cache.find(recipe.name, recipe.digest)
    if part is None:
        return "missing"
    return "old" if recipe.packages and time.time() - part.manifest["checked"] > WEEK else ""


def _to_make(cache: Cache, wanted: Sequence[Recipe], display: Display, *, refresh: bool) -> list[Recipe]:
    missing = [recipe for recipe in wanted if cache.find(recipe.name, recipe.digest) is None]
    old = [recipe for recipe in wanted if recipe not in missing and (refresh or _why(cache, recipe))]
    return missing + _outdated(cache, [recipe for recipe in old if recipe.packages], display, refresh=refresh)


def _outdated(cache: Cache, old: Sequence[Recipe], display: Display, *, refresh: bool) -> list[Recipe]:
    """Of these parts, those for which Debian has other versions now."""
    outdated = []
    by_suite: dict[str, list[Recipe]] = {}
    for recipe in old:
        assert recipe.packages
        by_suite.setdefault(recipe.packages.suite, []).append(recipe)
    for suite, of_suite in by_suite.items():
        display.say(f"asking for newer packages of {suite}")
        names = sorted({name for recipe in of_suite if recipe.packages for name in recipe.packages.names})
        try:
            newest = debian.newest(suite, names, cache.scratch(f"lists-{suite}"))
        except LabError as error:
            if refresh:
                raise
            display.say(f"going on with what there is: {error}")
            continue
        for recipe in of_suite:
            part = cache.get(recipe.name, recipe.digest)
            assert recipe.packages
            if newer := [
                f"{name} {newest[name]}"
                for name in recipe.packages.names
                if part.manifest["versions"].get(name) != newest[name]
            ]:
                display.say(f"{recipe.name}: there is {', '.join(newer)}")
                outdated.append(recipe)
            else:
                part.note(checked=time.time())
    return outdated


def _require(cache: Cache, to_make: Sequence[Recipe]) -> None:
    of_packages = [recipe for recipe in to_make if recipe.packages]
    missing = needs.for_packages(cache.root) if of_packages else []
    if len(of_packages) < len(to_make):
        missing += needs.for_compiling()
    needs.insist(f"to build {', '.join(recipe.name for recipe in to_make)}", missing)
    if of_packages:
        debian.mirror()


def _make_all(cache: Cache, to_make: Sequence[Recipe], display: Display) -> None:
    """Make parts in parallel; at the first failure, and at an interrupt, what runs is ended."""
    programs = Programs()
    # One more than there are processors: while one fetches, others unpack.
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        try:
            futures = [pool.submit(_make, cache, recipe, display, programs) for recipe in to_make]
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            programs.end()
            raise


def _make(cache: Cache, recipe: Recipe, display: Display, programs: Programs) -> Part:
    scratch = cache.scratch(recipe.name)
    log = cache.log(recipe.name)
    try:
        with display.part(recipe.name, recipe.description, log):
            versions: Mapping[str, str] = recipe.make(scratch, programs.run, log)
            return cache.publish(recipe.name, recipe.digest, scratch, versions)
    except OSError as error:  # A full disk, as a rule.
        raise BuildFailed(f"{recipe.name} could not be made: {error}") from error


class Programs:
    """The programs that run for a build, in whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, command: Sequence[str], log: Path) -> None:
        """Run a command, its output appended to ``log``.

        :raises BuildFailed: if it fails; the message has the log's end.
        """
        with log.open("ab") as output:
            with self._lock:
                if self._ended:
                    raise BuildFailed("the build was ended")
                # A terminal's Ctrl-C is for us, who end them one by one.
                program = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
                self._running.add(program)
            status = program.wait()
        with self._lock:
            self._running.discard(program)
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL:])
            # On a full disk the log lacks the reason, too.
            free = shutil.disk_usage(log).free
            room = f"; {free >> 10} KiB are free where {log} is" if free < FULL else ""
            raise BuildFailed(f"{' '.join(command)} ended with {status}{room}; the end of {log}:\n{tail}")

    def end(self) -> None:
        """End what runs, and run no more."""
        with self._lock:
            self._ended = True
            for program in self._running:
                program.kill()
