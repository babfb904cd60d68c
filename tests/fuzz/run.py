# SPDX-License-Identifier: Apache-2.0
"""Running the engine on the targets, each in a process of its own, and what came of each."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.table import CORPUS, FINDINGS, Target

GRACE = 300.0
"""Seconds that a process may take beyond its time: to be started, and to try what is kept. Then it hangs."""

_DONE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)/")
"""A line of libFuzzer: inputs tried, edges reached, inputs that the corpus has now."""

_FIXED = ("-timeout=30", "-rss_limit_mb=2048", "-print_final_stats=0", "-use_value_profile=0")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of fuzzing one target.

    :ivar tried: inputs.
    :ivar taken: inputs that the parser took; the others it refused by an error that it documents.
    :ivar reached: edges of our code that inputs reached, or lines where nothing guides the search.
    :ivar corpus: inputs that each reach something that no other does; those that are kept, where nothing guides.
    :ivar findings: what was found, one line for each.
    """

    target: Target
    tried: int
    taken: int
    reached: int
    corpus: int
    findings: tuple[str, ...]


def is_guided() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(target: Target, seconds: float, *, folder: Path, guided: bool, grown: Path | None = None) -> Outcome:
    """Fuzz one target.

    :param seconds: how long, the start of the process included.
    :param folder: an empty folder.
    :param guided: whether by :mod:`.guided`, else by :mod:`.unguided`.
    :param grown: where the corpus that libFuzzer makes is kept; nowhere if ``None``.
    """
    findings, corpus = folder / "findings", (grown or folder) / target.name
    for path in (findings, corpus, folder / "files"):
        path.mkdir(parents=True, exist_ok=True)
    engine = f"tests.fuzz.{'guided' if guided else 'unguided'}"
    # All processes have the same monotonic clock. So the time that an engine takes to start is a part of its time.
    command = [sys.executable, "-m", engine, target.name, str(folder), str(time.monotonic() + seconds)]
    if guided:
        words = folder / "words"
        words.write_text("".join(f'"{_quoted(word)}"\n' for word in target.words if len(word) < 64), encoding="ascii")
        known = [str(path) for path in (CORPUS / target.name, FINDINGS / target.name) if path.is_dir()]
        command += [*_FIXED, f"-max_len={target.longest}", f"-dict={words}", f"-artifact_prefix={findings}/"]
        command += [str(corpus), *known]
    environment = {**os.environ, "VMQOS_FUZZ_FOLDER": str(folder / "files")}
    with open(folder / "log", "w+b") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            status = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = -1
        log.seek(0)
        text = log.read().decode(errors="replace")
    return _outcome(target, folder, corpus, text, status, guided)


def _outcome(target: Target, folder: Path, corpus: Path, log: str, status: int, guided: bool) -> Outcome:
    told: Mapping[str, int] = {}
    if (folder / "result.json").exists():
        told = json.loads((folder / "result.json").read_text())
    seen = _DONE.findall(log)
    tried, reached, size = map(int, seen[-1]) if seen else (told.get("tried", 0), told.get("reached", 0), 0)
    found = [line.removeprefix("finding: ") for line in log.splitlines() if line.startswith("finding: ")]
    if status != 0:
        # libFuzzer ends the process where it hangs or takes too much memory, and leaves the input behind.
        found.append(f"the process ended with {status}: {' | '.join(log.splitlines()[-3:])[:300]}")
    _keep(target, folder / "findings")
    taken = round(told.get("taken", 0) * tried / max(1, told.get("tried", 0)))
    return Outcome(target, tried, taken, reached, size if guided else len(target.inputs()), tuple(found))


def _keep(target: Target, findings: Path) -> None:
    """Have what was found among the inputs that the unit tests try, but for the planted defect."""
    if target.name == "control":
        return
    for path in findings.iterdir():
        where = FINDINGS / target.name
        where.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            print(f"--- {target.name}, {path.stem}\n{path.read_text(encoding='utf-8')}", flush=True)
        else:
            shutil.copyfile(path, where / path.name)


def _quoted(word: str) -> str:
    r"""A word of libFuzzer's dictionary: what is not plain is written as ``\x0a``."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\' else f"\\x{byte:02x}" for byte in word.encode()
    )
