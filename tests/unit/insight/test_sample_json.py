# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from vmqos.insight import Cache, Counts, Host, LimitedIn, PercentSteps, Promise, Sample, Vm, plain_host, plain_sample


def test_a_host_is_told_with_masks_in_hexadecimal_digits_and_with_what_flavors_ask_for() -> None:
    capped = Vm("m2", {0: 0xF}, Promise(ways=4, is_shared=True, mbps=4000), vcpus=8)
    vms = {"a": Vm("m1", {0: 0xFF0, 1: 0xF}), "b": capped}
    host = Host({0: Cache(1 << 25, 16, 4e10), 1: Cache(1 << 25, 16)}, vms, 9e-8, 200.0)
    told = plain_host(host)
    assert json.loads(json.dumps(told)) == told == {
        "caches": {
            "0": {"size": 1 << 25, "ways": 16, "bandwidth": 4e10},
            "1": {"size": 1 << 25, "ways": 16, "bandwidth": None},
        },
        "vms": {
            "a": {"flavor": "m1", "masks": {"0": "ff0", "1": "f"}, "promise": {}},
            "b": {
                "flavor": "m2",
                "masks": {"0": "f"},
                "promise": {"ways": 4, "is_shared": True, "mbps": 4000},
                "vcpus": 8,
            },
        },
        "memory_seconds": 9e-8,
        "memory_cycles": 200.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (LimitedIn.PERCENT, {"bandwidth_unit": "%"}),
        (LimitedIn.MBPS, {"bandwidth_unit": "MB/s"}),
        (LimitedIn.NOTHING, {"bandwidth_unit": None}),
        (LimitedIn.UNKNOWN, {}),
    ],
)
def test_what_a_host_limits_bandwidth_in_is_told_where_that_is_known(unit: LimitedIn, said: dict[str, str]) -> None:
    told = plain_host(Host({}, {}, limited_in=unit))
    assert {key: value for key, value in told.items() if key == "bandwidth_unit"} == said


def test_the_steps_of_percentages_are_told_where_they_are_known() -> None:
    told = plain_host(Host({}, {}, percent_steps=PercentSteps(5, 10)))
    assert (told["bandwidth_gran"], told["min_bandwidth"]) == (5, 10)
    assert not {"bandwidth_gran", "min_bandwidth"} & plain_host(Host({}, {})).keys()


def test_what_was_not_measured_of_a_sample_is_null() -> None:
    assert plain_sample(Sample(1.0, {0: 5.0, 3: 6.0}, 7.0, Counts(4, 3, 2, 1))) == {
        "occupancy": {"0": 5.0, "3": 6.0},
        "bandwidth": 7.0,
        "counts": {"cycles": 4, "instructions": 3, "references": 2, "misses": 1},
    }
    assert plain_sample(Sample(1.0, {}, None)) == {"occupancy": {}, "bandwidth": None, "counts": None}
    assert plain_sample(Sample(1.0, {}, None, cpu_time=0.0))["cpu_time"] == 0.0
