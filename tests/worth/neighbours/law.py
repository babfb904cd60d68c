# SPDX-License-Identifier: Apache-2.0
"""Which files of insight are the law: what was judged by other ones is not worth keeping."""

from __future__ import annotations

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
