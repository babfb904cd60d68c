# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_log import log

from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError


def write(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "vmqos.conf"
    path.write_text(text)
    return ["--config-file", str(path)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[allocation]\nwhen_full = maybe\n", ["vmqos.conf", "[allocation] when_full", "maybe", "pend, share"]),
        ("[allocation]\ndefault_ways_min = 0\n", ["vmqos.conf", "[allocation] default_ways_min", "1 to 32"]),
        ("[allocation]\ndefault_ways_min = two\n", ["vmqos.conf", "[allocation] default_ways_min", "two", "1 to 32"]),
        ("[allocation]\nreserved_ways = xyz\n", ["vmqos.conf", "[allocation] reserved_ways", "xyz", "hexadecimal"]),
        (
            "[allocation]\nkernel_exclusive = si\n",
            ["vmqos.conf", "[allocation] kernel_exclusive = si", "true or false"],
        ),
        ("[allocation]\ndefault_ways_min = 0\n", ["default_ways_min = 0: a whole number from 1 to 32 is allowed"]),
        ("[http]\nport = 70000\n", ["vmqos.conf", "[http] port = 70000: a whole number from 0 to 65535 is allowed"]),
        ("[agent]\naudit_interval = nan\n", ["vmqos.conf", "audit_interval = nan: a number from 0.1 up is allowed"]),
        ("[agent]\nretry_delay_min =\n", ["vmqos.conf", "[agent] retry_delay_min is empty: a number from 0.1 up"]),
        ("[telemetry]\nminutes =\n", ["vmqos.conf", "[telemetry] minutes is empty: a whole number from 0 to 1440"]),
        ("[api]\nsocket =\n", ["vmqos.conf", "[api] socket is empty", "remove the line: /run/vmqos/agent.sock"]),
        ("[libvirt]\nuri =\n", ["vmqos.conf", "[libvirt] uri is empty", "remove the line: qemu:///system"]),
        ("[libvirt]\nuri = $home/x\n", ["vmqos.conf", "[libvirt] uri = $home/x", "a plain $ is written $$"]),
        ("[resctrl]\npath = ${no.such}\n", ["vmqos.conf", "[resctrl] path = ${no.such}", "a plain $ is written $$"]),
        ("[api]\nsocket_mode = 999\n", ["vmqos.conf", "[api] socket_mode", "999", "octal"]),
        ("[agent]\naudit_interval = 0\n", ["vmqos.conf", "[agent] audit_interval", "0.1"]),
        ("[agent]\nretry_delay_max = 0.5\n", ["vmqos.conf: [agent] retry_delay_max = 0.5", "retry_delay_min"]),
        ("[agent\n", ["vmqos.conf:1"]),
    ],
)
def test_a_bad_value_is_refused_with_its_place_and_what_is_allowed(tmp_path: Path, text: str, told: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        loader.load(write(tmp_path, text))
    for word in told:
        assert word in str(raised.value)


def test_a_bad_value_is_told_where_the_file_is_named_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[agent]\naudit_interval = -3\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"vmqos\.conf: \[agent\] audit_interval = -3: a number from 0\.1 up"):
        loader.load(["--config-file", "vmqos.conf"])


@pytest.mark.parametrize(("value", "told"), [("maybe", "debug = maybe"), ("", "debug is empty")])
def test_a_bad_switch_of_oslo_log_is_refused_and_ends_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str, told: str
) -> None:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    arguments = write(tmp_path, f"[DEFAULT]\ndebug = {value}\n")
    with pytest.raises(ConfigurationError) as raised:
        loader.load(arguments, conf)
    assert str(raised.value) == f"{arguments[1]}: [DEFAULT] {told}: true or false is allowed"
    assert capsys.readouterr().err == ""


def test_a_wrong_option_of_the_command_line_is_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loader.load(["--frobnicate"])
    assert "vmqos-agent: error: unrecognized arguments: --frobnicate" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.conf"):
        loader.load(["--config-file", str(tmp_path / "nowhere.conf")])


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"can't read the configuration file {tmp_path}: Is a directory"):
        loader.load([f"--config-file={tmp_path}"])


@pytest.mark.parametrize("options", ["--config-file={path}", "--config-dir={folder}"])
def test_a_fifo_in_the_place_of_a_file_is_named_and_holds_nothing_up(tmp_path: Path, options: str) -> None:
    path = tmp_path / "vmqos.conf"
    os.mkfifo(path)
    # So that the open of the FIFO, if there is one, does not wait for ever.
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b"[http]\nport = 1\n")
    try:
        with pytest.raises(ConfigurationError) as refused:
            loader.load([options.format(path=path, folder=tmp_path)])
    finally:
        os.close(descriptor)
    assert str(refused.value) == f"can't read the configuration file {path}: it is no regular file"


def test_no_configuration_can_be_had_from_the_device_that_is_empty() -> None:
    assert loader.load(["--config-file=/dev/null"]).http.port == 19177


def test_an_option_without_its_value_is_told_by_the_name_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        loader.load(["--config-file"], program="vmqos-gateway")
    assert ended.value.code == 2 and "vmqos-gateway: error: argument --config-file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("program", ["agent", "gateway"])
