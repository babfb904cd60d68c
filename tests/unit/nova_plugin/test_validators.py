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
from nova.api.validation.extra_specs import validators

from nova_plugin.validators import KeyValidator
from vmqos.openstack import extra_specs
from vmqos.openstack.extra_specs import Key

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


@pytest.mark.parametrize("name", ["hw:cache_way", "hw:cache_ways.0", "hw:l3_cache_ways"])
def test_a_misspelt_key_is_refused_by_nova_itself(name: str) -> None:
    with pytest.raises(exception.ValidationError, match="does not appear to be a valid extra spec"):
        validators.validate(name, "2")


def test_keys_of_nova_keep_their_validators() -> None:
    validators.validate("hw:cpu_policy", "dedicated")
    with pytest.raises(exception.ValidationError):
        validators.validate("hw:cpu_policy", "exclusive")


def test_they_add_the_grammar_to_nova_and_no_other_package() -> None:
    program = (
        "import sys; sys.modules['libvirt'] = None; from nova import exception; "
        "from nova.api.validation.extra_specs import base; before = set(sys.modules); "
        "from nova_plugin import validators; validators.register(); "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) - sys.stdlib_module_names == {"nova_plugin", "vmqos"}
