# SPDX-License-Identifier: Apache-2.0
"""Reading the configuration, and refusing a bad one with a message that says where it is and what is allowed."""

from __future__ import annotations

import argparse
import contextlib
import copy
import difflib
import errno
import io
import math
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from oslo_config import cfg, types

from vmqos.conf import keystone, notifications
from vmqos.conf.exceptions import ConfigurationError, NotReadable
from vmqos.conf.opts import SECTIONS

NO_SUCH_NAME = "names another option after a $, and there is none of that name; a plain $ is written $$"
"""What is wrong where oslo.config can't put the value of another option in the place of a name."""
NO_SUBSTITUTE = (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError)
"""The errors that say this. Their texts have the name, which may be a piece of a password."""

_NOTATIONS = {"reserved_ways": "a hexadecimal mask, such as c00", "socket_mode": "octal permissions, such as 660"}
_MAY_BE_EMPTY = frozenset({"minutes_file", "readers_group"})
"""Texts that mean something where they are empty: their help says what."""
_FILE = re.compile(r"LocationInfo\(.*?detail='(.*?)'\)")
"""Where oslo.config says in its error's text that the value came from; the error itself does not carry it."""
_BAD_SWITCH = re.compile(r"argument --(\w+): Invalid Boolean value: (.*)")
"""What oslo.config prints, before it ends the process, of a bad value in a file for a switch of the command line."""


def load(
    arguments: Sequence[str],
    conf: cfg.ConfigOpts | None = None,
    version: str | None = None,
    program: str = "vmqos-agent",
) -> cfg.ConfigOpts:
    """Parse the command line and the files it names, and check every option.

    :param arguments: the command line without the program's name.
    :param conf: where command line options are registered already; a fresh one if ``None``.
    :param version: what ``--version`` prints.
    :param program: whose name ``--help`` prints.
    :raises vmqos.conf.exceptions.NotReadable: if this user may not read a file.
    :raises vmqos.conf.exceptions.ConfigurationError: if a file is not there or a value is not allowed.
    """
    conf = cfg.ConfigOpts() if conf is None else conf
    _register(conf)
    said, printed = io.StringIO(), io.StringIO()
    try:
        _check_kinds(_files(arguments, program))
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            conf(list(arguments), project="vmqos", prog=program, version=version)
    except SystemExit as ended:
        # For such a value, too, oslo.config ends the process. An agent that reads its files again has to go on.
        if found := _BAD_SWITCH.match(said.getvalue()):
            raise ConfigurationError(_bad_switch(found[1], found[2], _files(arguments, program))) from None
        sys.stderr.write(said.getvalue())
        raise SystemExit(_print(printed.getvalue(), program) or ended.code) from None
    except cfg.ConfigFilesNotFoundError as error:
        raise ConfigurationError(f"there is no configuration file {', '.join(error.config_files)}") from error
    except cfg.ConfigFilesPermissionDeniedError as error:
        raise NotReadable(error.config_files) from error
    except (cfg.ConfigFileParseError, cfg.ConfigDirNotFoundError, cfg.RequiredOptError) as error:
        raise ConfigurationError(str(error)) from error
    except cfg.ConfigFileValueError as error:
        raise ConfigurationError(_explain(conf) or str(error)) from error
    except OSError as error:
        problem = f"can't read the configuration file {error.filename}: {error.strerror}"
        raise ConfigurationError(problem) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(_not_text(_files(arguments, program), error.encoding) or str(error)) from error
    check(conf)
    return conf


