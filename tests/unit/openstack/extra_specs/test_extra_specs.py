# SPDX-License-Identifier: Apache-2.0
"""The grammar of the extra specs."""

from __future__ import annotations

import difflib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.openstack import extra_specs
from vmqos.openstack.extra_specs import CachePolicy, CacheRequest

REQUESTS: list[tuple[dict[str, str], CacheRequest | None]] = [
    ({}, None),
    ({"hw:cpu_policy": "dedicated", "resources:CUSTOM_CACHE_WAY": "2"}, None),
    ({"hw:cache_ways": "2"}, CacheRequest(ways=2)),
    ({"hw:cache_ways": "999"}, CacheRequest(ways=999)),
    ({"hw:cache_ways": "1", "hw:cache_policy": "exclusive"}, CacheRequest(ways=1)),
    ({"hw:cache_ways": "4", "hw:cache_policy": "shared"}, CacheRequest(ways=4, policy=CachePolicy.SHARED)),
    ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "3"}, CacheRequest(code_ways=1, data_ways=3)),
    (
        {"hw:cache_code_ways": "1", "hw:cache_data_ways": "3", "hw:cache_policy": "shared"},
        CacheRequest(code_ways=1, data_ways=3, policy=CachePolicy.SHARED),
    ),
    ({"hw:l2_cache_ways": "8"}, CacheRequest(l2_ways=8)),
    ({"hw:mem_bandwidth_percent": "1"}, CacheRequest(bandwidth_percent=1)),
    ({"hw:mem_bandwidth_percent": "100"}, CacheRequest(bandwidth_percent=100)),
    ({"hw:mem_bandwidth_mbps": "12000"}, CacheRequest(bandwidth_mbps=12000)),
    ({"hw:cache_ways": "2", "hw:cache_vcpus": "0-3,^2"}, CacheRequest(ways=2, vcpus=frozenset({0, 1, 3}))),
    ({"hw:l2_cache_ways": "2", "hw:cache_vcpus": "0"}, CacheRequest(l2_ways=2, vcpus=frozenset({0}))),
]

COUNTS = ("hw:cache_ways", "hw:l2_cache_ways", "hw:mem_bandwidth_mbps", "hw:mem_bandwidth_percent")

NO_COUNT = (
    "two", "", " ", "0", "-1", "+1", "2.0", "2e1", "0x2", "02", " 2", "2 ", "2\n", "1_000",
    "\u0662", "\uff12", "\u00b2", "9" * 10, "9" * 5000, "None", "2,3", "\x00",
)  # fmt: skip

MISPLACED = [
    ({"hw:cache_policy": "shared"}, "hw:cache_policy", "hw:cache_ways"),
    ({"hw:cache_policy": "exclusive", "hw:l2_cache_ways": "2"}, "hw:cache_policy", "hw:cache_ways"),
    ({"hw:cache_code_ways": "1"}, "hw:cache_code_ways", "hw:cache_data_ways"),
    ({"hw:cache_data_ways": "1"}, "hw:cache_data_ways", "hw:cache_code_ways"),
    (
        {"hw:cache_ways": "2", "hw:cache_code_ways": "1", "hw:cache_data_ways": "1"},
        "hw:cache_data_ways",
        "hw:cache_ways",
    ),
    (
        {"hw:mem_bandwidth_percent": "10", "hw:mem_bandwidth_mbps": "100"},
        "hw:mem_bandwidth_mbps",
        "hw:mem_bandwidth_percent",
    ),
    ({"hw:cache_vcpus": "0-3"}, "hw:cache_vcpus", "hw:cache_ways"),
    ({"hw:cache_vcpus": "0-3", "hw:mem_bandwidth_percent": "10"}, "hw:cache_vcpus", "hw:cache_ways"),
]

