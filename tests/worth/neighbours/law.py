# SPDX-License-Identifier: Apache-2.0
"""Which files of insight are the law: what was judged by other ones is not worth keeping."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from vmqos import insight

FOLDER = Path(insight.__file__).parent

JUDGE = ("model", "neighbours", "series", "suffering", "use")
"""The modules on which a verdict depends."""

TELL = ("advice", "say")
"""The modules that these ask for words: what was judged is the same, whatever they say."""


def sources() -> list[Path]:
    """The files of the law."""
    return [FOLDER / f"{name}.py" for name in JUDGE]


def digest(paths: Iterable[Path]) -> str:
    """Of what files do: of Python the comments and the docstrings do not count, nor how it is laid out.

    Each version of Python makes the same digest: a guest has another one than its host, and goes on with what is kept.
    """
    return hashlib.sha256(b"\0".join(map(_meaning, paths))).hexdigest()


def _meaning(path: Path) -> bytes:
    if path.suffix != ".py":
        return path.read_bytes()
    tree = ast.parse(path.read_bytes(), path)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            # A string that stands alone is read by people only.
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return repr(_plain(tree)).encode()


def _plain(part: object) -> object:
    """A part of a tree as tuples and texts. What is empty is left out: later versions of Python have further fields."""
    if isinstance(part, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(part) if value is not None and value != [])
        return type(part).__name__, *((name, _plain(value)) for name, value in fields)
    return [_plain(one) for one in part] if isinstance(part, list) else repr(part)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
