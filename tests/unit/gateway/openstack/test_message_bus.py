# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.gateway.openstack.message_bus with the real oslo.messaging; tests/openstack has a real broker."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from tests.unit.gateway.openstack.test_placement import configured
from vmqos.conf.exceptions import ConfigurationError
from vmqos.gateway.openstack.message_bus import MessageBus, NotSent
from vmqos.gateway.openstack.notification import Notification

EVENT = Notification("vmqos.vm.promise", "error", {"uuid": "u", "number": 3}, "an-id", 1793999000.25)

# A port of loopback that refuses connections.
AWAY = "rabbit://me:secret@127.0.0.1:9/"


def bus(tmp_path: Path, url: str, further: str = "") -> MessageBus:
    return MessageBus(conf(tmp_path, url, further))


def conf(tmp_path: Path, url: str, further: str = "") -> cfg.ConfigOpts:
    return configured(tmp_path, f"[notifications]\ntransport_url = {url}\nhost = node-1\n{further}")


class Endpoint:
    """Takes notifications as any consumer of OpenStack does."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str, str, dict[str, Any], dict[str, str]]] = []

    def info(self, context: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.taken.append(("info", publisher, event_type, payload, metadata))

    def error(self, context: Any, publisher: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.taken.append(("error", publisher, event_type, payload, metadata))


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Endpoint, MessageBus]]:
    """A listener of oslo.messaging's on two topics, and a bus to it within this process."""
    settings = conf(tmp_path, "fake://", "topics = one,two\n")
    made = MessageBus(settings)
    endpoint, targets = Endpoint(), [oslo_messaging.Target(topic=topic, exchange="vmqos") for topic in ("one", "two")]
    transport = oslo_messaging.get_notification_transport(settings, "fake://")
    listener = oslo_messaging.get_notification_listener(transport, targets, [endpoint], executor="threading")
    listener.start()
    yield endpoint, made
    listener.stop()
    listener.wait()
    made.close()


def test_a_listener_of_oslo_messaging_gets_the_event_on_each_topic(listening: tuple[Endpoint, MessageBus]) -> None:
    endpoint, made = listening
    made.send(EVENT)
    deadline = time.monotonic() + 60
    while len(endpoint.taken) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    first, second = endpoint.taken
    assert first == second
    assert first == (
        "error",
        "vmqos.node-1",
        "vmqos.vm.promise",
        {"uuid": "u", "number": 3},
        {"message_id": "an-id", "timestamp": "2026-11-06 21:03:20.250000"},
    )


def test_a_broker_that_is_away_is_told_and_not_taken_for_one_that_took_it(tmp_path: Path) -> None:
    made = bus(tmp_path, AWAY)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(NotSent, match="refused"):
            made.send(EVENT)
    assert time.monotonic() - began < 60
    made.close()
    assert not [thread for thread in threading.enumerate() if "abbit" in thread.name]


def test_no_password_is_told(tmp_path: Path) -> None:
    made = bus(tmp_path, "rabbit://me:secret@[::1]:5671,me:secret@192.0.2.1:5672/vhost")
    assert made.where == "rabbit://::1:5671,192.0.2.1:5672/vhost"


@pytest.mark.parametrize("url", ["nonsense", "nodriver://me:secret@h/", "rabbit://me:secret@h:port/"])
def test_a_url_that_can_not_be_used_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[notifications\] transport_url can't be used") as raised:
        bus(tmp_path, url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("topics", ["", ",", "one,,two"])
def test_topics_that_name_none_are_refused(tmp_path: Path, topics: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[notifications\] topics names none"):
        bus(tmp_path, "fake://", f"topics = {topics}\n")


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oslo_messaging", None)
    with pytest.raises(ConfigurationError, match=r"vmqos\[notifications\].*python3-oslo\.messaging"):
        bus(tmp_path, AWAY)


def test_without_a_broker_the_gateway_does_not_import_the_library() -> None:
    program = "import sys, vmqos.gateway.main; print([name for name in sys.modules if 'oslo_messaging' in name])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60).strip() == "[]"


def test_options_of_oslo_messaging_stand_where_nova_has_them(tmp_path: Path) -> None:
    further = "[oslo_messaging_rabbit]\nheartbeat_timeout_threshold = 7\n[DEFAULT]\ncontrol_exchange = elsewhere\n"
    settings = conf(tmp_path, AWAY, further)
    MessageBus(settings)
    assert settings.oslo_messaging_rabbit.heartbeat_timeout_threshold == 7
    assert settings.control_exchange == "elsewhere"
    other = conf(tmp_path, AWAY)
    MessageBus(other)
    assert other.control_exchange == "vmqos"