MISSPELT = {
    "hw:cache_way": "hw:cache_ways",
    "hw:cache_wayss": "hw:cache_ways",
    "hw:Cache_Ways": "hw:cache_ways",
    "hw:cache-ways": "hw:cache_ways",
    " hw:cache_ways": "hw:cache_ways",
    "hw:l3_cache_ways": "hw:cache_ways",
    "hw:cache_polcy": "hw:cache_policy",
    "hw:cache_code_way": "hw:cache_code_ways",
    "hw:l2_cache_way": "hw:l2_cache_ways",
    "hw:mem_bandwidth_pct": "hw:mem_bandwidth_percent",
    "hw:mem_bandwidth_mbs": "hw:mem_bandwidth_mbps",
    "hw:cache_vcpu": "hw:cache_vcpus",
    "hw:cacheways": "hw:cache_ways",
    "hw:cahce_ways": "hw:cache_ways",
    "hw:cache ways": "hw:cache_ways",
    "hw: cache_ways ": "hw:cache_ways",
    "hw :cache_ways": "hw:cache_ways",
    "HW:CACHE_WAYS": "hw:cache_ways",
    "hw_cache_ways": "hw:cache_ways",
    "hw.cache.ways": "hw:cache_ways",
    "hwcache_ways": "hw:cache_ways",
    "wh:cache_ways": "hw:cache_ways",
    "hw:llc_ways": "hw:cache_ways",
    "hw:LLC": "hw:cache_ways",
    "hw:cache": "hw:cache_ways",
    "hw:cache_l3.0": "hw:cache_ways",
    "hw:ways": "hw:cache_ways",
    "hw:code_ways": "hw:cache_code_ways",
    "hw_cahce_polciy": "hw:cache_policy",
    "hw:l2_ways": "hw:l2_cache_ways",
    "hw:l2cache_ways": "hw:l2_cache_ways",
    "hw:memory_bandwidth_percent": "hw:mem_bandwidth_percent",
    "hw:mem_bw_percent": "hw:mem_bandwidth_percent",
    "hw:bandwidth_mbps": "hw:mem_bandwidth_mbps",
    "hw:mem_bandwith_mbps": "hw:mem_bandwidth_mbps",
}

VAGUE = [
    ("hw:cache_mode", "shared", "hw:cache_policy"),
    ("hw_cache_mode", "exclusive", "hw:cache_policy"),
    ("hw:llc_type", "shared", "hw:cache_policy"),
    ("hw:memory_bandwidth", "5000", "hw:mem_bandwidth_mbps"),
    ("hw:cache_cpus", "0-3,^2", "hw:cache_vcpus"),
]

# Nova's own that are nearest to ours, other people's, and what they make of our words in their namespaces.
OTHERS = (
    "hw:cpu_cores",
    "hw:cpu_policy",
    "hw:cpu_thread_policy",
    "hw:cpu_realtime_mask",
    "hw:mem_page_size",
    "hw:mem_encryption",
    "hw:mem_encryption_model",
    "hw:numa_mem.0",
    "hw:pmem",
    "hw_rng:rate_bytes",
    "hw_video:ram_max_mb",
    "hw_disk_bus",
    "cache_ways",
    "quota:cache_ways",
    "capabilities:cache_ways",
    "aggregate_instance_extra_specs:cache_ways",
    "aggregate_instance_extra_specs:hw:cache_ways",
    "vendor:cache_mode",
    "resources:CUSTOM_CACHE_WAYS",
    "trait:CUSTOM_CACHE_WAYS",
)


@pytest.mark.parametrize(("specs", "request_"), REQUESTS)
def test_specs_become_a_request(specs: dict[str, str], request_: CacheRequest | None) -> None:
    parsed = extra_specs.parse(specs)
    assert parsed.errors == ()
    assert parsed.request == request_
    assert extra_specs.parse_strict(specs) == request_


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", NO_COUNT)
def test_a_value_that_is_no_count_is_an_error_that_names_it(key: str, value: str) -> None:
    (error,) = extra_specs.parse({key: value}).errors
    assert (error.key, error.value) == (key, value)
    assert "an integer from 1" in error.allowed
    assert str(error).startswith(f"{key}=")
    assert str(error).isprintable()
    assert len(str(error)) < 300


@pytest.mark.parametrize("value", ["101", "1000", "50%"])
def test_a_percentage_ends_at_100(value: str) -> None:
    (error,) = extra_specs.parse({"hw:mem_bandwidth_percent": value}).errors
    assert "from 1 to 100" in error.allowed


@pytest.mark.parametrize("value", ["", "Shared", "exclusiv", "shared ", "exclusive|shared"])
def test_a_policy_is_one_of_two_words(value: str) -> None:
    (error,) = extra_specs.parse({"hw:cache_ways": "2", "hw:cache_policy": value}).errors
    assert (error.key, error.value) == ("hw:cache_policy", value)
    assert "'exclusive' or 'shared'" in str(error)


