# SPDX-License-Identifier: Apache-2.0
"""The words of all messages, wherever they arise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("vmqos", "nova_plugin", "ceilometer_pollster", "watcher_plugin")


def texts() -> Iterator[tuple[str, str]]:
    """Each text in the sources, and where it stands."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_what_is_counted_has_the_form_of_its_number() -> None:
    found = list(texts())
    assert len(found) > 10_000
    assert [where for where, text in found if "(s)" in text] == []
