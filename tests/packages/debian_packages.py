# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, built of this tree in a Debian 13 of their own."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.packages.debian_root import DebianRoot
from tools.lab.workspace import CHECKOUT

PACKAGES = (
    "python3-vmqos",
    "vmqos-agent",
    "vmqos-ceilometer",
    "vmqos-gateway",
    "vmqos-nova",
    "vmqos-watcher",
)
EARLIER = "0.9.0"


@dataclass(frozen=True, slots=True)
class Built:
    """What was built.

    :ivar root: where.
    :ivar earlier: the packages of an earlier version.
    :ivar now: this tree's.
    """

    root: DebianRoot
    earlier: tuple[Path, ...]
    now: tuple[Path, ...]


def version() -> str:
    """The version that ``debian/changelog`` names."""
    (found,) = re.findall(r"\Avmqos \((\S+)\)", (CHECKOUT / "debian/changelog").read_text())
    return str(found)


def build_dependencies() -> list[str]:
    """What ``debian/control`` says that a build needs; without versions, of which Debian 13 has one each."""
    (text,) = re.findall(
        r"^Build-Depends:(.*?)^\S", (CHECKOUT / "debian/control").read_text(), re.MULTILINE | re.DOTALL
    )
    names = [re.split(r"[ (<]", one.strip())[0] for one in text.split(",")]
    virtual = {"debhelper-compat": "debhelper", "dh-sequence-installsysusers": "debhelper"}
    named = {virtual.get(name, name.replace("dh-sequence-python3", "dh-python")) for name in names}
    # dpkg-buildpackage takes it for granted.
    return sorted(named | {"build-essential"})


def build(root: DebianRoot, name: str, source: Path, *options: str) -> tuple[Path, ...]:
    """Build in a root, and name the packages."""
    shutil.move(source, root.path / name / "vmqos")
    root.shell(f"cd /{name}/vmqos && dpkg-buildpackage --no-sign {' '.join(options)}")
    made = tuple(sorted((root.path / name).glob("*.deb")))
    assert [file.name.split("_")[0] for file in made] == sorted(PACKAGES)
    return made
