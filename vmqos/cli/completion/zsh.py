# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos complete --shell zsh`` prints: a function for a directory of zsh's ``fpath``."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.cli.completion.places import WHOM, Places, following

_FUNCTION = """\
#compdef {name}

_{function}() {{
  # By the words of a command, or of a beginning of one; by "none" before the first word.
  local -A following options argument values choices
  local -a several
  following=(
{following}
  )
  options=(
{options}
  )
  argument=(
{argument}
  )
  # By the words of a command and an option.
  values=(
{values}
  )
  choices=(
{choices}
  )
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
      word=${{command:+$command }}$word
      (( ${{+following[$word]}} || ${{+options[$word]}} )) || break
      command=$word
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
  local place="$command $before"
  local known=${{command:-none}}

  if (( at > CURRENT )); then
    # The value of an option that all commands share.
    kind=files
  elif [[ -z $command ]] && (( at < CURRENT )); then
    : # There is no such command.
  elif [[ $PREFIX == -* ]]; then
    compadd -- ${{=options[$known]}}
  elif (( ${{+values[$place]}} )); then
    kind=$values[$place]
  elif (( at == CURRENT && ${{+following[$known]}} )); then
    compadd -- ${{=following[$known]}}
  else
    kind=$argument[$known]
  fi

  local -a found option
  case $kind in
    (names|uuids|flavors)
      [[ $kind == names ]] || option=("--$kind")
      found=("${{(@f)$(command {name} $whom vm names $option </dev/null 2>/dev/null)}}")
      # The line editor quotes what it writes into the command line.
      compadd -- "${{(@)found:#}}"
      ;;
    (choices)
      found=(${{=choices[$place]}})
      compadd -- ${{found:#*=}}
      # A value follows at once.
      compadd -S '' -- ${{(M)found:#*=}}
      ;;
    (files) _files ;;
  esac
}}

_{function} "$@"
"""


def function(name: str, commands: Mapping[str, Places], shared: Places) -> str:
    """A function that completes commands, their options, and what these take.

    :param name: the program's.
    :param commands: the places of each command, by its words.
    :param shared: those of the options that all commands share, each of which takes a file.
    """
    steps = {begun or "none": " ".join(words) for begun, words in following(commands).items()}
    values = {f"{command} {option}": kind for command, of in commands.items() for option, kind in of.values.items()}
    choices = [(command, *choice) for command, places in commands.items() for choice in places.choices.items()]
    return _FUNCTION.format(
        function=name.replace("-", "_"),
        name=name,
        shared=" ".join(shared.values),
        whom=" ".join(WHOM),
        whom_in_one="|".join(f"{option}=*" for option in WHOM),
        following=_table(steps),
        options=_table({one: " ".join(of.options) for one, of in {"none": shared, **commands}.items()}),
        argument=_table({command: of.argument for command, of in commands.items()}),
        values=_table(values),
        choices=_table({f"{command} {option}": " ".join(words) for command, option, words in choices}),
        several=" ".join(f"'{command} {option}'" for command, of in commands.items() for option in of.several),
    )


def _table(words: Mapping[str, str]) -> str:
    return "\n".join(f"    '{command}' '{text}'" for command, text in words.items())
