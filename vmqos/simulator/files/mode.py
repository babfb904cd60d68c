# SPDX-License-Identifier: Apache-2.0
"""The ``mode`` file of a control group."""

from __future__ import annotations

import errno

from vmqos.simulator.files import pseudo_lock
from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.kernel.numbers import refusal


def show(group: Group) -> str:
    """The content of ``mode``."""
    return group.mode.value + "\n"


def store(mounted: Mounted, group: Group, data: str) -> None:
    """Take one write to ``mode`` (``rdtgroup_mode_write``).

    :raises OSError: ``EINVAL``, the reason being in ``last_cmd_status`` unless the newline is missing.
    """
    if not data.endswith("\n"):
        raise refusal(errno.EINVAL)
    word = data[:-1].partition("\0")[0]
    status = mounted.status
    status.clear()
    if word == group.mode.value:
        return
    if group.mode is Mode.LOCKED:
        status.puts("Cannot change pseudo-locked group\n")
        raise refusal(errno.EINVAL)
    if word == Mode.SHAREABLE.value:
        _leave_setup(mounted, group)
        group.mode = Mode.SHAREABLE
    elif word == Mode.EXCLUSIVE.value:
        _check_exclusive(mounted, group)
        _leave_setup(mounted, group)
        group.mode = Mode.EXCLUSIVE
    elif word == Mode.LOCK_SETUP.value:
        pseudo_lock.enter_setup(mounted, group)
        group.mode = Mode.LOCK_SETUP
    else:
        status.puts("Unknown or unsupported mode\n")
        raise refusal(errno.EINVAL)


def _leave_setup(mounted: Mounted, group: Group) -> None:
    if group.mode is Mode.LOCK_SETUP:
        pseudo_lock.exit_setup(mounted, group)


def _check_exclusive(mounted: Mounted, group: Group) -> None:
    """Refuse if any mask of the group meets another's (``rdtgroup_mode_test_exclusive``)."""
    caches = [schema for schema in mounted.schemas if schema.resource.cache]
    for schema in caches:
        for domain in schema.resource.domains:
            mask = schema.resource.value(domain, group.closid, schema.use)
            if mounted.overlaps(schema, domain, mask, group.closid, exclusive_only=False):
                mounted.status.puts("Schemata overlaps\n")
                raise refusal(errno.EINVAL)
    if not caches:
        mounted.status.puts("Cannot be exclusive without CAT/CDP\n")
        raise refusal(errno.EINVAL)
