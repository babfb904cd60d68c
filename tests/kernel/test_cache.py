# SPDX-License-Identifier: Apache-2.0
"""Parts come into the cache whole or not at all, and stay as long as somebody needs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernel.lab import build as building
from tests.kernel.lab import debian, needs
from tests.kernel.lab.build import build
from tests.kernel.lab.cache import KEEP_UNUSED, Cache
from tests.kernel.lab.debian import Packages
from tests.kernel.lab.errors import BuildFailed, LabError, Lacking, NoMirror, NotBuilt
from tests.kernel.lab.job import CHECKOUT
from tests.kernel.lab.progress import Display, how_far
from tests.kernel.lab.recipes import Recipe, Run
from tools.lab import mounts, processes

QUIET = Display(quiet=True)
NOBODY = "http://127.0.0.1:1/debian"
"""A mirror that does not answer."""

NOBODYS_UID = 65534
PATIENCE = 120.0
"""Seconds for what takes one or two on a machine with nothing else to do."""
Make = Callable[[Path, Run, Path], Mapping[str, str]]
BUILDER = """
import sys
from pathlib import Path
from tests.kernel.lab import build, debian
from tests.kernel.lab.cache import Cache
from tests.kernel.lab.progress import Display
from tests.kernel.lab.recipes import Recipe

def make(scratch, run, log):
"""
BUILDER_END = """
    return {}

build.recipes = lambda: (Recipe("part", "a part", None, make),)
print(build.build(Cache(Path(sys.argv[1])), Display(quiet=True))["part"].path)
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def _recipe(command: str = "echo content >file", name: str = "part", packages: Packages | None = None) -> Recipe:
    """A part that a shell command makes."""

    def make(scratch: Path, run: Run, log: Path) -> dict[str, str]:
        run(["sh", "-c", f"cd {scratch} && {command}"], log)
        return {"program": "1.0"}

    return Recipe(name, "a part for a test", packages, make, (command.encode(),))


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """What there is to build."""
    wanted: list[Recipe] = []
    monkeypatch.setattr(building, "recipes", lambda: tuple(wanted))
    return wanted


def test_what_is_not_built_is_told_with_what_to_do(cache: Cache) -> None:
    with pytest.raises(NotBuilt, match=r"lacks 'image' in .*: run \(as root\) python -m tests.kernel build"):
        cache.get("image", "0123456789ab")


def test_a_part_is_made_once(cache: Cache, recipes: list[Recipe]) -> None:
    recipes.append(_recipe("date +%N >file"))
    first = build(cache, QUIET)["part"]
    content = (first.path / "file").read_text()
    again = build(cache, QUIET)["part"]
    assert again.path == first.path
    assert (again.path / "file").read_text() == content
    assert again.manifest["versions"] == {"program": "1.0"}


def test_a_changed_recipe_makes_another_part(cache: Cache, recipes: list[Recipe]) -> None:
    recipes.append(_recipe("echo old >file"))
    old = build(cache, QUIET)["part"].path
    recipes[:] = [_recipe("echo new >file")]
    assert (build(cache, QUIET)["part"].path / "file").read_text() == "new\n"
    # Another source tree may still use it.
    assert (old / "file").read_text() == "old\n"


def test_a_failure_shows_the_logs_end_and_leaves_nothing(cache: Cache, recipes: list[Recipe]) -> None:
    recipes.append(_recipe("echo half >file; echo the reason >&2; exit 9"))
    with pytest.raises(BuildFailed, match=r"(?s)ended with 9; the end of .*logs/part:\nthe reason"):
        build(cache, QUIET)
    _assert_nothing_is_there(cache)


