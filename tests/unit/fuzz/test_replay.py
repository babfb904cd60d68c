# SPDX-License-Identifier: Apache-2.0
"""The inputs that tests/fuzz keeps: whatever was a finding once, and the texts that the search begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.table import CORPUS, FINDINGS, TABLE, Target
from tests.fuzz.trial import accepts

SMALL = 64 << 10
"""Bytes of a target's inputs, all together."""

FOUND = [(target, path) for target in TABLE for path in target.inputs() if path.parent.parent == FINDINGS]


@pytest.mark.parametrize(("target", "path"), FOUND, ids=lambda value: value.name)
def test_what_was_a_finding_is_none_any_more(target: Target, path: Path) -> None:
    accepts(target.load(), path.read_bytes())


@pytest.mark.parametrize("target", TABLE, ids=lambda target: target.name)
def test_a_real_text_is_taken(target: Target) -> None:
    parse = target.load()
    taken = [accepts(parse, path.read_bytes()) for path in sorted((CORPUS / target.name).glob("*"))]
    assert any(taken), "a target that refuses all of its corpus tries nothing"


@pytest.mark.parametrize("target", TABLE, ids=lambda target: target.name)
def test_the_inputs_are_few_and_small(target: Target) -> None:
    sizes = [path.stat().st_size for path in target.inputs()]
    assert max(sizes) <= target.longest
    assert sum(sizes) <= SMALL


def test_every_folder_is_of_a_target() -> None:
    names = {target.name for target in TABLE}
    assert {path.name for folder in (CORPUS, FINDINGS) for path in folder.iterdir()} <= names
    assert len(names) == len(TABLE)
