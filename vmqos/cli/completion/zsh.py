# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos complete --shell zsh`` prints: a completion function for zsh, beside cliff's own for bash.

cliff finds it by the entry point group ``cliff.formatter.completion``.
"""

from __future__ import annotations

from collections.abc import Sequence

from cliff.complete import CompleteShellBase

_HEAD = """\
#compdef {name}

_{function}() {{
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

_{function} "$@"
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
