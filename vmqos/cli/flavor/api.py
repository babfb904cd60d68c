# SPDX-License-Identifier: Apache-2.0
"""The cloud's flavors, over Nova's API with openstacksdk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vmqos.cli import exceptions
from vmqos.cli.flavor.flavor_specs import Edit

if TYPE_CHECKING:
    from openstack.compute.v2.flavor import Flavor
    from openstack.connection import Connection

_LIMITED = "1.16"
"""The microversion of Placement that takes a limit for allocation candidates (Queens)."""


def connect(cloud: str | None) -> Connection:
    """Find the cloud as the ``openstack`` command does: clouds.yaml, or the variables ``OS_...`` of the environment.

    :param cloud: its name in clouds.yaml; that of ``OS_CLOUD`` if ``None``.
    :raises vmqos.cli.exceptions.CloudFailed: if it is not described there.
    """
    # Imported here: it takes a quarter of a second, and the other commands ask the agent.
    import openstack

    from vmqos.openstack.service import NOT_OF_ITS_FORM

    with told():
        try:
            return openstack.connect(cloud=cloud)
        except NOT_OF_ITS_FORM as error:
            raise exceptions.CloudFailed(problem=f"clouds.yaml is not of its form: {error}") from error


def flavors(connection: Connection) -> list[Flavor]:
    """All flavors of the cloud, those that are not public too, with their extra specs.

    :raises vmqos.cli.exceptions.CloudFailed: if the cloud does not answer, or refuses.
    """
    with told():
        return list(connection.compute.flavors())


def find(connection: Connection, wanted: str) -> Flavor:
    """The flavor with that name or ID, with its extra specs.

    :raises vmqos.cli.exceptions.NoSuchFlavor: if there is none.
    :raises vmqos.cli.exceptions.CloudFailed: if the cloud does not answer, or refuses.
    """
    with told():
        flavor = connection.compute.find_flavor(wanted, get_extra_specs=True)
    if flavor is None:
        raise exceptions.NoSuchFlavor(wanted=wanted)
    return flavor


def asked_of_placement(connection: Connection, path: str, version: str, **query: str) -> Any:
    """What Placement answers; ``None`` where it does not know the resource class, the trait or the provider.

    :param version: the API version to ask for.
    :raises vmqos.cli.exceptions.CloudFailed: if Placement does not answer, or refuses.
    """
    from openstack.exceptions import raise_from_response

    with told():
        answer = connection.placement.get(path, params=query, microversion=version)
        if answer.status_code in (400, 404):
            return None
        raise_from_response(answer)
        return answer.json()


def apply(connection: Connection, flavor: Flavor, change: Edit) -> dict[str, str]:
    """Change a flavor's extra specs; what is added goes first and in one request, so that no promise is half made.

    :returns: the extra specs as they are then.
    :raises vmqos.cli.exceptions.CloudFailed: if the cloud does not answer, or refuses.
    """
    specs = dict(flavor.extra_specs)
    with told():
        if change.put:
            connection.compute.create_flavor_extra_specs(flavor, dict(change.put))
        for key in change.drop:
            connection.compute.delete_flavor_extra_specs_property(flavor, key)
    return {key: value for key, value in {**specs, **change.put}.items() if key not in change.drop}


def not_offered(connection: Connection, resource_class: str) -> str:
    """Why no flavor should ask Placement for that resource class; empty where a host offers it.

    Placement knows a resource class for ever once a host has told it, so the hosts are asked for, and one is enough.
    """
    try:
        found = is_offered(connection, resource_class)
    except exceptions.CloudFailed as error:
        return f"Placement can't be asked for {resource_class}: {error}"
    return "" if found else f"no host offers {resource_class} in Placement"


def is_offered(connection: Connection, resource_class: str) -> bool:
    """Whether any host has one of that resource class left.

    :raises vmqos.cli.exceptions.CloudFailed: if Placement does not answer, or refuses.
    """
    found = asked_of_placement(
        connection, "/allocation_candidates", _LIMITED, resources=f"{resource_class}:1", limit="1"
    )
    return bool(found and found["allocation_requests"])


@contextmanager
def told() -> Iterator[None]:
    """Say in a line what keystoneauth and openstacksdk say in many ways."""
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    try:
        yield
    except (SDKException, ClientException, OSError) as error:
        # The library for HTTP has no error of its own for a file of certificates that is not there, and no number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise exceptions.CloudFailed(problem=" ".join(str(error).split()).rstrip(".")) from error
