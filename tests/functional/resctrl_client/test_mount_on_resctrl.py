# SPDX-License-Identifier: Apache-2.0
"""vmqos.resctrl.mount on a mounted resctrl."""

import subprocess

import pytest

from tests.functional.resctrl_client.mounted import ON_KERNEL
from vmqos.resctrl import exceptions, info, mount


def test_a_mounted_resctrl_is_found_and_known_for_what_it_is(fs):
    assert mount.find(fs.root) == mount.Mount(fs.root, frozenset(), read_only=False, simulated=not ON_KERNEL)


@pytest.mark.parametrize("options", [("cdp",), ("mba_MBps",), ("cdp", "mba_MBps")], ids=",".join)
def test_its_mount_options_are_seen(mounted, options):
    with mounted(*options) as fs:
        assert mount.find(fs.root, options=options).options == set(options)


def test_a_missing_option_is_told_with_the_command(fs):
    with pytest.raises(exceptions.MissingMountOptions, match="without cdp"):
        mount.find(fs.root, options=["cdp"])


def test_a_read_only_mount_is_told_at_the_look_and_at_each_write(fs):
    subprocess.run(["mount", "-i", "-o", "remount,bind,ro", fs.root], check=True)
    try:
        with pytest.raises(exceptions.ReadOnly, match="remount,rw"):
            mount.find(fs.root)
        assert mount.find(fs.root, writable=False).read_only
        with pytest.raises(exceptions.ReadOnly):
            fs.write("schemata", "L3:0=7ff")
        with pytest.raises(exceptions.ReadOnly):
            fs.mkdir("g")
        with fs.lock(exclusive=False, timeout=0):
            assert info.read_capabilities(fs).l3
    finally:
        subprocess.run(["mount", "-i", "-o", "remount,bind,rw", fs.root], check=True)


def test_an_unmounted_resctrl_has_vanished(mounted):
    with mounted() as fs:
        root = fs.root
    with pytest.raises((exceptions.NotMounted, exceptions.NotSupported)):
        mount.find(root)
    for use in (lambda: fs.read("schemata"), lambda: fs.write("schemata", "L3:0=1"), lambda: fs.rmdir("g")):
        with pytest.raises(exceptions.Vanished):
            use()
