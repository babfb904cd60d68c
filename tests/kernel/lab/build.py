# SPDX-License-Identifier: Apache-2.0
"""Making what the cache lacks."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.kernel.lab.cache import Cache, Part
from tests.kernel.lab.errors import BuildFailed
from tests.kernel.lab.recipes import Recipe, recipes


def find_all(cache: Cache) -> dict[str, Part]:
    return {recipe.name: cache.get(recipe.name, recipe.digest) for recipe in recipes()}


def build(cache: Cache) -> None:
    with cache.locked(lambda: print("waiting for another build", flush=True)):
        for recipe in recipes():
            if cache.find(recipe.name, recipe.digest) is None:
                started = time.monotonic()
                make(cache, recipe)
                print(f"{recipe.name}: {time.monotonic() - started:.0f} s", flush=True)
        cache.remove_unused()


def make(cache: Cache, recipe: Recipe) -> Part:
    scratch = cache.scratch(recipe.name)
    log = scratch / "log"
    versions = recipe.make(scratch, _run, log)
    return cache.publish(recipe.name, recipe.digest, scratch, versions)


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("ab") as output:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
    if ended.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise BuildFailed(f"{command[0]} ended with {ended.returncode}:\n{tail}")
