# SPDX-License-Identifier: Apache-2.0
"""What stands in place of a number that there is not: a word where room is scarce, else a sentence.

``format.js`` of the page has the same words and sentences. The reasons are those of :class:`vmqos.telemetry.Missing`,
as the agent tells them; a later agent may have others.
"""

from __future__ import annotations

from vmqos.cli.show.safe_text import neutralise

WORDS = {
    "unavailable": "no value",
    "not-monitored": "no group",
    "no-previous": "...",
    "went-back": "began anew",
    "no-counter": "none",
}
"""Where the word is not the reason itself."""

SENTENCES = {
    "unavailable": "the hardware has no valid value now",
    "error": "the hardware or the kernel failed",
    "unassigned": "no hardware counter is assigned to the VM now: there are too few for all VMs",
    "no-counter": "this machine does not count it",
    "unreadable": "the permission to read it is missing",
    "vanished": "its group went away",
    "not-monitored": "the VM is in no group that is monitored",
    "no-previous": "there is no earlier reading yet",
    "went-back": "the counter began anew",
}


def word(reason: str) -> str:
    """A word for a narrow column."""
    return WORDS.get(reason, neutralise(reason))


def sentence(reason: str) -> str:
    """The reason in plain words."""
    return SENTENCES.get(reason, neutralise(reason))
