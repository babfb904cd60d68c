# SPDX-License-Identifier: Apache-2.0
"""The file by which nova-compute itself tells Placement what this host can promise.

The schema is Nova's (``nova.compute.provider_config``, version 1.0; the administrator's guide, "Managing Resource
Providers Using Config Files"). Such a file can't make a child provider, so the compute node's own gets the inventories.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import asdict

from vmqos.agent.capacity import Capacity

_HEAD = """\
# Written by vmqos-agent ([placement] provider_yaml): changes made here do not last.
# nova-compute reads it when it starts, and at no other time.
"""


def render(capacity: Capacity) -> str:
    """The file's text."""
    # Few hosts need it.
    import yaml

    provider: dict[str, object] = {
        "identification": {"uuid": "$COMPUTE_NODE"},
        "inventories": {
            "additional": [{name: asdict(inventory)} for name, inventory in sorted(capacity.inventories.items())]
        },
    }
    if capacity.traits:
        provider["traits"] = {"additional": sorted(capacity.traits)}
    value = {"meta": {"schema_version": "1.0"}, "providers": [provider]}
    return _HEAD + str(yaml.safe_dump(value, sort_keys=False))


def write(path: str, text: str) -> bool:
    """Put the text into the file, which is the old one or the new one at any moment.

    :returns: whether the file had another text, or was not there.
    :raises OSError: if it can't be written.
    """
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read() == text:
            return False
    # Nova reads every *.yaml of the directory.
    descriptor, fresh = tempfile.mkstemp(prefix=".vmqos-", dir=os.path.dirname(path) or ".")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, 0o644)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
    return True