@pytest.mark.parametrize("value", ["", "^0", "0-3,^0-3", "3-0", "a", "0,,1", "0-99999"])
def test_vcpus_are_a_cpu_list_that_leaves_at_least_one(value: str) -> None:
    (error,) = extra_specs.parse({"hw:cache_ways": "2", "hw:cache_vcpus": value}).errors
    assert (error.key, error.value) == ("hw:cache_vcpus", value)
    assert "0-3,^2" in str(error)


@pytest.mark.parametrize(("specs", "key", "other"), MISPLACED)
def test_keys_that_do_not_go_together_are_errors_that_name_the_other_one(
    specs: dict[str, str], key: str, other: str
) -> None:
    parsed = extra_specs.parse(specs)
    assert parsed.request is None
    assert [error.allowed for error in parsed.errors if error.key == key and other in error.allowed]


@pytest.mark.parametrize("key", MISSPELT)
def test_a_misspelt_key_is_an_error_with_a_suggestion(key: str) -> None:
    (error,) = extra_specs.parse({key: "2"}).errors
    assert error.key == key
    assert error.allowed.endswith(f"did you mean {MISSPELT[key]}?")


@pytest.mark.parametrize(("key", "value", "meant"), VAGUE)
def test_of_a_key_that_is_near_to_none_the_value_tells_what_is_meant(key: str, value: str, meant: str) -> None:
    (error,) = extra_specs.parse({"hw:cache_ways": "2", key: value}).errors
    assert error.allowed.endswith(f"did you mean {meant}?")


def test_a_key_of_our_family_that_is_like_none_is_an_error_that_lists_them() -> None:
    (error,) = extra_specs.parse({"hw:cache_xyzxyzxyzxyzxyzxyzxyz": "maybe"}).errors
    for key in extra_specs.KEYS:
        assert key.name in error.allowed


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("hw:cache_ways ", "'hw:cache_ways '='2': "),
        ("hw:cache ways", "'hw:cache ways'='2': "),
        ("hw:cache_ways\n", r"'hw:cache_ways\n'='2': "),
        ("hw:cache_\x1b[2J", r"'hw:cache_\x1b[2J'='2': "),
        ("hw:cache_" + "w" * 100_000, "hw:cache_" + "w" * 71 + "...='2': "),
    ],
)
def test_an_odd_key_is_shown_for_what_it_is(key: str, shown: str) -> None:
    (error,) = extra_specs.parse({key: "2"}).errors
    assert str(error).startswith(shown)
    assert str(error).isprintable()
    assert len(str(error)) < 500


@pytest.mark.parametrize("key", OTHERS)
def test_keys_of_others_are_ignored(key: str) -> None:
    assert extra_specs.parse({key: "x"}) == extra_specs.ParsedSpecs(None)


def test_one_bad_key_does_not_hide_the_others() -> None:
    parsed = extra_specs.parse(
        {"hw:cache_vcpus": "x", "hw:cache_way": "1", "hw:cache_policy": "none", "hw:cache_ways": "0"}
    )
    assert [error.key for error in parsed.errors] == [
        "hw:cache_ways",
        "hw:cache_policy",
        "hw:cache_vcpus",
        "hw:cache_way",
    ]


def test_half_a_promise_is_none() -> None:
    assert extra_specs.parse({"hw:cache_ways": "2", "hw:cache_policy": "sharde"}).request is None


def test_the_strict_form_raises_with_all_errors() -> None:
    with pytest.raises(
        extra_specs.InvalidExtraSpecs, match=r"hw:cache_ways='two'.*; hw:mem_bandwidth_mbps='fast'"
    ) as raised:
        extra_specs.parse_strict({"hw:cache_ways": "two", "hw:mem_bandwidth_mbps": "fast"})
    assert len(raised.value.errors) == 2


@pytest.mark.parametrize(
    ("request_", "asks"),
    [
        (CacheRequest(), False),
        (CacheRequest(policy=CachePolicy.SHARED), False),
        (CacheRequest(vcpus=frozenset({0})), False),
        (CacheRequest(ways=2), True),
        (CacheRequest(code_ways=1, data_ways=1), True),
        (CacheRequest(l2_ways=1), True),
        (CacheRequest(bandwidth_percent=5), True),
        (CacheRequest(bandwidth_mbps=5), True),
    ],
)
def test_a_policy_or_vcpus_alone_ask_for_nothing(request_: CacheRequest, asks: bool) -> None:
    assert extra_specs.asks_for(request_) is asks


