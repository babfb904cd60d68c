# SPDX-License-Identifier: Apache-2.0
"""What the tools install by version and digest."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from tools.lab.workspace import CHECKOUT

LOCKED = CHECKOUT / "tools" / "requirements"


def entries(name: str) -> Iterator[tuple[Requirement, str]]:
    """The requirements of a file, each with its digests."""
    text = re.sub(r"^#.*\n", "", (LOCKED / f"{name}.txt").read_text(), flags=re.MULTILINE)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        requirement, _, digests = entry.partition(" \\\n")
        yield Requirement(requirement), digests


@pytest.mark.parametrize("name", ["tools"])
def test_each_version_is_exact_and_each_file_has_a_digest(name: str) -> None:
    found = list(entries(name))
    assert found
    for requirement, digests in found:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert re.fullmatch(r"(\s+--hash=sha256:[0-9a-f]{64}( \\\n)?)+", digests), requirement
