# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from vmqos.gateway.page import Site

PATHS = ["/", "/page/main.js", "/page/layout.css", "/page/icon.svg", "/v1/health", "/nowhere"]


def behind(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Stands for the API."""
    start_response("200 OK", [("Content-Type", "application/json")])
    return [b'{"from": "behind"}']


def ask(path: str, method: str = "GET", site: Site | None = None, **headers: str) -> tuple[str, dict[str, str], bytes]:
    answered: list[Any] = []

    def start_response(status: str, sent: list[tuple[str, str]]) -> None:
        answered.extend((status, dict(sent)))

    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": "localhost", **headers}
    body = b"".join((site or Site(behind))(environ, start_response))
    return answered[0], answered[1], body


@pytest.mark.parametrize(
    ("path", "content_type", "content"),
    [
        ("/", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
        ("", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
        ("/page/main.js", "text/javascript; charset=utf-8", b"import"),
        ("/page/layout.css", "text/css; charset=utf-8", b"body {"),
        ("/page/icon.svg", "image/svg+xml", b"<svg"),
    ],
)
def test_a_file_of_the_page_is_sent_as_what_it_is(path: str, content_type: str, content: bytes) -> None:
    status, headers, body = ask(path)
    assert (status, headers["Content-Type"]) == ("200 OK", content_type)
    assert content in body
    assert headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize(
    "path", ["/v1/health", "/metrics", "/page", "/page/../site.py", "/page/nothing.js", "/index.html"]
)
def test_everything_else_is_for_the_application_behind(path: str) -> None:
    assert ask(path)[2] == b'{"from": "behind"}'


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_a_browser_from_being_tricked(path: str) -> None:
    headers = ask(path)[1]
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", PATHS)
def test_a_name_that_is_not_ours_gets_nothing(path: str) -> None:
    status, headers, body = ask(path, HTTP_HOST="evil.example")
    assert status == "421 Misdirected Request"
    assert b"evil.example" in body and b"behind" not in body
    assert "Content-Security-Policy" in headers


def test_a_name_can_be_added() -> None:
    site = Site(behind, ["Compute-7.cloud.example."])
    assert ask("/v1/vms", site=site, HTTP_HOST="compute-7.cloud.example:9190")[0] == "200 OK"
    assert ask("/v1/vms", site=site, HTTP_HOST="compute-8.cloud.example:9190")[0] == "421 Misdirected Request"


def test_a_client_that_is_too_old_to_name_a_host_is_answered() -> None:
    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        assert status == "200 OK"

    assert list(Site(behind)({"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/vms"}, start_response))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_the_page_can_only_be_read(method: str) -> None:
    status, headers, _ = ask("/", method)
    assert (status, headers["Allow"]) == ("405 Method Not Allowed", "GET, HEAD")


def test_a_head_is_the_same_without_the_body() -> None:
    _, headers, body = ask("/")
    assert ask("/", "HEAD") == ("200 OK", headers, b"")
    assert body


def test_what_a_browser_has_already_is_not_sent_again() -> None:
    tag = ask("/page/main.js")[1]["ETag"]
    status, headers, body = ask("/page/main.js", HTTP_IF_NONE_MATCH=f'"other", {tag}')
    assert (status, body) == ("304 Not Modified", b"")
    assert headers["ETag"] == tag
    assert ask("/page/main.js", HTTP_IF_NONE_MATCH='"other"')[0] == "200 OK"
