# SPDX-License-Identifier: Apache-2.0
"""Recordings of what kernels answered, which users of other machines send."""

from __future__ import annotations

import json

from tests.functional.replay import recording as recordings
from tests.fuzz.targets import parts


def recording(data: bytes) -> bool:
    try:
        found = recordings.load(parts.lay_down("recording.jsonl", data))
    except ValueError:
        return False
    for record in found:
        recordings.refused(record)
    assert all(isinstance(content, str) for content in recordings.contents(found).values())
    for is_ascii in (True, False):
        again = "".join(json.dumps(record, ensure_ascii=is_ascii) + "\n" for record in found)
        # Half of a pair of surrogates has no other form than an escape.
        if is_ascii or not any("\ud800" <= letter <= "\udfff" for letter in again):
            assert repr(recordings.load(parts.lay_down("again.jsonl", again.encode()))) == repr(found)
    return bool(found)
