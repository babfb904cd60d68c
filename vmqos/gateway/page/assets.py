# SPDX-License-Identifier: Apache-2.0
"""The files that the page is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

FOLDER = "static"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, ready to be sent.

    :ivar content_type: its media type.
    :ivar tag: changes with the content: an HTTP entity tag, quotes included.
    """

    content: bytes
    content_type: str
    tag: str


def load() -> Mapping[str, Asset]:
    """Read every file, by its path below the folder, from wherever the package is installed."""
    found = {}
    for name, file in _files(resources.files(__package__).joinpath(FOLDER)):
        content_type = _TYPES.get(name[name.rfind(".") :])
        if content_type is not None:
            content = file.read_bytes()
            found[name] = Asset(content, content_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry
