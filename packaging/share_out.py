# SPDX-License-Identifier: Apache-2.0
"""Give Nova's, Ceilometer's and Watcher's plugins to the packages of their own, each with the entry points of its own.

pip installs one distribution, vmqos, with the entry points of all. Of these packages one can be installed without
another: then an entry point would name a module that is not there, and Nova, Ceilometer and Watcher would complain.

    share_out.py MODULES nova_plugin=TARGET ceilometer_pollster=TARGET watcher_plugin=TARGET

MODULES is the directory that vmqos was installed into, and TARGET is where the plugin is to be: the same place, or that
of another package.
"""

from __future__ import annotations

import configparser
import shutil
import sys
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

NAMES = {"nova_plugin": "vmqos-nova", "ceilometer_pollster": "vmqos-ceilometer", "watcher_plugin": "vmqos-watcher"}
"""The plugins' distributions by module."""


def entry_points(text: str = "") -> configparser.ConfigParser:
    """Entry points, as their file has them: names are told apart by upper and lower case, and may have a colon."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read_string(text)
    return parser


def share_out(modules: Path, targets: Mapping[str, Path]) -> None:
    """Move the plugins, and give each its entry points.

    :param modules: where all modules are now.
    :param targets: where the plugins are to be, by module.
    """
    (library,) = modules.glob("vmqos-*.dist-info")
    version = HeaderParser().parsestr((library / "METADATA").read_text())["Version"]
    left = entry_points((library / "entry_points.txt").read_text())
    for module, target in targets.items():
        own = entry_points()
        for group in left.sections():
            for name, value in list(left[group].items()):
                if value.partition(":")[0].split(".")[0] == module:
                    if not own.has_section(group):
                        own.add_section(group)
                    own[group][name] = value
                    left.remove_option(group, name)
            if not left[group]:
                left.remove_section(group)
        info = target / f"{NAMES[module].replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        if target != modules:
            shutil.move(modules / module, target / module)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAMES[module]}\nVersion: {version}\n")
        with (info / "entry_points.txt").open("w") as file:
            own.write(file)
    with (library / "entry_points.txt").open("w") as file:
        left.write(file)


if __name__ == "__main__":
    pairs = [word.partition("=") for word in sys.argv[2:]]
    share_out(Path(sys.argv[1]), {module: Path(target) for module, _, target in pairs})
