# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.host import describe
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities, Monitoring

L3 = CacheResource("L3", 16, CapacityBitmask(0x7FF), 1, CapacityBitmask(0x600), False, (0, 1))


def test_capabilities_are_told_as_they_were_read() -> None:
    told = describe.offered(Capabilities({"L3": L3}, {}, Monitoring(32, ("llc_occupancy",), 65536)))
    assert told["num_closids"] == 16 and told["caches"]["L3"]["cache_ids"] == [0, 1]
    assert told["monitoring"]["events"] == ["llc_occupancy"] and told["bandwidths"] == {}
    assert describe.offered(Capabilities())["monitoring"] is None
