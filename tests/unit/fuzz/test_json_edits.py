# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from tests.fuzz.json_edits import edited

TEXT = b'== health\n200\n{"a": [1, {"b": null}], "c": "x"}\n== end'


def test_one_value_of_one_line_is_changed_and_it_stays_json() -> None:
    found = {edited(TEXT, seed) for seed in range(300)}
    assert len(found) > 50
    for text in found:
        assert text is not None
        head, status, line, end = text.split(b"\n")
        assert (head, status, end) == (b"== health", b"200", b"== end")
        assert isinstance(json.loads(line), dict)


def test_values_are_changed_removed_moved_and_renamed() -> None:
    values = [json.loads((edited(TEXT, seed) or b"").split(b"\n")[2]) for seed in range(300)]
    assert any("c" not in value for value in values)
    assert any(value.get("c") is None and "c" in value for value in values)
    assert any(value.get("a") == "x" for value in values)
    assert any("b" in value for value in values)


def test_a_seed_stands_for_one_change() -> None:
    assert edited(TEXT, 7) == edited(TEXT, 7)


def test_what_holds_no_json_is_left_to_the_engine() -> None:
    for text in (b"", b"200\n", b"{", b"{}", b"[" * 5000, b"== a\n[1,"):
        assert edited(text, 1) is None
