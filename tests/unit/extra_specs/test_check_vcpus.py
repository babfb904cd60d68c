# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos import extra_specs


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "the flavor has 1 vCPU, so only the number 0 is allowed"),
        (2, "the flavor has 2 vCPUs, so only numbers from 0 to 1 are allowed"),
    ],
)
def test_a_vcpu_that_a_vm_lacks_is_refused_with_those_that_it_has(count: int, told: str) -> None:
    request = extra_specs.CacheRequest(ways=2, vcpus=frozenset({0, 2}))
    with pytest.raises(extra_specs.InvalidExtraSpecs, match=told):
        extra_specs.check_vcpus(request, count)
    extra_specs.check_vcpus(request, 3)
