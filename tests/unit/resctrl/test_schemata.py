# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.schemata."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.resctrl import exceptions, schemata
from vmqos.resctrl.bitmask import CapacityBitmask

MASKS = st.dictionaries(
    st.integers(min_value=0, max_value=300),
    st.integers(min_value=0, max_value=2**32 - 1).map(CapacityBitmask),
    min_size=1,
)
RESOURCES = st.sampled_from(["L3", "L2", "L3CODE", "L3DATA", "L2CODE", "L2DATA"])

KERNELS_TEXTS = {
    "two sockets with bandwidth": (
        "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n",
        {"MB": {0: "100", 1: "100"}, "L3": {0: "7ff", 1: "7ff"}},
    ),
    "zeros and blanks before short values, Linux 6.12": (
        "    MB:0= 50;1=100\n    L3:0=003;1=0f0\n",
        {"MB": {0: "50", 1: "100"}, "L3": {0: "003", 1: "0f0"}},
    ),
    "no padding, Linux 7.2": ("MB:0=50;1=100\nL3:0=3;1=f0\n", {"MB": {0: "50", 1: "100"}, "L3": {0: "3", 1: "f0"}}),
    "code and data apart": (
        "    MB:0=100;1=100\nL3DATA:0=7ff;1=7ff\nL3CODE:0=003;1=001\n",
        {"MB": {0: "100", 1: "100"}, "L3DATA": {0: "7ff", 1: "7ff"}, "L3CODE": {0: "003", 1: "001"}},
    ),
    "code and data of L2 apart, L3 whole": (
        "    MB:0=100;1=100\nL2DATA:0=ffff;1=ffff\nL2CODE:0=3;1=ffff\n    L3:0=7fff;1=7fff\n",
        {
            "MB": {0: "100", 1: "100"},
            "L2DATA": {0: "ffff", 1: "ffff"},
            "L2CODE": {0: "3", 1: "ffff"},
            "L3": {0: "7fff", 1: "7fff"},
        },
    ),
    "bandwidth in MB/s, unlimited": ("    MB:0=4294967295;1=500\n", {"MB": {0: "4294967295", 1: "500"}}),
    "AMD's bandwidth, padded, and an empty mask": (
        "    MB:0=  50;1=2048\n    L3:0=0000;1=00ff\n",
        {"MB": {0: "50", 1: "2048"}, "L3": {0: "0000", 1: "00ff"}},
    ),
    "AMD's slow memory": ("  SMBA:0=2048;1=2048\n", {"SMBA": {0: "2048", 1: "2048"}}),
    "one cache left online": ("    L3:0=fffff\n", {"L3": {0: "fffff"}}),
    "ids that are not in a row": ("L3:0=f;8=f;17=f\n", {"L3": {0: "f", 8: "f", 17: "f"}}),
    "about to be pseudo-locked": ("L3:uninitialized\n", {"L3": {}}),
    "pseudo-locked": ("L3:0=3\n", {"L3": {0: "3"}}),
    "no cache online": ("L3:\n", {"L3": {}}),
    "a group that allocates nothing": ("", {}),
    "a resource of a later kernel": ("   NEW:0=what/ever;1=-\n", {"NEW": {0: "what/ever", 1: "-"}}),
}


@pytest.mark.parametrize(("text", "expected"), KERNELS_TEXTS.values(), ids=KERNELS_TEXTS)
def test_what_kernels_print_is_understood(text, expected):
    assert schemata.parse(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "L3",
        "L3 0=7ff",
        "L3:0",
        "L3:0=",
        "L3:=7",
        "L3:x=7",
        "L3:0=7;",
        "L3:-1=7",
        "    L2CODE:0",
        "   MB:0=",
        "MB",
        "L3:\u0661=7",
        f"L3:{'9' * 5000}=7",
    ],
)
def test_other_lines_of_what_promises_are_kept_by_are_refused_and_quoted(line):
    with pytest.raises(exceptions.InvalidSchemata) as caught:
        schemata.parse(f"MB:0=100\n{line}\n")
    assert repr(line) in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [":0=7ff", "MB_MIN:0", "MB_MAX:0=10;", "GLBE", "GLBE:*=100:0", "L3REGION:0", "  NEW:0=1;what"],
)
def test_a_line_of_a_later_kernel_is_passed_over(line):
    assert schemata.parse(f"L3:0=7ff\n{line}\nMB:0=100\n") == {"L3": {0: "7ff"}, "MB": {0: "100"}}


@given(RESOURCES, MASKS)
def test_masks_read_back_as_they_were_written(resource, masks):
    assert schemata.parse_masks(schemata.format_values(resource, masks), resource) == masks


@given(RESOURCES, MASKS, st.integers(min_value=0, max_value=8), st.booleans())
def test_the_kernels_padding_changes_no_mask(resource, masks, digits, line_break):
    entries = ";".join(f"{cache}={mask.bits:0{digits}x}" for cache, mask in masks.items())
    text = f"MB:0= 10\n{resource:>{digits}}:{entries}" + "\n" * line_break
    assert schemata.parse_masks(text, resource) == masks


@given(st.text())
def test_any_text_is_parsed_or_refused_by_its_own_error(text):
    with contextlib.suppress(exceptions.InvalidSchemata):
        schemata.parse(text)


def test_caches_are_written_in_the_order_of_their_ids():
    masks = {10: CapacityBitmask(0x7FF), 2: CapacityBitmask(3)}
    assert schemata.format_values("L3", masks) == "L3:2=3;10=7ff"


def test_a_line_that_sets_nothing_is_never_written():
    with pytest.raises(ValueError, match="L3"):
        schemata.format_values("L3", {})


def test_a_resource_that_is_not_there_has_no_masks():
    assert schemata.parse_masks("L3CODE:0=f\nL3DATA:0=f\n", "L3") == {}


@pytest.mark.parametrize("value", ["many", "-1", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(value):
    with pytest.raises(exceptions.InvalidSchemata):
        schemata.numbers_of({"MB": {0: value}}, "MB")


def test_a_bandwidth_is_no_mask():
    with pytest.raises(exceptions.InvalidBitmask):
        schemata.masks_of({"MB": {0: "unlimited"}}, "MB")
