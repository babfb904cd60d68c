# SPDX-License-Identifier: Apache-2.0
"""For the tools that still call it; everything is in setup.cfg, read by pbr."""

import configparser
import os
import subprocess
from pathlib import Path

import setuptools

TREE = Path(__file__).resolve().parent


def has_version() -> bool:
    """Whether pbr finds out the version by itself: from the environment, an sdist's PKG-INFO, or git's history."""
    if os.environ.get("PBR_VERSION") or (TREE / "PKG-INFO").exists():
        return True
    count = ["git", "-C", TREE, "rev-list", "--count", "--max-count=2", "HEAD"]
    try:
        return subprocess.run(count, capture_output=True, text=True, check=False).stdout.strip() == "2"
    except FileNotFoundError:
        return False


if not has_version():
    # An unpacked archive, another user's clone, a machine without git: pbr would refuse to install them. A clone of
    # depth 1 it would call 0.0.0.
    setup_cfg = configparser.ConfigParser(interpolation=None)
    setup_cfg.read(TREE / "setup.cfg")
    os.environ["PBR_VERSION"] = setup_cfg["metadata"]["version"]

setuptools.setup(setup_requires=["pbr>=6.1.1"], pbr=True)
