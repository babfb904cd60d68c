# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_log import log

from tests.unit.eventually import eventually
from vmqos.conf import loader
from vmqos.daemon import log_setup


def load(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    path = tmp_path / "vmqos.conf"
    path.write_text(f"[DEFAULT]\n{text}\n")
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    return loader.load(["--config-file", str(path)], conf)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "log_file = {folder}/none/vmqos.log",
            "can't write the log to {folder}/none/vmqos.log ([DEFAULT] log_file, log_dir): No such file or directory",
        ),
        ("log_file = {folder}", "can't write the log to {folder} ([DEFAULT] log_file, log_dir): Is a directory"),
        (
            "log_file = {folder}/vmqos.log\nlog_rotation_type = daily",
            "{folder}/vmqos.conf: [DEFAULT] log_rotation_type: Valid values are [interval, size, none], but found "
            "'daily'",
        ),
        (
            "log_config_append = {folder}/none",
            "there can be no log as the options of oslo.log in [DEFAULT] have it: Error loading logging config "
            "{folder}/none: [Errno 2] No such file or directory: '{folder}/none'",
        ),
    ],
)
def test_a_log_that_can_not_be_is_refused_and_the_one_from_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    root, kept = logging.getLogger(), logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [kept])
    conf = load(tmp_path, text.format(folder=tmp_path))
    with pytest.raises(log_setup.LogRefused) as raised:
        log_setup.set_up(conf)
    assert str(raised.value) == told.format(folder=tmp_path)
    assert root.handlers == [kept]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "log_config_append = {path}",
            "there can be no log as {path} has it ([DEFAULT] log_config_append): it is a FIFO",
        ),
        (
            "log_file = {path}",
            "can't write the log to {path} ([DEFAULT] log_file, log_dir): it is a FIFO, and no program reads it",
        ),
        (
            "log_dir = {path.parent}\nlog_file = {path.name}",
            "can't write the log to {path} ([DEFAULT] log_file, log_dir): it is a FIFO, and no program reads it",
        ),
    ],
)
def test_a_fifo_whose_other_end_is_not_open_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    path = tmp_path / "fifo"
    os.mkfifo(path)
    conf = load(tmp_path, text.format(path=path))
    with pytest.raises(log_setup.LogRefused) as raised:
        log_setup.set_up(conf)
    assert str(raised.value) == told.format(path=path)


@pytest.mark.timeout(60)
def test_a_fifo_that_a_program_reads_takes_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    path = tmp_path / "fifo"
    os.mkfifo(path)
    conf = load(tmp_path, f"log_file = {path}")

    def begins() -> bool:
        try:
            log_setup.set_up(conf)
        except log_setup.LogRefused:
            return False
        return True

    # It ends as soon as no writer is left.
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as reader:
        try:
            eventually(begins)
            logging.getLogger("vmqos").error("something")
            assert reader.stdout is not None and b"something" in reader.stdout.readline()
        finally:
            reader.kill()
