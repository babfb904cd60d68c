# SPDX-License-Identifier: Apache-2.0
"""What guests compiled of the project's Python, for the next ones: under emulation that takes longer than most tests.

Each guest sends back what it compiled. It is kept by a digest of the source's name and content, so whatever tree a
later guest is given, it gets exactly what belongs to it. Python itself compares times and sizes only; in a guest all
sources have the time 0.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath


def digest(name: str, content: bytes) -> str:
    """What tells sources apart.

    :param name: in the guest, for it is part of what is compiled.
    """
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:32]


def find(store: Path, source: str, digest_: str) -> Iterator[tuple[str, bytes]]:
    """What there is of one source: files by name, to be put beside it.

    :param store: the directory that all of it is kept in.
    """
    kept = store / digest_
    # Somebody may just be removing it, and it may be in a cache that we only read.
    with suppress(FileNotFoundError, PermissionError):
        for path in sorted(kept.iterdir()):
            yield f"{PurePosixPath(source).parent}/__pycache__/{path.name}", path.read_bytes()
        os.utime(kept)


def keep(store: Path, archive: Path, digests: Mapping[str, str]) -> None:
    """Keep what a guest sent.

    :param archive: a tar file of ``__pycache__/*.pyc``.
    :param digests: of the guest's sources, by name.
    """
    with tarfile.open(archive) as sent, suppress(PermissionError):
        for entry in sent:
            name = PurePosixPath(entry.name)
            of_source = digests.get(f"{name.parent.parent}/{name.name.partition('.')[0]}.py")
            content = sent.extractfile(entry)
            if of_source is None or content is None:
                continue
            kept = store / of_source / name.name
            kept.parent.mkdir(parents=True, exist_ok=True)
            fresh = store / f".{of_source}.{os.getpid()}"
            fresh.write_bytes(content.read())
            fresh.rename(kept)
