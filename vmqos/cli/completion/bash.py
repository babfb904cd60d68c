# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos complete`` prints for bash behind cliff's own function: the completion of VMs, flavors and fixed words.

Names of VMs are their users' choice. ``vmqos vm names --bash`` writes each as bash has to have it; nothing here
evaluates or splits what it prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmqos.cli.completion.places import WHOM, Places

_FUNCTION = """
_{function}_with_vms()
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
  case "$command $prev" in
{values}
  esac
  if [[ -z $kind && $cur != -* ]]; then
    case "$command" in
      {arguments}) kind=names ;;
    esac
  fi
  case "$kind" in
    names|uuids|flavors)
      COMPREPLY=()
      while IFS= read -r word; do
        COMPREPLY+=("$word")
      done < <(
        if [[ $kind == names ]]; then set --; else set -- "--$kind"; fi
        command {name} "${{whom[@]}}" vm names "$@" "--bash=$cur" </dev/null 2>/dev/null
      )
      ;;
    choices)
      COMPREPLY=()
      while IFS= read -r word; do
        COMPREPLY+=("$word")
      done < <(compgen -W "$choices" -- "$cur")
      ;;
    *) _{function} ;;
  esac
}}
complete -F _{function}_with_vms {name}
"""


def vm_function(name: str, vms: Mapping[str, Places], shared: Places) -> str:
    """A function that completes VMs where they are named, and leaves all else to cliff's.

    :param name: the program's.
    :param vms: the places of each command that has some, by the command's words.
    :param shared: those of the options that all commands share, none of which takes a VM.
    """
    parts = [command.split() for command in vms]
    beginnings = dict.fromkeys(" ".join(words[:count]) for words in parts for count in range(1, len(words) + 1))
    values = []
    for command, places in vms.items():
        # The first pattern that matches counts, so these stand before those of any other value.
        for option, words in places.choices.items():
            values.append(f"    '{command} {option}') [[ $cur == -* ]] || kind=choices choices='{' '.join(words)}' ;;")
        kinds = {"names": places.named, "uuids": places.uuids, "flavors": places.flavors, "value": places.others}
        for kind, options in kinds.items():
            if options:
                patterns = _patterns(f"{command} {option}" for option in options)
                values.append(f"    {patterns}) kind={kind} ;;")
    return _FUNCTION.format(
        function=name.replace("-", "_"),
        name=name,
        beginnings=_patterns(beginnings),
        shared=_patterns(shared.others),
        whom=_patterns(WHOM),
        whom_in_one="|".join(f"{option}=*" for option in WHOM),
        values="\n".join(values),
        several=_patterns(f"{command} {option}" for command, places in vms.items() for option in places.several),
        arguments=_patterns(command for command, places in vms.items() if places.is_argument),
    )


def _patterns(texts: Iterable[str]) -> str:
    return "|".join(f"'{text}'" for text in texts)
