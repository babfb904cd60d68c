# SPDX-License-Identifier: Apache-2.0
"""The agent that seems to count hardware events does so: the recordings of the documentation are made with it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.functional.insight.counting_agent import playing
from vmqos.agent.sample.hardware_counts import HardwareCounts, VmCounts


def test_what_is_played_is_counted(tmp_path: Path) -> None:
    (tmp_path / "resctrl.events").write_text(json.dumps({"played": [4000, 2400, 48, 9.4]}))
    conf: Any = SimpleNamespace(
        resctrl=SimpleNamespace(path=tmp_path / "resctrl"), telemetry=SimpleNamespace(interval=0.1)
    )
    vms: Any = {uuid: SimpleNamespace(uuid=uuid, arrival=0) for uuid in ("played", "silent")}
    with playing():
        counts = HardwareCounts.of(conf, lambda: vms, lambda seconds: None)
        look = counts._try_to_look()
    assert look.unavailable == ""
    played = look.vms["played"]
    assert isinstance(played, VmCounts) and played.rates == (4000.0, 2400.0, 48.0, 9.4)
    assert not isinstance(look.vms["silent"], VmCounts)
