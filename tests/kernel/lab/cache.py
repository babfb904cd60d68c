# SPDX-License-Identifier: Apache-2.0
"""Where built parts are kept, and how they get there whole.

::

    <root>/lock                      held by the one who builds; the others wait
    <root>/building/NAME/            what is being made; whoever holds the lock may remove what he finds here
    <root>/parts/NAME-RECIPE-TIME/   complete: it came here by one rename; its readers hold a lock on it
    <root>/current/NAME-RECIPE       a symbolic link to the newest of them
    <root>/bytecode/DIGEST/*.pyc     what guests compiled of one source: see bytecode.py
    <root>/logs/NAME                 what the programs of its last build said

``RECIPE`` is a digest of all that decides what comes out, except the versions of Debian's packages, which are in the
part's ``manifest.json``. So two source trees with different recipes share a cache, and a part that was replaced by a
newer one stays until its last reader has gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.lab.errors import LabError, NotBuilt
from tools.lab import mounts

KEEP_UNUSED = 14 * 86400
"""Seconds for which a part that nobody used is kept."""


def default_root() -> Path:
    """``$VMQOS_KERNEL_LAB``, or ``vmqos/kernel-lab`` in the user's cache directory (XDG Base Directory)."""
    if chosen := os.environ.get("VMQOS_KERNEL_LAB"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmqos" / "kernel-lab"


@dataclass(frozen=True, slots=True)
class Part:
    """A complete part.

    :ivar path: its directory.
    """

    path: Path

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What is known of it: ``versions`` of packages by name, ``built`` and ``checked`` in seconds since 1970."""
        found: Mapping[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return found

    def note(self, **facts: Any) -> None:
        """Change the manifest."""
        _write_whole(self.path / "manifest.json", json.dumps({**self.manifest, **facts}, indent=2) + "\n")

    def open(self) -> int:
        """A descriptor; while it is open, the part is not removed."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(PermissionError):  # Somebody else's cache, which we may only read.
            os.utime(self.path)
        return descriptor


class Cache:
    """The directory described above.

    :param root: need not exist yet.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    @property
    def bytecode(self) -> Path:
        """The directory of what guests compiled; need not exist."""
        return self.root / "bytecode"

    def find(self, name: str, recipe: str) -> Part | None:
        """The newest complete part, or ``None``."""
        link = self.root / "current" / f"{name}-{recipe}"
        try:
            path = link.resolve(strict=True)
        except FileNotFoundError:
            return None
        return Part(path) if (path / "manifest.json").exists() else None

    def get(self, name: str, recipe: str) -> Part:
        """The newest complete part.

        :raises NotBuilt: where there is none.
        """
        if part := self.find(name, recipe):
            return part
        raise NotBuilt(f"the kernel lab lacks {name!r} in {self.root}: run (as root) python -m tests.kernel build")

    @contextmanager
    def locked(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the builder's lock, and begin without leftovers of builders that died.

        :param waiting: called once if somebody else holds it.
        :raises LabError: where this user must not write.
        """
        try:
            for directory in ("building", "parts", "current", "logs"):
                (self.root / directory).mkdir(parents=True, exist_ok=True)
            held = (self.root / "lock").open("a")
        except PermissionError as error:
            raise LabError(
                f"{error.filename} belongs to somebody else: build as who did so before (root, with sudo -E), or have "
                f"VMQOS_KERNEL_LAB name another directory"
            ) from None
        with held as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in (self.root / "building").iterdir():
                _remove(left)
            try:
                yield
            finally:
                # What failed or was interrupted takes room; if this fails too, the next one does it.
                for left in (self.root / "building").iterdir():
                    _remove(left)

    def scratch(self, name: str) -> Path:
        """An empty directory to build in. Only for the holder of the lock."""
        path = self.root / "building" / name
        if path.exists():
            shutil.rmtree(path)
        path.mkdir()
        return path

    def log(self, name: str) -> Path:
        """An empty log. Only for the holder of the lock."""
        path = self.root / "logs" / name
        path.write_bytes(b"")
        return path

    def publish(self, name: str, recipe: str, scratch: Path, versions: Mapping[str, str]) -> Part:
        """Make what is in ``scratch`` the current part: all of it, in one step."""
        now = time.time()
        (scratch / "manifest.json").write_text(
            json.dumps({"versions": dict(versions), "built": now, "checked": now}, indent=2) + "\n"
        )
        path = self.root / "parts" / f"{name}-{recipe}-{time.time_ns():x}"
        os.sync()  # A machine that loses power must not find the new name with half the content.
        scratch.rename(path)
        link = self.root / "current" / f"{name}-{recipe}"
        fresh = self.root / "building" / f"{name}-{recipe}.link"
        fresh.symlink_to(os.path.relpath(path, link.parent))
        fresh.rename(link)
        return Part(path)

    def remove_unused(self) -> None:
        """Remove parts that were replaced, and what was unused for two weeks, unless somebody reads it."""
        for path in self.bytecode.glob("*"):
            if time.time() - path.stat().st_mtime > KEEP_UNUSED:
                _remove(path)
        links = {link: link.resolve() for link in (self.root / "current").iterdir()}
        for path in (self.root / "parts").iterdir():
            names = [link for link, target in links.items() if target == path]
            if names and time.time() - path.stat().st_mtime < KEEP_UNUSED:
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for link in names:
                    link.unlink()
                shutil.rmtree(path)
            except BlockingIOError:
                continue
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file or a tree; a file system mounted in it (nobody should have) is not touched, but an error."""
    if path.is_dir() and not path.is_symlink():
        if inside := [mount for mount in mounts.points() if Path(mount).is_relative_to(path.resolve())]:
            raise LabError(f"unmount first what is mounted in the kernel lab's leftovers: {' '.join(inside)}")
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_whole(path: Path, content: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(content)
    fresh.rename(path)