def _files(arguments: Sequence[str], program: str) -> Iterator[Path]:
    """The files that oslo.config reads, in its order."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in ("--config-file", "--config-dir"):
        parser.add_argument(option, action="append")
    try:
        named = parser.parse_known_args(list(arguments))[0]
    except argparse.ArgumentError:
        # oslo.config says what is wrong.
        return
    for path in named.config_file or cfg.find_config_files("vmqos", program):
        yield Path(path).expanduser()
    for folder in named.config_dir or cfg.find_config_dirs("vmqos", program):
        yield from sorted(Path(folder).expanduser().glob("*.conf"))


def _check_kinds(files: Iterator[Path]) -> None:
    """Make sure that no reader waits for ever: the open of a FIFO waits for a writer, and a device may never end.

    Each file is read several times, and a reload reads it again. So what comes by a pipe is of no use either.

    :raises OSError: if one is there that is neither a regular file nor ``/dev/null``.
    """
    for path in files:
        try:
            mode = path.stat().st_mode
        except OSError:
            # oslo.config says what is wrong.
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or path.samefile(os.devnull)):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _print(text: str, program: str) -> int:
    """Print the help or the version.

    :returns: the exit status: 0, 1 if it can't be written, 141 if the reader of a pipe has left.
    """
    if not sys.stdout:
        return 0
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        status = 141
    except OSError as error:
        sys.stderr.write(f"{program}: {error}\n")
        status = 1
    # Python flushes it once more at the end, and would print that this failed.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return status


def _bad_switch(name: str, value: str, files: Iterator[Path]) -> str:
    """What is wrong with a switch in ``[DEFAULT]``, as a sentence that names the last file that has it."""
    where = ""
    for path in files:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(path), sections).parse()
        if name in sections.get("DEFAULT", {}):
            where = f"{path}: "
    return f"{where}[DEFAULT] {name}{f' = {value}' if value else ' is empty'}: true or false is allowed"


def _not_text(files: Iterator[Path], encoding: str) -> str:
    """Which file has bytes that are no text, and where, as a sentence; empty if none has."""
    for path in files:
        content = path.read_bytes()
        try:
            content.decode(encoding)
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            return f"{path}:{line} is no text in {encoding}, comments included; write the line anew"
    return ""


def defaults() -> cfg.ConfigOpts:
    """The configuration of a host that has no configuration file."""
    conf = cfg.ConfigOpts()
    _register(conf)
    conf([], project="vmqos", prog="vmqos-agent", default_config_files=[], default_config_dirs=[])
    return conf


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option once, so that a bad value is found now and not in the middle of the night.

    :raises vmqos.conf.exceptions.ConfigurationError: if a value is not allowed.
    """
    problem = _explain(conf)
    if problem:
        raise ConfigurationError(problem)
    if conf.agent.retry_delay_max < conf.agent.retry_delay_min:
        raise ConfigurationError(
            f"{place(conf, 'agent', 'retry_delay_max')} = {conf.agent.retry_delay_max:g} is less than "
            f"retry_delay_min = {conf.agent.retry_delay_min:g}"
        )


def place(conf: cfg.ConfigOpts, section: str, option: str) -> str:
    """An option for an error's text: the file that has it, its section, and its name; no file where none has it."""
    files = [f"{path}: " for path, sections in keystone.parsed(conf) if option in sections.get(section, {})]
    return f"{files[-1] if files else ''}[{section}] {option}"


def _register(conf: cfg.ConfigOpts) -> None:
    for section in SECTIONS:
        # oslo.config's own copy shares the options that keystoneauth adds with every other configuration.
        conf.register_group(copy.deepcopy(section.GROUP))
        conf.register_opts(section.OPTIONS, group=section.GROUP.name)


def _explain(conf: cfg.ConfigOpts) -> str:
    """The first bad value as a sentence: where it stands, what it is, and what is allowed; empty if all are good."""
    for section in SECTIONS:
        group = section.GROUP.name
        for option in section.OPTIONS:
            file = ""
            try:
                if _is_good(option, getattr(conf[group], option.dest)):
                    continue
                allowed = _allowed(option)
            except NO_SUBSTITUTE:
                allowed = f"it {NO_SUCH_NAME}"
            except (cfg.ConfigFileValueError, ValueError) as error:
                allowed, found = _allowed(option), _FILE.search(str(error))
                file = found[1] if found else ""
            where, value = _written(conf, group, option, file)
            return f"{f'{where}: ' if where else ''}[{group}] {option.name}{value}: {allowed}"
    return ""


def _is_good(option: cfg.Opt, value: object) -> bool:
    """Whether a value is one to go on with, which oslo.config takes for one of its type."""
    if isinstance(value, float):
        return math.isfinite(value)
    if option.default is None or option.name in _MAY_BE_EMPTY:
        return True
    # oslo.config reads nothing at all as "no number"; and of texts, none means something that is empty.
    return value is not None and value != ""


