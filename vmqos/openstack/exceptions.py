# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between this host and OpenStack; each message says what the operator should do."""

from __future__ import annotations


class CloudError(Exception):
    """The root of the errors of this package."""


class NotLoggedIn(CloudError):
    """The credentials are incomplete, unknown or refused, or the catalog does not have the service."""

    def __init__(self, section: str, reason: str) -> None:
        super().__init__(f"no way to {section.capitalize()} with what [{section}] says: {reason}")


class Unreachable(CloudError):
    """A service does not answer, or not in time, or its answer ends in the middle."""

    def __init__(self, section: str, reason: str) -> None:
        super().__init__(f"{section.capitalize()} can't be reached: {reason}")


class Refused(CloudError):
    """A service answers, and does not do what it was asked.

    :ivar status: the HTTP status, 400 or higher; 0 where the answer itself makes no sense.
    """

    def __init__(self, section: str, question: str, status: int, reason: str) -> None:
        name, hint = section.capitalize(), ""
        if status == 401:
            # Keystone gave the token, and the library has asked for a new one and tried again.
            hint = f"; {name} does not take the token of the user of [{section}]: its own log tells why"
        elif status == 403:
            hint = f"; the user of [{section}] needs more rights"
        what = f"{name} refuses {question} with {status}" if status else f"{name}'s answer to {question} is of no use"
        super().__init__(f"{what}: {reason}{hint}")
        self.status = status


class HostnameUnknown(CloudError):
    """The configuration does not name the compute node, and libvirt has not told its name yet."""

    def __init__(self) -> None:
        super().__init__(
            "the hypervisor hostname of this compute node is not known, for libvirt has not told it to vmqos-agent: "
            "see what 'vmqos doctor' says about libvirt, or set [placement] hypervisor_hostname"
        )


class NoComputeNode(CloudError):
    """Placement has no provider for this compute node."""

    def __init__(self, hostname: str) -> None:
        super().__init__(
            f"Placement has no resource provider {hostname}: nova-compute makes it when it first starts; "
            "if the compute node has another name, set [placement] hypervisor_hostname"
        )


class StillConflicting(CloudError):
    """Another client changed the provider at the same time, again and again."""

    def __init__(self, provider: str, times: int) -> None:
        super().__init__(f"the resource provider {provider} was changed by others {times} times while it was updated")


class ServerUnknown(CloudError):
    """Nova has no server of that UUID that the credentials may see."""

    def __init__(self, uuid: str) -> None:
        super().__init__(
            f"Nova knows no server {uuid}, or the user of [nova] may not see it: that needs the role admin, or reader "
            "in the server's project"
        )


class FlavorHidden(CloudError):
    """Nova shows the server, and not what its flavor asks for."""

    def __init__(self, uuid: str) -> None:
        super().__init__(
            f"Nova does not show the extra specs of server {uuid}'s flavor: the user of [nova] lacks the right "
            "os_compute_api:servers:show:flavor-extra-specs"
        )
