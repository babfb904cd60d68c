# SPDX-License-Identifier: Apache-2.0
"""The file by which nova-compute itself tells Placement what this host can promise.

The schema is Nova's (``nova.compute.provider_config``, version 1.0; the administrator's guide, "Managing Resource
Providers Using Config Files"). Such a file can't make a child provider, so the compute node's own gets the inventories.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

import msgspec

from vmqos import regular_file
from vmqos.openstack.exceptions import CloudError
from vmqos.openstack.placement import Inventory

_HEAD = """\
# Written by vmqos-agent ([placement] provider_yaml): changes made here do not last.
# nova-compute reads it when it starts, and at no other time.
"""

_LONGEST = 1 << 20
"""Bytes of such a file that are read at most."""


def render(inventories: Mapping[str, Inventory], traits: Iterable[str] = ()) -> str:
    """The file's text.

    :param inventories: by resource class.
    """
    # Few hosts need it.
    import yaml

    provider: dict[str, object] = {
        "identification": {"uuid": "$COMPUTE_NODE"},
        "inventories": {"additional": [{name: asdict(inventory)} for name, inventory in sorted(inventories.items())]},
    }
    if found := sorted(traits):
        provider["traits"] = {"additional": found}
    value = {"meta": {"schema_version": "1.0"}, "providers": [provider]}
    return _HEAD + str(yaml.safe_dump(value, sort_keys=False))


class NotOurs(CloudError):
    """A file that is to be changed is not as an agent writes it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path} is no file of vmqos-agent ({reason}); it was left as it is: name another one in [placement] "
            "provider_yaml, or remove it"
        )


class Damaged(NotOurs):
    """A file begins as an agent writes it, and does not go on so."""


def read(path: str) -> dict[str, Inventory]:
    """The inventories by resource class of a file that :func:`render` made; none where that is empty, or not there.

    :raises NotOurs: if it is no such file.
    :raises Damaged: if it was one.
    :raises OSError: if it can't be read.
    """
    return _read(path)[1]


def reserve(path: str, *, dry_run: bool = False) -> bool:
    """Reserve all inventories of a file that :func:`render` made, and take the traits out of it.

    The totals and units stay: Placement holds servers that Nova moves away against them.

    :param dry_run: whether to write nothing.
    :returns: whether anything had to be changed; ``False`` where there is no file, or an empty one.
    :raises NotOurs: if it is no such file.
    :raises OSError: if it can't be read or written.
    """
    text, there = _read(path)
    fresh = render({name: replace(found, reserved=found.total) for name, found in there.items()}) if there else text
    if fresh != text and not dry_run:
        write(path, fresh)
    return fresh != text


def _read(path: str) -> tuple[str, dict[str, Inventory]]:
    """The text of the file and its inventories; neither where there is no file, or an empty one."""
    import yaml

    try:
        found = regular_file.read(path, _LONGEST + 1)
    except FileNotFoundError:
        return "", {}
    if not found:
        return "", {}
    if len(found) > _LONGEST or not found.startswith(_HEAD.encode()):
        raise NotOurs(path, "it does not begin as such a file does" if len(found) <= _LONGEST else "it is too long")
    inventories: dict[str, Inventory] = {}
    try:
        text = found.decode()
        for provider in yaml.safe_load(text)["providers"]:
            for additional in provider["inventories"]["additional"]:
                inventories |= msgspec.convert(additional, dict[str, Inventory])
    except (
        yaml.YAMLError,
        msgspec.ValidationError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise Damaged(path, " ".join(str(error).split())[:200]) from error
    return text, inventories


def write(path: str, text: str) -> bool:
    """Put the text into the file, which is the old one or the new one at any moment.

    :returns: whether the file had another text, or was not there.
    :raises OSError: if it can't be written, or the path is that of something else than a file.
    """
    content = text.encode()
    with contextlib.suppress(FileNotFoundError):
        if regular_file.read(path, len(content) + 1) == content:
            return False
    # Nova reads every *.yaml of the directory.
    descriptor, fresh = tempfile.mkstemp(prefix=".vmqos-", dir=os.path.dirname(path) or ".")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, 0o644)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
    return True
