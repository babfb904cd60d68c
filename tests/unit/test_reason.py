# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from vmqos.agent.observe.running_vms import unexpected
from vmqos.hypervisor import exceptions as unreadable
from vmqos.reason import NO_REASON, Code, Reason, joined, of_error
from vmqos.resctrl import exceptions

ROUNDED, NO_WAYS = Reason(Code.ROUNDED_UP, "gets 2 ways"), Reason(Code.NO_WAYS, "no room")


def test_of_several_reasons_all_texts_are_told_and_the_weightiest_code_counts() -> None:
    both = joined(ROUNDED, NO_REASON, NO_WAYS, ROUNDED)
    assert both == Reason(Code.NO_WAYS, "gets 2 ways; no room")
    assert joined(ROUNDED) == ROUNDED


def test_no_reason_is_none() -> None:
    assert not NO_REASON and joined() is NO_REASON and joined(NO_REASON) is NO_REASON
    assert (str(NO_REASON), NO_REASON.label) == ("", "")


def test_a_longer_text_changes_no_code() -> None:
    assert NO_WAYS.told_as("has 1 of 2 ways: no room").code is Code.NO_WAYS


REFUSED = exceptions.CommandFailed(
    action="write", path="schemata", data="", errno_name="EINVAL", last_cmd_status="mask f has no bits"
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (unreadable.ProcessTooLong(pid=7, name="cmdline", most=8), Code.UNREADABLE),
        (unreadable.TooManyThreads(pid=7, count=9, most=8), Code.UNREADABLE),
        (unreadable.CgroupTooLarge(path="/a", most=8, what="cgroups"), Code.UNREADABLE),
        (unreadable.NoProcess(uuid="u"), Code.UNREADABLE),
        (unreadable.SearchTooLong(uuid="u", seconds=1.0), Code.UNREADABLE),
        (unreadable.UnreadableDescription(error="it is longer than 8 characters"), Code.UNREADABLE),
        (exceptions.NotMounted(path="/sys/fs/resctrl", mend="mount it"), Code.NO_RESCTRL),
        (exceptions.NotSupported(path="/sys/fs/resctrl", cause="no flag"), Code.NO_RESCTRL),
        (exceptions.ReadOnly(path="/sys/fs/resctrl"), Code.NO_RESCTRL),
        (exceptions.DeadMount(path="/sys/fs/resctrl"), Code.NO_RESCTRL),
        (exceptions.NotResctrl(path="/mnt", fstype="ext4"), Code.NO_RESCTRL),
        (REFUSED, Code.REFUSED),
        (OSError("no such file"), Code.OTHER),
        (SystemExit(3), Code.OTHER),
    ],
)
def test_an_exception_knows_its_code(error: Exception, code: Code) -> None:
    assert of_error(error) == Reason(code, str(error))


def test_what_went_wrong_inside_of_the_agent_is_its_fault() -> None:
    assert unexpected("moving its tasks", ValueError("no number")).code is Code.AGENT_FAULT


def test_the_set_of_codes_is_small_and_fit_for_labels() -> None:
    assert len(Code) < 40
    assert all(re.fullmatch(r"[a-z0-9-]+", code) for code in Code)
