# SPDX-License-Identifier: Apache-2.0
"""The extra specs in Nova's API, loaded by Nova as it loads its own."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nova import exception
from nova.api.validation.extra_specs import base, validators

from nova_plugin.validators import KeyValidator, register
from vmqos import extra_specs
from vmqos.extra_specs import Key, misspelt

NUMBERS = st.integers(-2, 10**10).map(str) | st.from_regex(r"[ +0]?[0-9_]{1,4}[ \n]?", fullmatch=True)
LISTS = st.text(alphabet="0123456789-^, ", max_size=12)
WORDS = st.sampled_from(["exclusive", "shared", "Shared", "exclusive ", ""])
VALUES = NUMBERS | LISTS | WORDS | st.text(max_size=20)


@pytest.mark.parametrize("key", extra_specs.KEYS, ids=lambda key: key.name)
def test_nova_finds_a_validator_for_each_key_of_the_grammar(key: Key) -> None:
    assert isinstance(validators.VALIDATORS[key.name], KeyValidator)


@pytest.mark.parametrize("key", extra_specs.KEYS, ids=lambda key: key.name)
@given(value=VALUES)
def test_nova_takes_exactly_what_the_grammar_takes(key: Key, value: str) -> None:
    try:
        key.read(value)
    except ValueError:
        with pytest.raises(exception.ValidationError) as refused:
            validators.validate(key.name, value)
        assert key.allowed in str(refused.value)
        assert key.name in str(refused.value)
    else:
        validators.validate(key.name, value)


@pytest.mark.parametrize("key", extra_specs.KEYS, ids=lambda key: key.name)
@given(value=VALUES)
def test_what_novas_reference_would_show_holds_for_every_value_that_is_taken(key: Key, value: str) -> None:
    shown = validators.VALIDATORS[key.name].value
    try:
        key.read(value)
    except ValueError:
        return
    assert value in shown["enum"] if "enum" in shown else re.fullmatch(shown["pattern"], value)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("hw:cache_way", "2", "hw:cache_ways"),
        ("hw:cacheways", "2", "hw:cache_ways"),
        ("hw:cache_ways.0", "2", "hw:cache_ways"),
        ("hw:llc_ways", "2", "hw:cache_ways"),
        ("hw:l2_ways", "2", "hw:l2_cache_ways"),
        ("hw:cache_mode", "shared", "hw:cache_policy"),
        ("hw:memory_bandwidth_percent", "50", "hw:mem_bandwidth_percent"),
        # Nova alone takes these: their namespace, if any, is none of its own.
        ("hw_cache_ways", "2", "hw:cache_ways"),
        ("HW:cache_ways", "2", "hw:cache_ways"),
        (" hw:cache_ways", "2", "hw:cache_ways"),
        ("hw :cache_ways", "2", "hw:cache_ways"),
        ("hw.cache_ways", "2", "hw:cache_ways"),
        ("hw-cache-ways", "2", "hw:cache_ways"),
    ],
)
def test_a_key_that_looks_like_one_of_the_grammar_is_refused_with_what_is_meant(
    name: str, value: str, meant: str
) -> None:
    with pytest.raises(exception.ValidationError) as refused:
        validators.validate(name, value)
    assert name in str(refused.value)
    assert f"did you mean {meant}?" in str(refused.value)


def test_a_slip_that_no_expression_finds_is_refused_by_nova_itself() -> None:
    with pytest.raises(exception.ValidationError, match="does not appear to be a valid extra spec"):
        validators.validate("hw:cahce_ways", "2")


def test_keys_of_nova_keep_their_validators() -> None:
    validators.validate("hw:cpu_policy", "dedicated")
    with pytest.raises(exception.ValidationError):
        validators.validate("hw:cpu_policy", "exclusive")


OF_NOVA = [validator for validator in validators.VALIDATORS.values() if type(validator) is base.ExtraSpecValidator]


@pytest.mark.parametrize("validator", OF_NOVA, ids=lambda validator: validator.name)
def test_no_key_of_nova_looks_like_one_of_ours(validator: base.ExtraSpecValidator) -> None:
    name = re.sub(r"{\w+}", "0", validator.name)
    assert extra_specs.parse({name: "2"}).errors == ()
    assert re.fullmatch(misspelt.FAMILY, name) is None


@pytest.mark.parametrize(
    "name", ["cache_ways", "HW:other", "hw_other", "aggregate_instance_extra_specs:cache_ways", "vendor:cache_ways"]
)
def test_keys_of_others_pass(name: str) -> None:
    validators.validate(name, "true")


def test_nova_is_given_no_further_namespace_whose_keys_it_would_refuse() -> None:
    ours = {validator.name_regex for validator in register() if ":" in validator.name_regex}
    assert {regex.partition(":")[0] for regex in ours} == {"hw"}
    for namespace in validators.NAMESPACES:
        re.compile(namespace)


def test_a_key_that_another_plugin_made_known_by_name_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "hw:cache_of_disks"
    theirs = base.ExtraSpecValidator(name=name, description="", value={"type": str})
    monkeypatch.setitem(validators.VALIDATORS, name, theirs)
    validators.validate(name, "writeback")


def test_they_add_the_grammar_to_nova_and_no_other_package() -> None:
    program = (
        "import sys; sys.modules['libvirt'] = None; from nova import exception; "
        "from nova.api.validation.extra_specs import base; before = set(sys.modules); "
        "from nova_plugin import validators; validators.register(); "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) - sys.stdlib_module_names == {"nova_plugin", "vmqos"}
