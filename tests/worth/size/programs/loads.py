# SPDX-License-Identifier: Apache-2.0
"""Which programs a VM runs: all are of the guest's Debian, and are run again and again on the same data.

What they work on is text: the source of Python's library, of which each takes as much as it needs. Their working sets
are some hundred KiB, as the modelled cache has 256 KiB in each way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TEXT = "/text"
"""Where the text is in the VM, and ``TEXT_BYTES`` how long it is."""
TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    :ivar what: it does, for the report.
    :ivar files: that it needs: programs and libraries.
    :ivar prepare: shell commands before its first round.
    :ivar round: a shell command that makes a round; empty for a Python program.
    :ivar python: makes one round after the other, and calls ``done()`` behind each.
    :ivar modules: that the Python program imports.
    """

    what: str
    files: tuple[str, ...]
    prepare: str = ""
    round: str = ""
    python: str = ""
    modules: str = ""

    @property
    def script(self) -> str:
        """What the VM's shell runs: it says *ready*, and a dot for each round, and something else if one fails."""
        loop = f"while {self.round}; do printf .; done" if self.round else f"{PYTHON} -I -S /program.py"
        return f"{self.prepare}\nprintf 'ready\\n'\n{loop}\necho the program ended\n"


def _text(size: int) -> str:
    return f"open({TEXT!r}, 'rb').read({size})"


def _shell(what: str, size: int, path: str, arguments: str) -> Program:
    command = f"LC_ALL=C {path} {arguments} /input >/dev/null"
    return Program(what, (path,), f"/bin/busybox head -c {size} {TEXT} >/input", command)


def _python(what: str, modules: str, program: str, *libraries: str) -> Program:
    files = (PYTHON, *(f"/usr/lib/x86_64-linux-gnu/{library}" for library in libraries))
    return Program(what, files, python=f"import {modules}\n{DONE}{program}", modules=modules)


PYTHON = "/usr/bin/python3.13"
DONE = """
def done():
    os.write(1, b".")
"""

PROGRAMS: Mapping[str, Program] = {
    "LZ4": _python(
        "liblz4 compresses 640 KiB of text",
        "ctypes, os",
        f"""
lz4, text = ctypes.CDLL("liblz4.so.1"), {_text(640 << 10)}
room = lz4.LZ4_compressBound(len(text))
into = ctypes.create_string_buffer(room)
while lz4.LZ4_compress_default(text, into, len(text), room) > 0:
    done()
""",
        "liblz4.so.1",
    ),
    "zstd": _python(
        "libzstd compresses 256 KiB of text at its usual level",
        "ctypes, os",
        f"""
zstd, text = ctypes.CDLL("libzstd.so.1"), {_text(256 << 10)}
for name in ("ZSTD_compressBound", "ZSTD_compress"):
    getattr(zstd, name).restype = ctypes.c_size_t
size = ctypes.c_size_t(len(text))
room = ctypes.c_size_t(zstd.ZSTD_compressBound(size))
into = ctypes.create_string_buffer(room.value)
while not zstd.ZSTD_isError(ctypes.c_size_t(zstd.ZSTD_compress(into, room, text, size, 3))):
    done()
""",
        "libzstd.so.1",
    ),
    "gzip": _shell("gzip compresses 128 KiB of text", 128 << 10, "/usr/bin/gzip", "-c"),
    "sort": _shell("sort sorts 256 KiB of lines", 256 << 10, "/usr/bin/sort", "--parallel=1"),
    "SHA-256": _shell("openssl hashes 1 MiB", TEXT_BYTES, "/usr/bin/openssl", "dgst -sha256"),
    "Python": _python(
        "Python counts the words of 160 KiB of text in a dictionary",
        "os",
        f"""
words = {_text(160 << 10)}.split()
while True:
    count = {{}}
    for word in words:
        count[word] = count.get(word, 0) + 1
    done()
""",
    ),
    "SQLite": _python(
        "SQLite finds rows of a table of 1.5 MiB in memory, some much more often than others",
        "os, random, sqlite3",
        """
table, chance = sqlite3.connect(":memory:"), random.Random(1)
table.execute("create table kept (number integer primary key, text blob)")
table.executemany("insert into kept values (?, ?)", ((number, bytes(200)) for number in range(7000)))
while True:
    for _ in range(2000):
        table.execute("select text from kept where number = ?", (int(7000 * chance.random() ** 3),)).fetchone()
    done()
""",
    ),
}
"""By name. Those in Python are hardly Python's own work but for the one that says so."""
