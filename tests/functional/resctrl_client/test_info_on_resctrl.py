# SPDX-License-Identifier: Apache-2.0
"""vmqos.resctrl.info on a mounted resctrl."""

import pytest

from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, CacheResource
from vmqos.resctrl.info import read_capabilities

ALL, SHAREABLE = CapacityBitmask(0x7FF), CapacityBitmask(0x600)


def test_the_capabilities_are_those_of_the_machine(fs):
    found = read_capabilities(fs)
    assert found.caches == {"L3": CacheResource("L3", 16, ALL, 1, SHAREABLE, False, (0, 1))}
    bandwidth = found.bandwidths["MB"]
    assert (bandwidth.num_closids, bandwidth.min_bandwidth, bandwidth.bandwidth_gran) == (8, 10, 10)
    assert bandwidth.delay_linear
    assert bandwidth.cache_ids == (0, 1)
    assert found.num_closids == 8
    assert set(found.monitoring.events) == {"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}
    assert found.monitoring.num_rmids > found.num_closids
    assert found.monitoring.max_threshold_occupancy > 0


def test_code_and_data_are_apart_where_it_is_mounted_so(mounted):
    with mounted("cdp") as fs:
        found = read_capabilities(fs)
        assert set(found.caches) == {"L3CODE", "L3DATA"}
        assert {resource.num_closids for resource in found.caches.values()} == {8}
        assert found.l3 is not None
        assert found.split_levels == {3} and found.l3.num_closids == 8


@pytest.mark.parametrize(("options", "unit"), [((), BandwidthUnit.PERCENT), (("mba_MBps",), BandwidthUnit.MBPS)])
def test_the_unit_of_bandwidths_is_that_of_the_mount(mounted, options, unit):
    with mounted(*options) as fs:
        assert read_capabilities(fs).bandwidths["MB"].unit is unit
