# SPDX-License-Identifier: Apache-2.0
"""A kernel's release tells how it behaves."""

from __future__ import annotations

import pytest

from vmqos.simulator.hardware.kernel_versions import LINUX_6_12, LINUX_7_2, Kernel, of_release


@pytest.mark.parametrize(
    ("release", "kernel"),
    [
        ("6.12.95+deb12-cloud-amd64", LINUX_6_12),
        ("7.2.12+deb14-cloud-amd64", LINUX_7_2),
        ("6.1.0-1", LINUX_6_12),
        ("6.18", LINUX_7_2),
    ],
)
def test_a_release_is_of_the_older_or_the_newer_kind(release: str, kernel: Kernel) -> None:
    assert of_release(release) is kernel


def test_a_release_begins_with_numbers() -> None:
    with pytest.raises(ValueError, match="must begin with numbers"):
        of_release("mainline")