@pytest.mark.parametrize("vcpus", [None, {0}, {1}, {0, 1}])
def test_vcpus_that_the_flavor_has_are_in_order(vcpus: set[int] | None) -> None:
    extra_specs.check_vcpus(CacheRequest(ways=2, vcpus=None if vcpus is None else frozenset(vcpus)), 2)


def test_a_vcpu_that_the_flavor_does_not_have_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(extra_specs.InvalidExtraSpecs) as raised:
        extra_specs.check_vcpus(CacheRequest(ways=2, vcpus=frozenset({0, 1, 2})), 2)
    assert str(raised.value) == (
        "hw:cache_vcpus='0-2': the flavor has 2 vCPU(s), so only numbers from 0 to 1 are allowed"
    )


@pytest.mark.parametrize("module", ["extra_specs", "extra_specs.resources"])
def test_it_imports_where_nothing_else_is_installed(module: str) -> None:
    program = (
        f"import sys; import vmqos.openstack.{module}; "
        "found = {name.split('.')[0] for name in sys.modules}; "
        "sys.exit(bool(found & {'libvirt', 'openstack', 'oslo_config', 'oslo_log'}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@given(st.integers(1, 999_999_999))
def test_every_count_is_read_back(count: int) -> None:
    assert extra_specs.parse({"hw:cache_ways": str(count)}) == extra_specs.ParsedSpecs(CacheRequest(ways=count))


KEYS = st.sampled_from([key.name for key in extra_specs.KEYS] + list(MISSPELT)) | st.text(max_size=20)
OURS = st.sampled_from([key.name for key in extra_specs.KEYS])
VALUES = st.sampled_from(["1", "2", "100", "101", "exclusive", "shared", "0-3,^2", "^1"]) | st.text(max_size=20)


@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_specs_give_a_request_or_errors_that_name_what_was_given(specs: dict[str, str]) -> None:
    parsed = extra_specs.parse(specs)
    assert not (parsed.request and parsed.errors)
    for error in parsed.errors:
        assert specs[error.key] == error.value
    ours = {key.name for key in extra_specs.KEYS} & specs.keys()
    assert bool(parsed.request) == (bool(ours) and not parsed.errors)


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_what_others_write_changes_nothing(specs: dict[str, str], others: dict[str, str]) -> None:
    strangers = {f"other:{key}": value for key, value in others.items()}
    assert extra_specs.parse(strangers | specs) == extra_specs.parse(specs | strangers) == extra_specs.parse(specs)


@given(OURS, st.data())
def test_no_slip_of_a_finger_drops_a_promise_silently(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(len("hw:"), len(name) - 2))
    slip = data.draw(st.sampled_from(["left out", "doubled", "swapped", "another", "capital"]))
    changed = {
        "left out": name[:at] + name[at + 1 :],
        "doubled": name[:at] + name[at] + name[at:],
        "swapped": name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        "another": name[:at] + "x" + name[at + 1 :],
        "capital": name[:at] + name[at].upper() + name[at + 1 :],
    }[slip]
    if changed != name:
        assert [error.key for error in extra_specs.parse({changed: "2"}).errors] == [changed]


@pytest.mark.parametrize("begin", ["hw:cache_", "hw:caches_way", "hw:mem_bandwith_percent", "hw:other_"])
def test_a_flavor_of_thousands_of_misspelt_keys_is_read_fast_and_told_in_brief(
    begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, compare = [], difflib.get_close_matches

    def counted(word: str, *arguments: Any, **named: Any) -> list[str]:
        compared.append(word)
        return compare(word, *arguments, **named)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    parsed = extra_specs.parse({f"{begin}{number}": "1" for number in range(5000)} | {"hw:cache_ways": "2"})
    assert len(compared) < 300
    assert len(parsed.errors) < 10
    assert len("; ".join(map(str, parsed.errors))) < 2000


def test_all_misspelt_keys_beyond_those_that_are_named_are_counted() -> None:
    *named, last = extra_specs.parse({f"hw:cache_{number}": "1" for number in range(5000)}).errors
    assert [error.key for error in named] == [f"hw:cache_{number}" for number in range(8)]
    assert last.allowed == "there is no such extra spec, and 4991 more of this flavor are none either"
