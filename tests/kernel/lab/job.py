# SPDX-License-Identifier: Apache-2.0
"""What goes into a guest: the project's tree, a script to run, and files for it, as one tar archive.

The tree is not installed in the guest: it is the working directory, with the entry points that an installation would
have (``vmqos.egg-info``), and the console scripts on the ``PATH``.
"""

from __future__ import annotations

import configparser
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
INIT = CHECKOUT / "tests/kernel/inside/init.sh"
TREE = ("vmqos", "tests", "tools", "nova_plugin", "ceilometer_pollster", "etc", "pyproject.toml", "setup.cfg")
NOT_THE_TREE = frozenset({"__pycache__", ".hypothesis", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class Job:
    """What a guest is to do.

    :ivar script: for ``sh``; its exit status is the job's.
    :ivar files: by path, relative to the working directory (the project's tree) or absolute: there is ``/run/lab/tree``
        and nothing else that can be written before the job starts.
    :ivar interactive: connect the script to the serial console.
    """

    script: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    interactive: bool = False


def write(job: Job, path: Path) -> None:
    """Write the archive that the guest unpacks in ``/run/lab``."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in TREE:
            archive.add(CHECKOUT / name, f"tree/{name}", filter=_part_of_the_tree)
        _add(archive, "init.sh", INIT.read_bytes())
        for name, content in _installation():
            _add(archive, name, content.encode(), 0o755 if name.startswith("bin/") else 0o644)
        for name, data in job.files.items():
            _add(archive, f"tree/{name}", data.encode() if isinstance(data, str) else data)
        _add(archive, "job", job.script.encode())
        if job.interactive:
            _add(archive, "interactive", b"")


def _part_of_the_tree(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(entry.name).name in NOT_THE_TREE:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def _installation() -> Iterator[tuple[str, str]]:
    """What pip would make of setup.cfg: files by name in the archive."""
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    yield "tree/vmqos.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: vmqos\nVersion: 0.0.1.dev0\n"
    groups = setup["entry_points"]
    yield (
        "tree/vmqos.egg-info/entry_points.txt",
        "".join(f"[{group}]\n{entries.strip()}\n" for group, entries in groups.items()),
    )
    for line in groups["console_scripts"].strip().splitlines():
        name, target = (part.strip() for part in line.split("="))
        module, function = target.split(":")
        yield (
            f"bin/{name}",
            "#!/usr/bin/python3\nimport sys\nsys.path.insert(0, '/run/lab/tree')\n"
            f"from {module} import {function}\nsys.exit({function}())\n",
        )
