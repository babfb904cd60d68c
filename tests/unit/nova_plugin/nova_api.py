# SPDX-License-Identifier: Apache-2.0
"""Nova's API itself, without Keystone: whoever asks is an administrator.

As a program it is a nova-api of another controller, in a process of its own: ``python -m ... NOVA_CONF``. Its standard
output is its URL, and it ends with its standard input.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from nova import monkey_patch

if __name__ == "__main__" and hasattr(monkey_patch, "patch"):
    monkey_patch.patch()
from nova import context
from nova.api.openstack import FaultWrapper, compute

from tests.unit.nova_plugin.served import served

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


@contextmanager
def without_plugin(conf: str) -> Iterator[str]:
    """The URL of a nova-api on whose controller vmqos is not installed, with the databases of this one.

    :param conf: the path of nova.conf.
    """
    words = [sys.executable, "-W", "ignore", "-m", __name__, conf]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        url = other.stdout.readline().strip()
        assert url.startswith("http"), "the other nova-api did not start"
        try:
            yield url
        finally:
            other.stdin.close()


def _main(conf: str) -> None:
    from nova import objects, rpc
    from nova.api.validation.extra_specs import validators
    from nova.conf import CONF
    from nova.db.api import api as api_database
    from nova.db.main import api as main_database

    CONF([], project="nova", default_config_files=[conf])
    rpc.init(CONF)
    objects.register_all()
    main_database.configure(CONF)
    api_database.configure(CONF)
    # What Nova loads where there is no entry point of vmqos.
    for name, validator in list(validators.VALIDATORS.items()):
        if type(validator).__module__.startswith("nova_plugin"):
            del validators.VALIDATORS[name]
    with served(NovaApi()) as url:
        print(f"{url}{PREFIX}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _main(sys.argv[1])
