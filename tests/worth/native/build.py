# SPDX-License-Identifier: Apache-2.0
"""Compiling the library, once for each version of its source."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.kernel.lab.recipes import PLUGIN

HERE = Path(__file__).parent
OF_PLUGIN = (
    *("cache.c", "channel.c", "control.c", "counters.c", "evictions.c", "hierarchy.c", "machine.c", "msr.c"),
    *("options.c", "pmu.c", "stall.c", "trace.c", "window.c"),
)
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{PLUGIN}")


def sources() -> list[Path]:
    """What is compiled."""
    return [*sorted(HERE.glob("*.c")), *(PLUGIN / name for name in OF_PLUGIN)]


def directory() -> Path:
    """``$VMQOS_NATIVE``, or ``vmqos/native`` in the user's cache directory (XDG Base Directory)."""
    if chosen := os.environ.get("VMQOS_NATIVE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmqos" / "native"


@cache
def library() -> ctypes.CDLL:
    """Load it, compiled first if its source has changed.

    :raises subprocess.CalledProcessError: if the compiler refuses; it says why on standard error.
    """
    content = b"\0".join(path.read_bytes() for path in (*sources(), *HERE.glob("*.h"), *sorted(PLUGIN.glob("*.h"))))
    digest = hashlib.sha256(" ".join(FLAGS).encode() + content).hexdigest()[:16]
    built = directory() / f"{digest}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            made = Path(scratch) / built.name
            subprocess.run(["cc", *FLAGS, "-o", str(made), *map(str, sources()), "-lm"], check=True)
            # Whole or not at all, whoever else builds it now.
            made.rename(built)
    return _declared(ctypes.CDLL(str(built)))


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    handle, number, big = ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint64
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    loaded.engine_make.restype = handle
    loaded.engine_make.argtypes = [number, pointer, ctypes.c_int, pointer, ctypes.c_char_p, size]
    loaded.engine_free.argtypes = [handle]
    loaded.engine_start.argtypes = [handle, number, number, number, big, ctypes.c_bool, pointer, number]
    loaded.engine_load.restype = ctypes.c_bool
    loaded.engine_load.argtypes = [handle, number, pointer, number]
    loaded.engine_assign.argtypes = [handle, number, number, number, number]
    loaded.engine_stop.argtypes = [handle, number, ctypes.c_bool]
    loaded.engine_wrmsr.argtypes = [handle, number, ctypes.c_uint32, big]
    loaded.engine_run.argtypes = [handle, big]
    loaded.engine_counted.argtypes = [handle, number, number, pointer]
    loaded.engine_progress.argtypes = [handle, number, pointer]
    loaded.engine_evictions.restype = size
    loaded.engine_evictions.argtypes = [handle, number, pointer, size]
    return loaded
