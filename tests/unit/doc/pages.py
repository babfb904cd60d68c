# SPDX-License-Identifier: Apache-2.0
"""The pages that these tests read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCE = CHECKOUT / "doc" / "source"

_RST_BLOCK = re.compile(r"^( *)\.\. code-block:: shell\n\n((?:\1 +.*\n|\s*\n)+)", re.MULTILINE)
_MARKDOWN_BLOCK = re.compile(r"^```(?:shell|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def written() -> list[Path]:
    """Every page that somebody wrote: those made from the docstrings are left out."""
    pages = [page for page in SOURCE.rglob("*.rst") if "python" not in page.relative_to(SOURCE).parts]
    return sorted([*pages, CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md"])


def shell_lines(page: Path) -> Iterator[str]:
    """Each line that a reader may copy into a shell."""
    text = page.read_text(encoding="utf-8")
    blocks = _MARKDOWN_BLOCK.findall(text) if page.suffix == ".md" else [block for _, block in _RST_BLOCK.findall(text)]
    for block in blocks:
        yield from (line.strip() for line in block.splitlines() if line.strip())
