# SPDX-License-Identifier: Apache-2.0
"""Nova's API itself, without Keystone: whoever asks is an administrator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nova import context
from nova.api.openstack import FaultWrapper, compute

PREFIX = "/v2.1"


class NovaApi:
    """The WSGI application that nova-api serves below ``/v2.1``."""

    def __init__(self) -> None:
        self._router = FaultWrapper(compute.APIRouterV21())

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer one request."""
        path = environ["PATH_INFO"]
        assert path.startswith(PREFIX), path
        environ["SCRIPT_NAME"] += PREFIX
        environ["PATH_INFO"] = path.removeprefix(PREFIX) or "/"
        environ["nova.context"] = context.RequestContext("user", "project", is_admin=True, roles=["admin"])
        found: Iterable[bytes] = self._router(environ, start)
        return found
