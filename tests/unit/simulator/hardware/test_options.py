# SPDX-License-Identifier: Apache-2.0
"""Mount options are taken as the machine can give them."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import ProcessTable
from vmqos.simulator.hardware.options import parse
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.machine import Machine


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), (",", ""), ("cdp,", "cdp"), ("debug,mba_MBps,cdp", "cdp,mba_MBps,debug")]
)
def test_options_are_shown_in_the_kernels_order(text: str, shown: str) -> None:
    assert str(parse(text, PROFILES["cascade-lake"])) == shown


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("cascade-lake", "foo"),
        ("cascade-lake", "cdp=1"),
        ("cascade-lake", " cdp"),
        ("cascade-lake", "cdpl2"),
        ("minimal", "cdp"),
        ("milan", "mba_MBps"),
        ("broadwell", "mba_MBps"),
    ],
)
def test_what_the_machine_cannot_give_is_invalid(profile: str, text: str) -> None:
    machine = Machine(PROFILES[profile], ProcessTable())
    with pytest.raises(OSError) as refused:
        machine.mount(text)
    assert refused.value.errno == errno.EINVAL
    assert not machine.is_mounted


def test_a_second_mount_is_busy_whatever_cdp_it_asks_for() -> None:
    machine = Machine(PROFILES["minimal"], ProcessTable())
    machine.mount("")
    for text, code in (("", errno.EBUSY), ("cdp", errno.EBUSY), ("foo", errno.EINVAL)):
        with pytest.raises(OSError) as refused:
            machine.mount(text)
        assert refused.value.errno == code
