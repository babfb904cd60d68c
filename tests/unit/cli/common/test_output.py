# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.cli.common.output import as_rows


def test_objects_become_rows_with_a_column_for_every_key_that_any_of_them_has() -> None:
    keys, rows = as_rows([{"a": 1, "b": [2]}, {"a": 3, "later": {"x": 4}}])
    assert keys == ("a", "b", "later")
    assert rows == [(1, [2], None), (3, None, {"x": 4})]


def test_no_objects_are_no_rows() -> None:
    assert as_rows([]) == ((), [])
