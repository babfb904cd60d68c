# SPDX-License-Identifier: Apache-2.0
"""An observer can keep a log."""

from __future__ import annotations

import io
import json

from vmqos.simulator.hardware.registers import RegisterWrite
from vmqos.simulator.record import Record, to_file


def test_each_operation_is_one_line_of_json() -> None:
    file = io.StringIO()
    observe = to_file(file)
    observe(Record("write", "g/schemata", "L3:1=3\n", 42, None, (RegisterWrite(3, 1, 0xC91, 3),)))
    observe(Record("mkdir", "g", "", 42, "EEXIST"))
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line.pop("time") > 0 for line in lines] == [True, True]
    assert lines == [
        {
            **{"op": "write", "path": "g/schemata", "data": "L3:1=3\n", "pid": 42, "errno": None},
            "registers": [{"level": 3, "cache": 1, "register": "0xc91", "value": "0x3"}],
        },
        {"op": "mkdir", "path": "g", "data": "", "pid": 42, "errno": "EEXIST", "registers": []},
    ]
