# SPDX-License-Identifier: Apache-2.0
"""The Python environment of an operator's Nova: Nova, what it needs, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment.

    :ivar folder: where it is.
    """

    folder: Path

    @classmethod
    def with_nova(cls, folder: Path) -> Environment:
        """Make one with the Nova that these tests run with. Its files, which are thousands, are links to that one's."""
        venv.create(folder, with_pip=True)
        made = cls(folder)
        # Python 3.11 brings one; Nova's own comes below.
        made.run("-m", "pip", "uninstall", "--quiet", "--yes", "setuptools")
        for distribution in _needed_by("nova"):
            for file in distribution.files or ():
                source = Path(str(distribution.locate_file(file)))
                # Programs, which lie elsewhere, would start in the other environment.
                if ".." not in file.parts and source.is_file():
                    _link(source, made.packages / file)
        return made

    @property
    def packages(self) -> Path:
        """The directory of its packages."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> str:
        """What its Python writes to standard output.

        :raises AssertionError: if it ends with another status than 0.
        """
        return run([str(self.folder / "bin" / "python"), *words], cwd=cwd, **variables)

    def installed(self) -> set[str]:
        """What ``pip freeze`` says, pip itself included."""
        return set(self.run("-m", "pip", "freeze", "--all").splitlines())

    def files(self) -> dict[str, tuple[int, int]]:
        """All files of its packages, with size and time of the last change; without those that Python compiles."""
        found = {}
        for folder, _, names in os.walk(self.packages):
            for name in names:
                if not name.endswith(".pyc"):
                    path = os.path.join(folder, name)
                    status = os.stat(path)
                    found[os.path.relpath(path, self.packages)] = (status.st_size, status.st_mtime_ns)
        return found


def run(words: list[str], cwd: Path | None = None, **variables: str) -> str:
    """What a program writes to standard output.

    :raises AssertionError: if it ends with another status than 0.
    """
    # What leads these tests to vmqos must not lead the operator's Nova there.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OS_"))}
    environment = {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=240)
    assert ran.returncode == 0, f"{' '.join(words)}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
    return ran.stdout


def _needed_by(name: str) -> Iterable[metadata.Distribution]:
    """A distribution, and all that it requires here."""
    found: dict[str, metadata.Distribution] = {}
    asked: set[tuple[str, str]] = set()
    todo = [Requirement(name)]
    while todo:
        wanted = todo.pop()
        key = re.sub(r"[-_.]+", "-", wanted.name).lower()
        distribution = found.setdefault(key, metadata.distribution(wanted.name))
        for extra in {"", *wanted.extras}:
            if (key, extra) in asked:
                continue
            asked.add((key, extra))
            for line in distribution.requires or ():
                further = Requirement(line)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    todo.append(further)
    return found.values()


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:  # a distribution may name a file twice
        pass
    except OSError:  # another file system
        shutil.copy2(source, target)
