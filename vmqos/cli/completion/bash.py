# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos complete`` prints for bash.

Names of VMs are their users' choice. ``vmqos vm names --bash`` writes each as bash has to have it; nothing here
evaluates or splits what it prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmqos.cli.completion.places import WHOM, Kind, Places, following

_FUNCTION = """\
_{function}()
{{
  local cur prev words cword
  _get_comp_words_by_ref -n :=@ cur prev words cword

  local index=1 command= kind= choices= word at
  local -a whom=()
  while (( index < cword )); do
    if [[ ${{words[index]}} == -* ]]; then
      # Before the command stand the options that all commands share, some with a value.
      [[ -z $command ]] || break
      case "${{words[index]}}" in
        {whom}) whom+=("${{words[@]:index:2}}"); (( index++ )) ;;
        {shared}) (( index++ )) ;;
        {whom_in_one}) whom+=("${{words[index]}}") ;;
      esac
      (( index++ ))
      continue
    fi
    case "$command${{command:+ }}${{words[index]}}" in
      {beginnings}) command="$command${{command:+ }}${{words[index]}}" ;;
      *) break ;;
    esac
    (( index++ ))
  done

  # Behind an option that takes several words, each is one of its.
  for (( at = cword - 1; at > index; at-- )); do
    [[ ${{words[at]}} != -* ]] || break
  done
  case "$command ${{words[at]}}" in
    {several}) prev=${{words[at]}} ;;
  esac

  if (( index > cword )); then
    # The value of an option that all commands share.
    kind=files
  elif [[ -z $command ]] && (( index < cword )); then
    : # There is no such command.
  elif [[ $cur == -* ]]; then
    kind=choices
    case "$command" in
{options}
    esac
  else
    case "$command $prev" in
{values}
      *)
        case "$command" in
{arguments}
        esac
        (( index < cword )) || case "$command" in
{following}
        esac
        ;;
    esac
  fi

  COMPREPLY=()
  case "$kind" in
    names|uuids|flavors)
      while IFS= read -r word; do
        COMPREPLY+=("$word")
      done < <(
        if [[ $kind == names ]]; then set --; else set -- "--$kind"; fi
        command {name} "${{whom[@]}}" vm names "$@" "--bash=$cur" </dev/null 2>/dev/null
      )
      ;;
    choices)
      # bash replaces what follows the last colon or equals sign.
      at=${{cur%"${{cur##*[:=]}}"}}
      while IFS= read -r word; do
        [[ $word != *= ]] || compopt -o nospace 2>/dev/null
        COMPREPLY+=("${{word#"$at"}}")
      done < <(compgen -W "$choices" -- "$cur")
      ;;
    files) _filedir ;;
  esac
}}
complete -F _{function} {name}
"""


def function(name: str, commands: Mapping[str, Places], shared: Places) -> str:
    """A function that completes commands, their options, and what these take.

    :param name: the program's.
    :param commands: the places of each command, by its words.
    :param shared: those of the options that all commands share, each of which takes a file.
    """
    steps = following(commands)
    values, arguments = [], []
    for command, places in commands.items():
        for option, words in places.choices.items():
            values.append(f"      '{command} {option}') kind=choices choices='{' '.join(words)}' ;;")
        for kind in Kind:
            options = [option for option, takes in places.values.items() if takes is kind is not Kind.CHOICES]
            if options:
                values.append(f"      {_patterns(f'{command} {option}' for option in options)}) kind={kind} ;;")
        if places.argument is not Kind.OTHER:
            arguments.append(f"          '{command}') kind={places.argument} ;;")
    by_command = {"": shared, **commands}
    return _FUNCTION.format(
        function=name.replace("-", "_"),
        name=name,
        beginnings=_patterns(dict.fromkeys((*filter(None, steps), *commands))),
        shared=_patterns(shared.values),
        whom=_patterns(WHOM),
        whom_in_one="|".join(f"{option}=*" for option in WHOM),
        several=_patterns(f"{command} {option}" for command, places in commands.items() for option in places.several),
        options="\n".join(f"      '{one}') choices='{' '.join(of.options)}' ;;" for one, of in by_command.items()),
        values="\n".join(values),
        arguments="\n".join(arguments),
        following="\n".join(
            f"          '{begun}') kind=choices choices='{' '.join(words)}' ;;" for begun, words in steps.items()
        ),
    )


def _patterns(texts: Iterable[str]) -> str:
    return "|".join(f"'{text}'" for text in texts)
