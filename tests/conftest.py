# SPDX-License-Identifier: Apache-2.0
"""Plugins of pytest that must be known before the tests below are collected."""

from __future__ import annotations

pytest_plugins = ("tests.kernel.pytest_guest",)
