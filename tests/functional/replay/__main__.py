# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.functional.replay [RECORDING...]``: replay recordings and print what came of them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.functional.replay import derive, player, recording
from tests.functional.replay.stage import Stage
from tests.functional.replay.verdict import summary


def main() -> int:
    """Replay; 1 if anything differs."""
    differing = 0
    for path in [Path(name) for name in sys.argv[1:]] or recording.paths():
        records = recording.load(path)
        with tempfile.TemporaryDirectory(prefix="vmqos-replay-") as directory:
            os.chmod(directory, 0o755)
            stage = Stage(derive.profile_of(records, path.stem), directory)
            try:
                tallies = player.play(stage, records)
            finally:
                stage.close()
        for tally in tallies.values():
            for difference in tally.differences:
                print(difference)
            differing += len(tally.differences)
        print(summary(path.stem, tallies))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
