# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import parts


@pytest.fixture(scope="session", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the targets lay down their files where pytest clears up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VMQOS_FUZZ_FOLDER", str(tmp_path_factory.mktemp("fuzz")))
        parts.folder.cache_clear()
        yield
    parts.folder.cache_clear()
