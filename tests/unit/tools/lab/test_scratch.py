# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from typing import Any

import pytest

from tools.lab.scratch import scratch


def test_what_is_written_while_it_is_removed_is_removed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch("vmqos-scratch-") as path:
        (path / "folder").mkdir()
        remove, late = os.rmdir, [path / "late", path / "later"]

        def remove_too_early(what: Any, **where: Any) -> None:
            if late and os.path.basename(what) == path.name:
                late.pop().touch()
            remove(what, **where)

        monkeypatch.setattr(os, "rmdir", remove_too_early)
    assert not late and not path.exists()


def test_it_is_removed_after_an_error_and_the_error_goes_on() -> None:
    with pytest.raises(ZeroDivisionError), scratch("vmqos-scratch-") as path:
        raise ZeroDivisionError
    assert not path.exists()
