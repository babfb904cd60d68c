# SPDX-License-Identifier: Apache-2.0
"""The status is a buffer of 512 bytes that fills up."""

from __future__ import annotations

from vmqos.simulator.kernel.status import SIZE, LastCommandStatus

MESSAGE = "Bad CPU list/mask\n"


def test_nothing_said_is_ok() -> None:
    assert LastCommandStatus().show() == "ok\n"


def test_messages_pile_up_until_cleared() -> None:
    status = LastCommandStatus()
    status.puts("a\n")
    status.printf("b\n")
    assert status.show() == "a\nb\n"
    status.clear()
    assert status.show() == "ok\n"


def test_a_constant_message_is_added_whole_or_not_at_all() -> None:
    status = LastCommandStatus()
    for _ in range(40):
        status.puts(MESSAGE)
    assert status.show() == MESSAGE * 28


def test_a_formatted_message_is_cut_off() -> None:
    status = LastCommandStatus()
    status.printf("x" * 600)
    assert status.show() == "x" * (SIZE - 1)


def test_a_full_buffer_takes_nothing_more() -> None:
    status = LastCommandStatus()
    status.puts("y" * (SIZE - 1))
    status.puts("longer than what is left")
    status.puts("")
    status.printf("z")
    assert status.show() == "y" * (SIZE - 1)
