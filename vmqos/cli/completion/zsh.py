# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos complete --shell zsh`` prints: a completion function for zsh, beside cliff's own for bash.

cliff finds it by the entry point group ``cliff.formatter.completion``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cliff.complete import CompleteShellBase

from vmqos.cli.completion.places import WHOM, Places

_HEAD = """\
#compdef {name}

_{function}_words() {{
  local -A words_after
  words_after=(
"""

_TAIL = """\
  )

  local command word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    (( ${{+words_after[${{command:+$command }}$word]}} )) || break
    command=${{command:+$command }}$word
  done

  local known=$words_after[${{command:-none}}]
  if [[ $known == -* && $PREFIX != -* ]]; then
    # What comes after a whole command is its own argument.
    _files
  else
    compadd -- ${{=known}}
  fi
}}

"""

_VM_FUNCTION = """\
_{function}_with_vms() {{
  local -A argument named uuids flavors others choices
  local -a several
  argument=({argument})
  named=({named})
  uuids=({uuids})
  flavors=({flavors})
  others=({others})
  choices=({choices})
  several=({several})

  local command word kind=
  local -a whom
  local -i at=2
  while (( at < CURRENT )); do
    word=$words[at]
    if [[ $word == -* ]]; then
      # Before the command stand the options that all commands share, some with a value.
      [[ -z $command ]] || break
      if [[ " {whom} " == *" $word "* ]]; then
        whom+=("$word" "${{(Q)words[at+1]}}")
      elif [[ $word == ({whom_in_one}) ]]; then
        whom+=("${{(Q)word}}")
      fi
      [[ " {shared} " != *" $word "* ]] || (( at++ ))
    else
      command=${{command:+$command }}$word
      (( ${{+argument[$command]}} )) && break
    fi
    (( at++ ))
  done
  local before=$words[CURRENT-1]
  # Behind an option that takes several words, each is one of its.
  local -i last=CURRENT-1
  while (( last > at )) && [[ $words[last] != -* ]]; do
    (( last-- ))
  done
  (( ! ${{several[(Ie)$command $words[last]]}} )) || before=$words[last]
  local chosen="$command $before"
  if (( ${{+choices[$chosen]}} )) && [[ $PREFIX != -* ]]; then
    compadd -- ${{=choices[$chosen]}}
    return
  fi
  if [[ " $named[$command] " == *" $before "* ]]; then
    kind=names
  elif [[ " $uuids[$command] " == *" $before "* ]]; then
    kind=uuids
  elif [[ " $flavors[$command] " == *" $before "* ]]; then
    kind=flavors
  elif (( ${{+argument[$command]}} )) && [[ $argument[$command] == yes && $PREFIX != -* ]] &&
      [[ " $others[$command] " != *" $before "* ]]; then
    kind=names
  fi

  if [[ -z $kind ]]; then
    _{function}_words "$@"
    return
  fi
  local -a found option
  [[ $kind == names ]] || option=("--$kind")
  found=("${{(@f)$(command {name} $whom vm names $option </dev/null 2>/dev/null)}}")
  # The line editor quotes what it writes into the command line.
  compadd -- "${{(@)found:#}}"
}}

_{function}_with_vms "$@"
"""


class CompleteZsh(CompleteShellBase):
    """A function for a directory of zsh's ``fpath``, such as ``/usr/share/zsh/vendor-completions``."""

    def get_header(self) -> str:
        """What comes before the words."""
        return _HEAD.format(name=self.name, function=self.escaped_name)

    def get_trailer(self) -> str:
        """What comes after them."""
        return _TAIL.format(function=self.escaped_name)

    def write(self, cmdo: str, data: Sequence[tuple[str, str]]) -> None:
        """Write the function.

        :param cmdo: the commands, and the first words of commands of several words.
        :param data: what can follow a command: its name with ``_`` for a blank, and words separated by blanks.
        """
        self.output.write(self.get_header())
        for name, words in [("none", cmdo), *data]:
            self.output.write(f"    '{name.replace('_', ' ')}' '{words}'\n")
        self.output.write(self.get_trailer())


def vm_function(name: str, vms: Mapping[str, Places], shared: Places) -> str:
    """A function that completes VMs where they are named, and leaves all else to the one of :class:`CompleteZsh`.

    :param name: the program's.
    :param vms: the places of each command that has some, by the command's words.
    :param shared: those of the options that all commands share, none of which takes a VM.
    """
    choices = [(command, *choice) for command, places in vms.items() for choice in places.choices.items()]
    return _VM_FUNCTION.format(
        function=name.replace("-", "_"),
        name=name,
        shared=" ".join(shared.others),
        whom=" ".join(WHOM),
        whom_in_one="|".join(f"{option}=*" for option in WHOM),
        argument=_table({command: "yes" if places.is_argument else "no" for command, places in vms.items()}),
        named=_table({command: " ".join(places.named) for command, places in vms.items()}),
        uuids=_table({command: " ".join(places.uuids) for command, places in vms.items()}),
        flavors=_table({command: " ".join(places.flavors) for command, places in vms.items()}),
        others=_table({command: " ".join(places.others) for command, places in vms.items()}),
        choices=_table({f"{command} {option}": " ".join(words) for command, option, words in choices}),
        several=" ".join(f"'{command} {option}'" for command, places in vms.items() for option in places.several),
    )


def _table(words: Mapping[str, str]) -> str:
    return " ".join(f"'{command}' '{text}'" for command, text in words.items())
