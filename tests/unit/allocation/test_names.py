# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.allocation import Owner, class_group, class_ways, owner_of, vm_group

UUID = "6c0e1d2f-1111-4222-8333-444455556666"


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("", Owner.DEFAULT),
        (f"vmqos.{UUID}", Owner.VM),
        (f"vmqos.{UUID.upper()}", Owner.VM),
        ("vmqos.shared-ways2", Owner.CLASS),
        ("vmqos.shared-something-newer", Owner.CLASS),
        (UUID, Owner.FOREIGN),
        ("vmqos", Owner.FOREIGN),
        ("vmqos.mine", Owner.FOREIGN),
        (f"vmqos.{UUID}.bak", Owner.FOREIGN),
        (f"xvmqos.{UUID}", Owner.FOREIGN),
        ("qemu-1-a-vcpus_0", Owner.FOREIGN),
    ],
)
def test_only_names_that_we_give_are_ours(name: str, owner: Owner) -> None:
    assert owner_of(name) is owner


def test_what_we_name_is_ours() -> None:
    assert owner_of(vm_group(UUID)) is Owner.VM
    assert owner_of(class_group(3)) is Owner.CLASS


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        (class_group(12), 12),
        ("vmqos.shared-ways02", None),
        ("vmqos.shared-ways", None),
        ("vmqos.shared-bandwidth50", None),
        ("ways2", None),
        ("shared-ways2", None),
    ],
)
def test_a_class_tells_its_cap_by_its_name(name: str, ways: int | None) -> None:
    assert class_ways(name) == ways