def _written(conf: cfg.ConfigOpts, group: str, option: cfg.Opt, file: str) -> tuple[str, str]:
    """The file that has an option, and its value there as a sentence goes on with it; each empty where it is not known.

    :param file: the file, where it is known already.
    """
    for path, sections in reversed(list(keystone.parsed(conf))):
        values = sections.get(group, {}).get(option.name)
        if values and os.path.abspath(path) == (file or os.path.abspath(path)):
            return path, "" if option.secret else f" = {values[-1]}" if values[-1] else " is empty"
    return file, ""


def _allowed(option: cfg.Opt) -> str:
    kind = option.type
    if getattr(kind, "regex", None) is not None:
        return f"{_NOTATIONS[option.name]}, is allowed"
    if choices := getattr(kind, "choices", None):
        return f"one of {', '.join(choices)} is allowed"
    if isinstance(kind, types.Boolean):
        return "true or false is allowed"
    if isinstance(kind, types.Number):
        number = "a whole number" if isinstance(kind, types.Integer) else "a number"
        if kind.min is None and kind.max is None:
            return f"{number} is allowed"
        if kind.max is None:
            return f"{number} from {kind.min:g} up is allowed"
        return f"{number} from {kind.min:g} to {kind.max:g} is allowed"
    return f"name one, or remove the line: {option.sample_default or option.default} is taken then"


def unknown_options(conf: cfg.ConfigOpts, of_keystoneauth: bool = True) -> Iterator[str]:
    """A sentence for each section or option in the files that vmqos does not know, most likely a typing error.

    ``[DEFAULT]`` has options of libraries as well. So only those are told of that other sections have, and those that
    look like an option of oslo.log and are none.

    :param of_keystoneauth: whether the options of the sections that are keystoneauth's too are looked at.
    """
    known = {section.GROUP.name: {option.name for option in section.OPTIONS} for section in SECTIONS}
    for path, sections in keystone.parsed(conf):
        of_others = {"DEFAULT"}
        for section in keystone.SECTIONS:
            of_others.update(sections.get(section, {}).get("auth_section", ()))
        for option in sorted(sections.get("DEFAULT", {}).keys() - set(conf)):
            if there := " and ".join(f"[{section}]" for section, names in known.items() if option in names):
                yield f"{path}: [DEFAULT] {option} is unknown and ignored; there is such an option in {there}"
            elif meant := _of_oslo_log(option):
                yield f"{path}: [DEFAULT] {option} is unknown and ignored; did you mean {meant}?"
        for section, options in sections.items():
            if section not in known:
                if section not in of_others and not section.startswith(notifications.OF_OSLO_MESSAGING):
                    yield f"{path}: section [{section}] is unknown and ignored{_suggest(section, known)}"
                continue
            if section in keystone.SECTIONS and not of_keystoneauth:
                continue
            try:
                names = known[section]
                if section in keystone.SECTIONS and not options.keys() <= names:
                    # keystoneauth takes 8 MiB, and is not needed where none of its options is there.
                    names = names | keystone.names(options)
            except ConfigurationError as error:
                yield f"{path}: {error}"
                continue
            for option in options.keys() - names:
                yield f"{path}: [{section}] {option} is unknown and ignored{_suggest(option, names)}"


def _of_oslo_log(option: str) -> str:
    """The option of oslo.log that was most likely meant; empty where it is one already, or none is like it."""
    names, others = _names_of_oslo_log()
    if option in names or option in others:
        return ""
    # Options of other libraries, such as oslo.messaging's, are less alike.
    return next(iter(difflib.get_close_matches(option.lower(), names, n=1, cutoff=0.8)), "")


@cache
def _names_of_oslo_log() -> tuple[tuple[str, ...], frozenset[str]]:
    """The names of oslo.log's options, and the further ones that it takes: earlier names, and those with a ``-``."""
    names, others = list[str](), set[str]()
    for point in entry_points(group="oslo.config.opts", name="oslo.log"):
        for _, options in point.load()():
            for option in options:
                names.append(option.dest)
                others.update((option.name, *(earlier.name for earlier in option.deprecated_opts if earlier.name)))
    return tuple(names), frozenset(others | {name.replace("-", "_") for name in others})


def _suggest(word: str, known: Sequence[str] | set[str] | dict[str, set[str]]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
