# SPDX-License-Identifier: Apache-2.0
"""Shared classes and traits that flavors ask Placement for, and no host has; over Placement's API with openstacksdk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from vmqos.cli import exceptions
from vmqos.cli.flavor import api
from vmqos.extra_specs import resources

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = "1.18"
"""Placement's API version (Rocky) from which providers can be listed by their traits."""

_OF_EVERY_HOST = (resources.L3_CAT, resources.SHARED_ROOM, resources.SHARED_FULL, resources.L2_CAT, resources.MBA)
"""Traits of which each host that can promise anything has at least one."""


def asked(specs: Mapping[str, str]) -> frozenset[str]:
    """The resource classes of shared classes that a flavor asks for, and the traits of vmqos that it requires."""
    classes = {name for name in resources.asked(specs) if name.startswith(resources.LLC_SHARED)}
    return resources.required(specs) | classes


def lacking(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """What is wrong with those of the names that no host has.

    Placement is asked once for each name.

    :param names: as :func:`asked` returns them.
    :raises vmqos.cli.exceptions.CloudFailed: if Placement does not answer, or refuses; or if no host has told it of
        anything.
    """
    found = {}
    for name in sorted(names):
        if name.startswith(resources.LLC_SHARED):
            if not api.is_offered(connection, name):
                called = name.removeprefix(resources.LLC_SHARED).lower().replace("_", "-")
                found[name] = (
                    f"asks Placement for {name}, which no host offers now: name {called} in [allocation] "
                    "shared_classes of hosts that have a CLOSID left"
                )
        elif not _is_there(connection, name):
            found[name] = f"requires the trait {name}, which no host has"
    if found and not any(_is_there(connection, trait) for trait in _OF_EVERY_HOST):
        raise exceptions.CloudFailed(problem="no host has told Placement of its cache yet")
    return found


def _is_there(connection: Connection, trait: str) -> bool:
    """Whether any resource provider has the trait."""
    found = api.asked_of_placement(connection, "/resource_providers", _VERSION, required=trait)
    return bool(found and found["resource_providers"])
