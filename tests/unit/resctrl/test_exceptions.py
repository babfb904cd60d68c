# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.exceptions."""

import pytest

from vmqos.resctrl import exceptions

REFUSED = {
    "action": "write",
    "path": "/sys/fs/resctrl/g/schemata",
    "data": "L3:0=5\n",
    "errno_name": "EINVAL",
    "last_cmd_status": "The mask 5 has non-consecutive 1-bits",
}


def kinds(root=exceptions.CommandFailed):
    return [root, *(kind for child in root.__subclasses__() for kind in kinds(child))]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_a_refused_command_tells_everything_the_kernel_told(kind):
    failure = kind(**REFUSED)
    assert {name: getattr(failure, name) for name in REFUSED} == REFUSED
    for told in (REFUSED["path"], "'L3:0=5'", "EINVAL", REFUSED["last_cmd_status"]):
        assert told in str(failure)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_a_failure_keeps_what_it_knows_when_it_is_recognized(kind):
    failure = kind.of(exceptions.CommandFailed(**REFUSED))
    assert type(failure) is kind
    assert {name: getattr(failure, name) for name in REFUSED} == REFUSED


def test_a_missing_reason_is_told_as_missing():
    assert "gave no reason" in str(exceptions.CommandFailed(**REFUSED | {"last_cmd_status": ""}))


def test_several_lines_of_status_stay_on_one_line_of_the_log():
    failure = exceptions.CommandFailed(**REFUSED | {"last_cmd_status": "No task 7\nError while processing task 7"})
    assert "\n" not in str(failure)
    assert "No task 7; Error while processing task 7" in str(failure)


def test_a_long_list_of_tasks_does_not_flood_the_log():
    failure = exceptions.CommandFailed(**REFUSED | {"data": ",".join(map(str, range(1000)))})
    assert len(str(failure)) < 250
    assert failure.data.endswith(",999")


def test_braces_in_what_was_written_are_kept():
    assert "{0}" in str(exceptions.CommandFailed(**REFUSED | {"data": "{0}"}))


def test_bad_values_can_be_caught_as_value_errors():
    for error in (
        exceptions.InvalidBitmask(text="x"),
        exceptions.InvalidSchemata(line="x"),
        exceptions.InvalidGroupName(name="x"),
    ):
        assert isinstance(error, ValueError)
