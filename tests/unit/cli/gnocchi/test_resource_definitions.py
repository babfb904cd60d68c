# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import yaml

from vmqos.cli.gnocchi.resource_definitions import Metrics, NotUnderstood, merge, metrics_of

WANTED: Metrics = {"cpu_l3_cache": None, "memory.traffic.total": {"archive_policy_name": "ceilometer-low-rate"}}

CEILOMETERS = """\
---
archive_policies:
  # rates
  - name: ceilometer-low-rate
resources:
  - resource_type: identity
    metrics:
      identity.user.created:

  - resource_type: instance
    metrics:
      memory:   # MiB
      cpu:
        archive_policy_name: ceilometer-low-rate  # for rates
    attributes:
      host: resource_metadata.(instance_host|host)
"""

NEW = """\
      cpu_l3_cache:
      memory.traffic.total:
        archive_policy_name: ceilometer-low-rate
"""


def test_what_is_missing_comes_after_the_last_metric_and_all_other_lines_stay_as_they_are() -> None:
    merged = merge(CEILOMETERS, WANTED)
    above, below = CEILOMETERS.split("    attributes:")
    assert merged.text == f"{above}{NEW}    attributes:{below}"
    assert (merged.added, merged.kept, merged.policies) == (tuple(WANTED), (), ())


def test_a_second_merge_changes_nothing() -> None:
    once = merge(CEILOMETERS, WANTED).text
    again = merge(once, WANTED)
    assert (again.text, again.added) == (once, ())


HEAD = "resources:\n  - resource_type: instance\n    metrics:\n"
LAYOUTS = {
    "items not indented": "resources:\n- resource_type: instance\n  metrics:\n    memory:\n",
    "metrics first, another type after it, no last newline": (
        "resources:\n  - metrics:\n      memory:\n    resource_type: instance\n"
        "  - resource_type: x\n    metrics:\n      y:"
    ),
    "nothing after the metrics": f"{HEAD}      memory:",
    "a blank line and a comment after the metrics": f"{HEAD}      memory:\n\n    # next\n    attributes:\n      a: b\n",
    "a definition in braces": f"{HEAD}      cpu: {{archive_policy_name: x}}\n",
    "a definition over two lines": f"{HEAD}      cpu: {{archive_policy_name:\n          x}}\n    event_delete: e\n",
    "anchors": f"{HEAD}      a: &low\n        archive_policy_name: low\n      b: *low\n",
    "ends of lines as on Windows": f"{HEAD}      memory:\n".replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_any_layout_of_one_metric_a_line_keeps_its_meaning_and_its_lines(text: str) -> None:
    merged = merge(text, WANTED).text
    expected = yaml.safe_load(text)
    next(one for one in expected["resources"] if one["resource_type"] == "instance")["metrics"].update(WANTED)
    assert yaml.safe_load(merged) == expected
    rest = iter(merged.splitlines())
    assert all(line in rest for line in text.splitlines())
    assert ("\r\n" in merged) == ("\r\n" in text) == (merged.count("\n") == merged.count("\r\n"))


def test_a_metric_that_is_there_keeps_the_definition_that_the_operator_gave_it() -> None:
    own = CEILOMETERS.replace("      cpu:\n", "      cpu_l3_cache:\n        archive_policy_name: mine\n      cpu:\n")
    merged = merge(own, WANTED)
    assert (merged.added, merged.kept) == (("memory.traffic.total",), ("cpu_l3_cache",))
    assert metrics_of(merged.text)["cpu_l3_cache"] == {"archive_policy_name": "mine"}


def test_an_archive_policy_that_the_file_does_not_define_is_named() -> None:
    assert merge(CEILOMETERS.replace("name: ceilometer-low-rate\n", "name: other\n"), WANTED).policies == (
        "ceilometer-low-rate",
    )


REFUSED = {
    "no YAML": ("a: [", "it is no YAML"),
    "another file": ("sources: []", "no list 'resources'"),
    "no mapping": ("- a", "no list 'resources'"),
    "no instance": ("resources:\n  - resource_type: volume\n    metrics:\n      a:\n", "no resource type 'instance'"),
    "a list of names": (f"{HEAD}      - memory\n", "ends with a colon"),
    "all on one line": ("resources:\n  - resource_type: instance\n    metrics: {memory: }\n", "ends with a colon"),
    "no metrics": ("resources:\n  - resource_type: instance\n", "ends with a colon"),
    "metrics that are another's": (
        "x: &m\n  memory:\nresources:\n  - resource_type: instance\n    metrics: *m\n",
        "add them by hand",
    ),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_can_not_be_added_to_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(NotUnderstood, match=problem):
        merge(text, WANTED)
