# SPDX-License-Identifier: Apache-2.0
"""Adding metrics to the text of a ``gnocchi_resources.yaml``, whose other lines stay as they are.

A YAML library that writes the file anew would change its indentation, quotes and line breaks. So the library only finds
the place (:func:`yaml.compose` tells lines and columns), and lines of text are put there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

RESOURCE_TYPE = "instance"

Metrics = Mapping[str, Mapping[str, str] | None]
"""The definition of each metric by its name; ``None`` for one without an archive policy of its own."""


_ONE_A_LINE = "must each be a line of its own that ends with a colon"
_LAYOUT = "its layout is one that lines can't be added to; add them by hand"


class NotUnderstood(ValueError):
    """The file is no ``gnocchi_resources.yaml`` that metrics can be added to; the message says why."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it.

    :ivar text: the new text.
    :ivar added: the metrics that were not there.
    :ivar kept: those that were there with another definition, and keep it.
    :ivar policies: archive policies that added metrics name and the file does not define.
    """

    text: str
    added: tuple[str, ...]
    kept: tuple[str, ...]
    policies: tuple[str, ...]


def metrics_of(text: str) -> Metrics:
    """The metrics of the resource type ``instance``.

    :raises NotUnderstood: if there are none.
    """
    metrics = _instance(_load(text)).get("metrics")
    if not isinstance(metrics, dict):
        raise NotUnderstood(f"the metrics of the resource type '{RESOURCE_TYPE}' {_ONE_A_LINE}")
    return metrics


def merge(text: str, wanted: Metrics) -> Merged:
    """Add what is wanted and not there to the metrics of the resource type ``instance``.

    :raises NotUnderstood: if the text has no such resource type, or its metrics are not one a line.
    """
    try:
        return _merged(text, wanted)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        # What is no list, or no mapping, where a gnocchi_resources.yaml has one; or an alias that holds itself.
        raise NotUnderstood(_LAYOUT) from error


def _merged(text: str, wanted: Metrics) -> Merged:
    present = metrics_of(text)
    added = {name: definition for name, definition in wanted.items() if name not in present}
    kept = tuple(name for name in wanted if name in present and (present[name] or None) != wanted[name])
    if not added:
        return Merged(text, (), kept, ())
    line, column = _place(text)
    lines = text.splitlines(keepends=True)
    ending = "\r\n" if lines[0].endswith("\r\n") else "\n"
    if not lines[line].endswith("\n"):
        lines[line] += ending
    lines[line + 1 : line + 1] = [f"{' ' * column}{new}{ending}" for new in _written(added)]
    merged = "".join(lines)
    _check(text, merged, added)
    defined = {policy.get("name") for policy in _load(text).get("archive_policies") or ()}
    named = {definition["archive_policy_name"] for definition in added.values() if definition}
    return Merged(merged, tuple(added), kept, tuple(sorted(named - defined)))


def _load(text: str) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: a date that does not exist.
        raise NotUnderstood(f"it is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("resources"), list):
        raise NotUnderstood("it has no list 'resources'")
    return loaded


def _instance(loaded: dict[str, Any]) -> dict[str, Any]:
    for resource in loaded["resources"]:
        if isinstance(resource, dict) and resource.get("resource_type") == RESOURCE_TYPE:
            return resource
    raise NotUnderstood(f"it has no resource type '{RESOURCE_TYPE}'")


def _place(text: str) -> tuple[int, int]:
    """The number of the last line of the metrics, and the column in which their names begin; both from 0."""
    resources = _value(yaml.compose(text, Loader=yaml.SafeLoader), "resources")
    of_type = (one for one in resources.value if getattr(_value(one, "resource_type"), "value", "") == RESOURCE_TYPE)
    metrics = _value(next(of_type, None), "metrics")
    if not isinstance(metrics, yaml.MappingNode) or metrics.flow_style or not metrics.value:
        raise NotUnderstood(f"the metrics of the resource type '{RESOURCE_TYPE}' {_ONE_A_LINE}")
    return _end(metrics), metrics.value[0][0].start_mark.column


def _value(mapping: Any, key: str) -> Any:
    if isinstance(mapping, yaml.MappingNode):
        for name, value in mapping.value:
            if name.value == key:
                return value
    return None


def _end(node: Any) -> int:
    """The last line of a node: that of a block mapping is where the *next* thing begins, comments skipped."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        key, value = node.value[-1]
        return max(_end(key), _end(value))
    return int(node.end_mark.line)


def _written(metrics: Metrics) -> list[str]:
    lines = []
    for name, definition in metrics.items():
        lines.append(f"{name}:")
        lines += [f"  {key}: {value}" for key, value in (definition or {}).items()]
    return lines


def _check(before: str, after: str, added: Metrics) -> None:
    """Make sure that the new text says what the old one said and the new metrics, and nothing else."""
    expected = _load(before)
    resource = _instance(expected)
    # Another dictionary: an alias elsewhere in the file must not change along.
    resource["metrics"] = {**resource["metrics"], **added}
    if _load(after) != expected:
        raise NotUnderstood(_LAYOUT)