def test_help_and_version_fail_in_one_line_where_nothing_can_be_written(
    program: str, unbuffered: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", f"vmqos.{program}.main", option], stdout=full, stderr=subprocess.PIPE, check=False
        )
    said = f"vmqos-{program}: [Errno 28] No space left on device\n"
    assert (ended.returncode, ended.stderr.decode()) == (1, said)


def test_a_reader_of_the_help_that_has_left_is_told_by_the_status_alone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "vmqos.agent.main", "--help"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    whole, broken = tmp_path / "10.conf", tmp_path / "20.conf"
    whole.write_text("[api]\n")
    broken.write_bytes(b"#\n" * 9000 + "# M\u00fcnchen\n".encode("latin-1"))
    for arguments in (["--config-file", str(whole), "--config-file", str(broken)], ["--config-dir", str(tmp_path)]):
        with pytest.raises(ConfigurationError, match=rf"^{broken}:9001 is no text in utf-8, "):
            loader.load(arguments)


def test_defaults_need_no_file(tmp_path: Path) -> None:
    conf = loader.load(write(tmp_path, ""))
    assert conf.resctrl.path == "/sys/fs/resctrl"
    assert conf.api.socket == "/run/vmqos/agent.sock"
    assert list(loader.unknown_options(conf)) == []


def test_a_typing_error_is_told_with_what_was_probably_meant(tmp_path: Path) -> None:
    conf = loader.load(write(tmp_path, "[alocation]\nx = 1\n[agent]\naudit_interva = 1\n[api]\nfrobnicate = 1\n"))
    told = sorted(loader.unknown_options(conf))
    assert any("[alocation]" in line and "did you mean allocation?" in line for line in told)
    assert any("audit_interva " in line and "did you mean audit_interval?" in line for line in told)
    assert any("frobnicate" in line and "did you mean" not in line for line in told)
    assert all("vmqos.conf" in line for line in told)


def test_an_option_in_the_section_of_libraries_is_told_with_the_sections_that_have_it(tmp_path: Path) -> None:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    text = "[DEFAULT]\ndebug = true\ncontrol_exchange = nova\nsocket_mode = 660\naudit_interval = 2\n"
    arguments = write(tmp_path, text)
    assert list(loader.unknown_options(loader.load(arguments, conf))) == [
        f"{arguments[1]}: [DEFAULT] audit_interval is unknown and ignored; there is such an option in [agent]",
        f"{arguments[1]}: [DEFAULT] socket_mode is unknown and ignored; there is such an option in [api] and [gateway]",
    ]


@pytest.mark.parametrize(
    ("option", "meant"),
    [("debugg", "debug"), ("Debug", "debug"), ("log_fil", "log_file"), ("default_log_level", "default_log_levels")],
)
@pytest.mark.parametrize("registered", [True, False], ids=["daemon", "command"])
def test_a_misspelt_option_of_oslo_log_is_told_with_what_was_probably_meant(
    tmp_path: Path, option: str, meant: str, registered: bool
) -> None:
    conf = cfg.ConfigOpts()
    if registered:
        log.register_options(conf)
    arguments = write(tmp_path, f"[DEFAULT]\n{option} = true\n")
    assert list(loader.unknown_options(loader.load(arguments, conf))) == [
        f"{arguments[1]}: [DEFAULT] {option} is unknown and ignored; did you mean {meant}?"
    ]


@pytest.mark.parametrize(
    "option",
    [
        *("debug", "log_file", "log-file", "logfile", "logdir", "log_config", "use-journal", "log_rotation_type"),
        *("control_exchange", "rpc_ping_enabled", "rpc_response_timeout", "executor_thread_pool_size"),
    ],
)
def test_an_option_that_a_library_takes_is_no_typing_error(tmp_path: Path, option: str) -> None:
    assert list(loader.unknown_options(loader.load(write(tmp_path, f"[DEFAULT]\n{option} = true\n")))) == []


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_time_without_end_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="audit_interval"):
        loader.load(write(tmp_path, f"[agent]\naudit_interval = {value}\n"))


def test_texts_that_mean_something_when_empty_may_be(tmp_path: Path) -> None:
    conf = loader.load(write(tmp_path, "[telemetry]\nminutes_file =\n[resctrl]\nreaders_group =\n"))
    assert (conf.telemetry.minutes_file, conf.resctrl.readers_group) == ("", "")


def test_a_secret_is_not_printed_with_what_is_wrong_about_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"vmqos\.conf: \[notifications\] transport_url: ") as raised:
        loader.load(write(tmp_path, "[notifications]\ntransport_url = rabbit://nova:pa$word@control/\n"))
    assert "word" not in str(raised.value)


def test_the_files_of_a_folder_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "10.conf").write_text("[agent]\naudit_intervall = 2\n")
    (tmp_path / "20.conf").write_text("[telemetry]\ninterval = 3\n")
    (told,) = loader.unknown_options(loader.load(["--config-dir", str(tmp_path)]))
    assert told.startswith(f"{tmp_path}/10.conf: [agent] audit_intervall is unknown")
    for text in ("", "soon"):
        (tmp_path / "30.conf").write_text(f"[telemetry]\ninterval = {text}\n")
        with pytest.raises(
            ConfigurationError, match=rf"^{tmp_path}/30\.conf: \[telemetry\] interval (is empty|= soon): "
        ):
            loader.load(["--config-dir", str(tmp_path)])
