# SPDX-License-Identifier: Apache-2.0
"""The extra specs of vmqos, made known to Nova's API, so that it takes them and refuses bad values and misspelt keys.

Nova loads this module by the entry point group ``nova.api.extra_spec_validators``, from compute API version 2.86 on.
"""

from __future__ import annotations

from nova import exception
from nova.api.validation.extra_specs import base

from vmqos import extra_specs
from vmqos.extra_specs import Key, SpecError, misspelt


class KeyValidator(base.ExtraSpecValidator):  # type: ignore[misc]
    """A validator that takes what the grammar takes, which is less than Nova's types and patterns can say.

    Nova's ``int`` takes ``" 2"`` and ``"1_0"`` too, and no pattern knows whether a CPU list leaves any CPU.
    """

    def validate(self, name: str, value: str) -> None:
        """Check one extra spec.

        :raises nova.exception.ValidationError: if the grammar does not have that value; Nova's API answers 400 then.
        """
        key = _KEYS.get(name)
        if key is None or key.name != self.name:
            super().validate(name, value)
            return
        try:
            key.read(value)
        except ValueError as error:
            raise exception.ValidationError(f"Validation failed; {SpecError(name, value, key.allowed)}.") from error


class MisspeltValidator(base.ExtraSpecValidator):  # type: ignore[misc]
    """A validator that refuses every key that looks like one of the grammar and is none.

    Nova looks a key up by its exact name first, and then goes through all validators for one whose expression matches
    (``nova.api.validation.extra_specs.validators.validate``). So this one never sees a key of the grammar, nor one that
    Nova or another plugin made known by name. It refuses what Nova alone would take (``hw_cache_ways``,
    ``HW:cache_ways``), and says of all of them what is meant.
    """

    def __post_init__(self) -> None:
        """Have Nova find it by the expression of the library; a key's name can't be made of parameters so."""
        super().__post_init__()
        self.name_regex = misspelt.FAMILY

    def validate(self, name: str, value: str) -> None:
        """Refuse one extra spec.

        :raises nova.exception.ValidationError: always; Nova's API answers 400 then.
        """
        raise exception.ValidationError(f"Validation failed; {extra_specs.unknown(name, value)}")


_KEYS = {key.name: key for key in extra_specs.KEYS}


_MISSPELT = MisspeltValidator(
    name="hw:cache{misspelt}",
    description="Refused: all keys that begin as those of vmqos do, and are none.",
    value={"type": str},
)


def register() -> list[base.ExtraSpecValidator]:
    """The validators: one for each key, and one for what looks like a key."""
    known = [KeyValidator(name=key.name, description=key.description, value=_value(key)) for key in extra_specs.KEYS]
    return [*known, _MISSPELT]


def _value(key: Key) -> dict[str, object]:
    """What Nova's reference of extra specs shows of the key's values."""
    about = {"type": str, "description": key.allowed[0].upper() + key.allowed[1:] + "."}
    if key is extra_specs.POLICY:
        return {**about, "enum": [policy.value for policy in extra_specs.CachePolicy]}
    return {**about, "pattern": key.pattern}
