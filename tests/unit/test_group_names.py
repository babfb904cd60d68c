# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner, class_group, class_request, owner_of, vm_group, vm_of

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
    assert owner_of(class_group(CacheRequest(3))) is Owner.CLASS


@pytest.mark.parametrize(
    ("name", "grants"),
    [
        ("vmqos.shared-ways12", CacheRequest(12)),
        ("vmqos.shared-mb50", CacheRequest(bandwidth_percent=50)),
        ("vmqos.shared-mbps1250", CacheRequest(bandwidth_mbps=1250)),
        ("vmqos.shared-code2-data4", CacheRequest(code_ways=2, data_ways=4)),
        ("vmqos.shared-ways4-mb50", CacheRequest(4, bandwidth_percent=50)),
    ],
)
def test_a_class_tells_what_it_grants_by_its_name(name: str, grants: CacheRequest) -> None:
    assert class_group(grants) == name
    assert class_request(name) == replace(grants, policy=CachePolicy.SHARED)


@pytest.mark.parametrize(
    "rest",
    ["", "-", "ways02", "ways", "bandwidth50", "mb50-ways4", "ways4-", "ways4-ways4", "ways4mb50"],
)
def test_a_name_that_we_would_not_give_grants_nothing(rest: str) -> None:
    assert class_request(f"vmqos.shared-{rest}") is None
    assert class_request(rest) is None and class_request("shared-ways2") is None


def test_the_group_of_a_vm_leads_back_to_it() -> None:
    assert vm_of(vm_group(UUID)) == UUID
    assert vm_of("vmqos.shared-ways2") is None and vm_of("") is None
