# SPDX-License-Identifier: Apache-2.0
"""What goes into a guest: the project's tree, a script to run, and files for it, as one tar archive.

The tree is not installed in the guest: it is the working directory, with the entry points that an installation would
have (``vmqos.egg-info``), and the console scripts on the ``PATH``.
"""

from __future__ import annotations

import configparser
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kernel.lab import bytecode

CHECKOUT = Path(__file__).resolve().parents[3]
INIT = CHECKOUT / "tests/kernel/inside/init.sh"
TREE = ("vmqos", "tests", "tools", "nova_plugin", "ceilometer_pollster", "etc", "pyproject.toml", "setup.cfg")
NOT_THE_TREE = frozenset({"__pycache__", ".hypothesis", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class Job:
    """What a guest is to do.

    :ivar script: for ``sh``; its exit status is the job's.
    :ivar files: by path in the project's tree, which is the working directory.
    :ivar interactive: connect the script to the serial console.
    :ivar before_systemd: a script for ``sh``, as what an administrator did before the boot: systemd is process 1 then,
        and ``script`` one of its services. Without it, the guest runs no service but what the script starts.
    """

    script: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    interactive: bool = False
    before_systemd: str = ""


def write(job: Job, path: Path, bytecode_store: Path) -> Mapping[str, str]:
    """Write the archive that the guest unpacks in ``/run/lab``.

    :param bytecode_store: where :mod:`tests.kernel.lab.bytecode` keeps what guests compiled.
    :returns: the digests of the Python in it, by name.
    """
    digests = {}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:

        def add_source(name: str, content: bytes, mode: int = 0o644) -> None:
            _add(archive, name, content, mode)
            if name.endswith(".py"):
                digests[name] = bytecode.digest(name, content)

        for source in _tree():
            add_source(f"tree/{source.relative_to(CHECKOUT)}", source.read_bytes(), source.stat().st_mode & 0o777)
        for name, data in job.files.items():
            add_source(f"tree/{name}", data.encode() if isinstance(data, str) else data)
        for name, digest in digests.items():
            for compiled, content in bytecode.find(bytecode_store, name, digest):
                _add(archive, compiled, content)
        _add(archive, "init.sh", INIT.read_bytes())
        for name, text in _installation():
            _add(archive, name, text.encode(), 0o755 if name.startswith("bin/") else 0o644)
        _add(archive, "job", job.script.encode())
        if job.before_systemd:
            _add(archive, "before-systemd", job.before_systemd.encode())
        if job.interactive:
            _add(archive, "interactive", b"")
    return digests


def _tree() -> Iterator[Path]:
    for top in TREE:
        if (CHECKOUT / top).is_file():
            yield CHECKOUT / top
        for directory, names, files in os.walk(CHECKOUT / top):
            names[:] = sorted(set(names) - NOT_THE_TREE)
            yield from (Path(directory, name) for name in sorted(files))


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)  # Its time is 0: see lab/bytecode.py.
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
