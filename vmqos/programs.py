# SPDX-License-Identifier: Apache-2.0
"""Where ``vmqos-agent`` and ``vmqos-gateway`` begin: they say so where the libraries that they need are not installed.

vmqos without an extra needs nothing, for Nova's services take only its grammar of extra specs. But its programs are
installed all the same.
"""

from __future__ import annotations

import importlib
import sys


def agent() -> int:
    """Run ``vmqos-agent``; see :func:`vmqos.agent.main.main`."""
    return _run("vmqos-agent", "vmqos.agent.main")


def gateway() -> int:
    """Run ``vmqos-gateway``; see :func:`vmqos.gateway.main.main`."""
    return _run("vmqos-gateway", "vmqos.gateway.main")


def what_is_missing(program: str, error: ModuleNotFoundError) -> str:
    """A line for people about a library that is not installed.

    :raises ModuleNotFoundError: if it is a module of vmqos itself, which no extra would bring.
    """
    library = (error.name or "").partition(".")[0]
    if library == "vmqos":
        raise error
    return (
        f"{program}: there is no {library} in the Python environment of {sys.executable}: vmqos is installed there "
        "without what a compute node needs; install it with pip as 'vmqos[agent]', or '.[agent]' from a checkout"
    )


def _run(program: str, module: str) -> int:
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        print(what_is_missing(program, error), file=sys.stderr)
        return 1
    return int(main())
