# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from ceilometer_pollster import metadata
from tests.unit.ceilometer_pollster.sweeps import GOLD, vm
from vmqos.telemetry import Missing


def test_it_tells_class_policy_and_what_was_read_of_each_cache() -> None:
    told = metadata.of_vm(vm(GOLD, promised=True, missing={"mbm_total_bytes": Missing.UNAVAILABLE}))
    assert told["class"] == f"vmqos.{GOLD}"
    assert told["policy"] == "exclusive"
    assert told["caches"] == {
        "0": {"ways": 2, "llc_occupancy": 1000, "mbm_total_bytes": "unavailable", "mbm_local_bytes": 1000},
        "1": {"ways": 3, "llc_occupancy": 2000, "mbm_total_bytes": "unavailable", "mbm_local_bytes": 2000},
    }


def test_a_vm_of_the_default_group_has_no_policy_and_no_ways() -> None:
    told = metadata.of_vm(vm(GOLD))
    assert (told["class"], told["policy"]) == ("", None)
    assert {cache["ways"] for cache in told["caches"].values()} == {None}


def test_it_comes_out_of_a_message_as_it_went_in() -> None:
    told = metadata.of_vm(vm(GOLD, promised=True))
    assert json.loads(json.dumps(told)) == told