def _fill_by_a_program(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
    run(["dd", "if=/dev/zero", f"of={scratch}/file", "bs=1M", "count=4"], log)
    return {}


def _fill_ourselves(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
    (scratch / "file").write_bytes(bytes(4 << 20))
    return {}


@pytest.mark.parametrize(
    ("make", "told"),
    [(_fill_by_a_program, r"ended with 1; 0 KiB are free where .* is"), (_fill_ourselves, "No space left on device")],
)
def test_a_full_disk_is_told_and_leaves_nothing(cache: Cache, recipes: list[Recipe], make: Make, told: str) -> None:
    recipes.append(Recipe("part", "a part of 4 MiB", None, make))
    with _disk(cache.root, "2m"):
        with pytest.raises(BuildFailed, match=told):
            build(cache, QUIET)
        _assert_nothing_is_there(cache)
        subprocess.run(["mount", "-o", "remount,size=8m", cache.root], check=True)
        assert (build(cache, QUIET)["part"].path / "file").stat().st_size == 4 << 20


def test_a_disk_that_will_be_full_is_told_before_anything_is_fetched(cache: Cache, recipes: list[Recipe]) -> None:
    recipes.append(_recipe(packages=Packages("trixie", ("program",))))
    with _disk(cache.root, "2m"), pytest.raises(Lacking, match=r"room: \d MiB are free in .* and a build takes 3072"):
        build(cache, QUIET)


def test_who_may_not_write_into_a_cache_is_told_who_may(recipes: list[Recipe]) -> None:
    recipes.append(_recipe())
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        build(Cache(Path(path)), QUIET)
        recipes[:] = [_recipe("echo other >file")]
        os.seteuid(NOBODYS_UID)
        try:
            with pytest.raises(LabError, match=r"belongs to somebody else.*sudo -E.*VMQOS_KERNEL_LAB"):
                build(Cache(Path(path)), QUIET)
        finally:
            os.seteuid(0)


def test_the_first_failure_ends_the_other_parts(cache: Cache, recipes: list[Recipe]) -> None:
    recipes += [_recipe("sleep 1000", "slow"), _recipe("exit 1", "failing")]
    started = time.monotonic()
    with pytest.raises(BuildFailed):
        build(cache, QUIET)
    assert time.monotonic() - started < 1000


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_process_and_the_next_one_is_whole(
    cache: Cache, recipes: list[Recipe], how: signal.Signals
) -> None:
    process = _builder(
        cache,
        """
        (scratch / "file").write_text("half")
        run([*debian.CONTAINED, "sh", "-c", f"sleep 1001 & sleep 1002 # {scratch}"], log)
        """,
    )
    processes.wait_until(lambda: len(_sleepers(cache)) == 1, "the build's start", PATIENCE)
    process.send_signal(how)
    assert process.wait() != 0
    processes.wait_until(lambda: not _sleepers(cache), "the end of the build's processes", PATIENCE)
    assert not any((cache.root / "parts").iterdir())

    recipes.append(_recipe())
    made = build(cache, QUIET)["part"]
    assert (made.path / "file").read_text() == "content\n"
    assert not any((cache.root / "building").iterdir())


def test_builds_at_the_same_time_make_a_part_once(cache: Cache) -> None:
    made = cache.root.parent / "made"
    running = [_builder(cache, f'run(["sh", "-c", "sleep 1; echo made >>{made}"], log)') for _ in range(3)]
    paths = {process.communicate()[0] for process in running}
    assert len(paths) == 1
    assert paths.pop().startswith(str(cache.root / "parts/part-"))
    assert made.read_text() == "made\n"


def test_a_part_that_was_replaced_stays_while_it_is_read(cache: Cache, recipes: list[Recipe]) -> None:
    recipe = _recipe()
    recipes.append(recipe)
    old = build(cache, QUIET)["part"]
    reader = old.open()
    with cache.locked():
        building._make(cache, recipe, QUIET, building.Programs())
        cache.remove_unused()
        assert old.path.exists()
        os.close(reader)
        cache.remove_unused()
    assert not old.path.exists()
    assert cache.find("part", recipe.digest)


def test_a_part_that_nobody_used_for_weeks_is_removed(cache: Cache, recipes: list[Recipe]) -> None:
    recipe = _recipe()
    recipes.append(recipe)
    old = build(cache, QUIET)["part"]
    os.utime(old.path, times=(time.time() - KEEP_UNUSED - 1,) * 2)
    with cache.locked():
        cache.remove_unused()
    assert not old.path.exists()
    assert cache.find("part", recipe.digest) is None


@pytest.mark.parametrize(("offered", "made_again"), [("1.0", False), ("1.1", True)])
def test_after_a_week_a_build_takes_newer_packages(
    cache: Cache, recipes: list[Recipe], monkeypatch: pytest.MonkeyPatch, offered: str, made_again: bool
) -> None:
    asked = []

    def newest(suite: str, names: list[str], scratch: Path) -> dict[str, str]:
        asked.append(suite)
        return {"program": offered}

    monkeypatch.setattr(debian, "newest", newest)
    monkeypatch.setattr(needs, "for_packages", lambda cache: [])
    monkeypatch.setattr(debian, "mirror", lambda: "http://localhost/debian")
    recipes.append(_recipe(packages=Packages("trixie", ("program",))))
    first = build(cache, QUIET)["part"]
    build(cache, QUIET)
    assert not asked
    first.note(checked=time.time() - building.WEEK - 1)
    second = build(cache, QUIET)["part"]
    assert asked == ["trixie"]
    assert (second.path != first.path) == made_again
    build(cache, QUIET)
    assert asked == ["trixie"]


def test_without_a_network_an_old_cache_goes_on(
    cache: Cache, recipes: list[Recipe], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes.append(_recipe(packages=Packages("trixie", ("program",))))
    monkeypatch.setattr(needs, "for_packages", lambda cache: [])
    monkeypatch.setenv("VMQOS_DEBIAN_MIRROR", NOBODY)
    first = build(cache, QUIET)["part"]
    first.note(checked=time.time() - building.WEEK - 1)
    assert build(cache, Display())["part"].path == first.path
    assert re.search(rf"going on with what there is: apt-get (?s:.*){NOBODY}", capsys.readouterr().err)
    with pytest.raises(LabError, match=f"apt-get update .* ended with 100(?s:.*){NOBODY}"):
        build(cache, QUIET, refresh=True)


def test_a_lost_download_shows_the_logs_end_and_leaves_nothing(
    cache: Cache, recipes: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = Packages("trixie", ("busybox-static",), unpack_only=True)

    def make(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
        return debian.install(packages, scratch / "root", log, run)

    monkeypatch.setenv("VMQOS_DEBIAN_MIRROR", NOBODY)
    recipes.append(Recipe("part", "a part of Debian", packages, make))
    with pytest.raises(BuildFailed, match=rf"mmdebstrap .* ended with \d+; the end of (?s:.*){NOBODY}"):
        build(cache, QUIET)
    _assert_nothing_is_there(cache)


def test_a_machine_that_lacks_something_is_told_what(
    cache: Cache, recipes: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    recipes.append(_recipe(packages=Packages("trixie", ("program",))))
    with pytest.raises(Lacking, match=r"to build part, this machine lacks\n(?s:.*)mmdebstrap: apt install mmdebstrap"):
        build(cache, QUIET)
    recipes[:] = [_recipe()]
    with pytest.raises(Lacking, match=r"to build part, .* lacks\n  the program gcc: apt install gcc libc6-dev"):
        build(cache, QUIET)


def test_the_mirror_is_the_one_of_the_machines_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VMQOS_DEBIAN_MIRROR", raising=False)
    _apt_with(
        monkeypatch, tmp_path, "http://a.example/ubuntu\nhttp://b.example/debian-security/\nhttp://c.example/debian/\n"
    )
    assert debian.mirror() == "http://c.example/debian"
    monkeypatch.setenv("VMQOS_DEBIAN_MIRROR", "http://d.example/copy/")
    assert debian.mirror() == "http://d.example/copy"


def test_a_machine_without_a_mirror_of_debian_is_told_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VMQOS_DEBIAN_MIRROR", raising=False)
    _apt_with(monkeypatch, tmp_path, "http://a.example/ubuntu\n")
    with pytest.raises(NoMirror, match="set VMQOS_DEBIAN_MIRROR"):
        debian.mirror()


@pytest.mark.parametrize(
    ("log", "stage", "share"),
    [
        ("", "starting", 0.0),
        ("I: running apt-get update...\nGet:1 x\n", "fetching package lists", 0.0),
        (
            "I: downloading packages with apt...\n0 upgraded, 4 newly installed\nGet:1 a\nGet:2 b\nGet:3 c\n",
            "fetching packages",
            0.25,
        ),
        ("4 newly installed\nI: installing remaining packages\n" + "Setting up x\n" * 20, "installing packages", 0.95),
        ("I: success in 50 seconds\n", "making the disk", 0.0),
    ],
)
def test_progress_is_read_from_the_log(log: str, stage: str, share: float) -> None:
    assert (how_far(log).stage, how_far(log).share) == (stage, share)


def _assert_nothing_is_there(cache: Cache) -> None:
    for directory in ("building", "parts", "current"):
        assert not any((cache.root / directory).iterdir())


@contextmanager
def _disk(where: Path, size: str) -> Iterator[None]:
    """A disk of this size."""
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where], check=True)
    try:
        yield
    finally:
        mounts.unmount(where)


def _apt_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, targets: str) -> None:
    program = tmp_path / "apt-get"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{targets}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def _builder(cache: Cache, make: str) -> subprocess.Popen[str]:
    """Another process that builds a part by the statements ``make``, and prints where it is."""
    cache.root.parent.mkdir(exist_ok=True)
    script = cache.root.parent / "builder.py"
    whole = cache.root.parent / "builder.py.new"
    whole.write_text(BUILDER + textwrap.indent(textwrap.dedent(make).strip(), "    ") + BUILDER_END)
    # A test may start several at a time, and none may read what is only half written.
    whole.replace(script)
    return subprocess.Popen(
        [sys.executable, str(script), str(cache.root)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _sleepers(cache: Cache) -> list[int]:
    """The processes of the build that would never end."""
    found = []
    for pid in processes.all_pids():
        arguments = " ".join(processes.arguments(pid))
        if "sleep 1002" in arguments and str(cache.root) in arguments and arguments.startswith("sh "):
            found.append(pid)
    return found
