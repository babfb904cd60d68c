# SPDX-License-Identifier: Apache-2.0
"""Programs of an attacker: a process that lies about its arguments, and a filesystem that does not answer."""

from __future__ import annotations

LYING = """
import ctypes, sys

SIZE, TEXT = int(sys.argv[1]), sys.argv[2].encode().replace(b"|", b"\\0")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()


def field(number):
    return int(fields[number - 3])


# PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE: memory that nothing has touched.
start = libc.mmap(None, SIZE, 3, 0x4022, -1, 0)
ctypes.memmove(start, TEXT, len(TEXT))
# struct prctl_mm_map: the process as it is, but for its arguments; no auxiliary vector, no other program.
values = (field(26), field(27), field(45), field(46), field(47), field(47), field(28), start, start + SIZE,
          field(50), field(51), 0, 0xFFFFFFFF << 32)
map_of_memory = (ctypes.c_uint64 * 13)(*values)
PR_SET_MM, PR_SET_MM_MAP = 35, 14
if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(map_of_memory), ctypes.sizeof(map_of_memory), 0):
    raise OSError(ctypes.get_errno(), "prctl")
print("ready", flush=True)
input()
"""
"""Points its command line at so many bytes of memory that begin with a text, in which ``|`` stands for a zero byte."""

SILENT = """
import errno, os, stat, sys, time
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")
import mfusepy

ROOT, HUSH = sys.argv[1:3]


class Silent(mfusepy.Operations):
    def getattr(self, path, fh=None):
        if path == "/pseudo_lock/x":
            while os.path.exists(HUSH):
                time.sleep(0.05)
            return {"st_mode": stat.S_IFREG | 0o666, "st_nlink": 1, "st_size": 4096}
        if path in ("/", "/pseudo_lock"):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path, fh):
        return [".", "..", "pseudo_lock" if path == "/" else "x"]

    def open(self, path, flags):
        return 1


mfusepy.FUSE(Silent(), ROOT, foreground=True, attr_timeout=0, entry_timeout=0)
"""
"""A filesystem with a file ``pseudo_lock/x``, about which it says nothing as long as another file exists."""
