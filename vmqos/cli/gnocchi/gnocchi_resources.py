# SPDX-License-Identifier: Apache-2.0
"""``vmqos gnocchi-resources``: have Gnocchi keep the meters."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from vmqos.cli import exceptions
from vmqos.cli.common.help_text import Documented

FRAGMENT = "gnocchi_resources.yaml"


class Merge(Documented):
    """Add the meters of vmqos to a copy of Ceilometer's gnocchi_resources.yaml.

    Gnocchi drops a metric that this file of ceilometer-agent-notification does not list. Shows as a diff what is
    missing, and writes it only with --write. Everything else in the file stays as it is, comments included; a metric
    that is there already keeps its archive policy.

    For example::

        vmqos gnocchi-resources merge /etc/ceilometer/gnocchi_resources.yaml
        vmqos gnocchi-resources merge /etc/ceilometer/gnocchi_resources.yaml --write
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the file, and whether to change it."""
        parser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="the file that ceilometer-agent-notification reads")
        parser.add_argument("--write", action="store_true", help="change FILE, instead of only showing how")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Read, compare, show; write if that is wanted."""
        # Imported here: the other commands need no YAML.
        from vmqos.cli.gnocchi import resource_definitions as definitions

        path = Path(parsed_args.file)
        if parsed_args.write and path.exists() and not path.is_file():
            # What comes by a FIFO may be shown, and there is nothing to change.
            raise exceptions.UnusableFile(path=path, problem="it is no regular file")
        before = _read(path)
        wanted = definitions.metrics_of(resources.files("vmqos.cli").joinpath(FRAGMENT).read_text("utf-8"))
        try:
            merged = definitions.merge(before, wanted)
        except definitions.NotUnderstood as error:
            raise exceptions.NoResourceDefinitions(path=path, problem=error) from error
        for name in merged.kept:
            self.app.LOG.warning(f"{name} is there already with another definition, which is kept")
        for policy in merged.policies:
            self.app.LOG.warning(f"{path} does not define the archive policy {policy}: Gnocchi must have it")
        if not merged.added:
            self.app.LOG.info(f"{path} has all {len(wanted)} metrics of vmqos: nothing to do")
            return 0
        self.app.stdout.writelines(_diff(str(path), before, merged.text))
        if parsed_args.write:
            _write(path, merged.text)
            done = f"{path} was changed: restart ceilometer-agent-notification"
        else:
            done = f"{path} was not changed: --write does it"
        self.app.stdout.flush()
        self.app.LOG.info(done)
        return 0


def _read(path: Path) -> str:
    try:
        # As it is: the ends of lines, too.
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise exceptions.NoSuchDefinitions(path=path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise exceptions.UnusableFile(path=path, problem=getattr(error, "strerror", None) or error) from error


def _write(path: Path, text: str) -> None:
    """Replace the file in one step, keeping its owner and permissions; a link keeps pointing to it."""
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = file.name
            file.write(text.encode())
        before = target.stat()
        shutil.copymode(target, temporary)
        os.chown(temporary, before.st_uid, before.st_gid)
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise exceptions.UnusableFile(path=path, problem=error.strerror) from error


def _diff(name: str, before: str, after: str) -> list[str]:
    old, new = before.splitlines(), after.splitlines()
    return [f"{line}\n" for line in difflib.unified_diff(old, new, name, name, "as it is", "with vmqos", lineterm="")]
