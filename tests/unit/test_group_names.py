# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.allocation import Grant, Owner, class_grant, class_group, owner_of, vm_group

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
    assert owner_of(class_group(Grant(3))) is Owner.CLASS


@pytest.mark.parametrize(
    ("name", "grant"),
    [
        ("vmqos.shared-ways12", Grant(12)),
        ("vmqos.shared-mb50", Grant(percent=50)),
        ("vmqos.shared-mbps1250", Grant(mbps=1250)),
        ("vmqos.shared-code2-data4", Grant(code=2, data=4)),
        ("vmqos.shared-ways4-mb50", Grant(4, percent=50)),
    ],
)
def test_a_class_tells_what_it_grants_by_its_name(name: str, grant: Grant) -> None:
    assert class_group(grant) == name
    assert class_grant(name) == grant


@pytest.mark.parametrize(
    "rest",
    ["", "-", "ways02", "ways", "bandwidth50", "mb50-ways4", "ways4-", "ways4-ways4", "ways4mb50"],
)
def test_a_name_that_we_would_not_give_grants_nothing(rest: str) -> None:
    assert class_grant(f"vmqos.shared-{rest}") is None
    assert class_grant(rest) is None and class_grant("shared-ways2") is None
