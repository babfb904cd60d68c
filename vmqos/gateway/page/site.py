# SPDX-License-Identifier: Apache-2.0
"""Adds the page to a WSGI application, and the headers that keep a browser from being tricked."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any

from vmqos.gateway.page import assets, hosts

Headers = list[tuple[str, str]]
StartResponse = Callable[..., object]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

FOLDER = "/page/"
"""Where everything of the page is but itself, which is at ``/``."""

SECURITY: Headers = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]
"""Sent with every answer, those of the application behind included."""


class Site:
    """Serves the page at ``/``, and hands every other question to the application behind it.

    :param behind: the application that answers for the metrics and the API.
    :param names: further host names that may stand in a request, beside ``localhost``, this machine's own name and any
        address.
    """

    def __init__(self, behind: Application, names: Collection[str] = ()) -> None:
        self._behind = behind
        self._names = hosts.LOCAL | hosts.own_names() | {name.lower().removesuffix(".") for name in names}
        self._assets = assets.load()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI (PEP 3333)."""

        def start(status: str, headers: Headers, *rest: object) -> object:
            return start_response(status, [*headers, *SECURITY], *rest)

        host = environ.get("HTTP_HOST")
        if not hosts.is_ours(host, self._names):
            text = f"this host is not called {str(host)[:80]!r}: ask by address, or add the name to [api] host_names"
            return _refuse("421 Misdirected Request", text, [], start)
        asset = self._asset(environ.get("PATH_INFO", ""))
        if asset is None:
            return self._behind(environ, start)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _refuse("405 Method Not Allowed", "the page can only be read", [("Allow", "GET, HEAD")], start)
        return _send(asset, environ, start)

    def _asset(self, path: str) -> assets.Asset | None:
        if path in ("", "/"):
            return self._assets["index.html"]
        return self._assets.get(path.removeprefix(FOLDER)) if path.startswith(FOLDER) else None


def _send(asset: assets.Asset, environ: dict[str, Any], start: StartResponse) -> list[bytes]:
    # Asked for anew each time, so that a page and its scripts are always of the same release.
    headers = [("Cache-Control", "no-cache"), ("ETag", asset.tag)]
    if asset.tag in environ.get("HTTP_IF_NONE_MATCH", ""):
        start("304 Not Modified", headers)
        return []
    start("200 OK", [*headers, ("Content-Type", asset.content_type), ("Content-Length", str(len(asset.content)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [asset.content]


def _refuse(status: str, text: str, headers: Headers, start: StartResponse) -> list[bytes]:
    content = json.dumps({"error": text}).encode()
    start(status, [*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]
