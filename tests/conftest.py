# SPDX-License-Identifier: Apache-2.0
"""Plugins of pytest that must be known before the tests below are collected, and what all tests rely on."""

from __future__ import annotations

import signal

pytest_plugins = ("tests.kernel.pytest_guest", "tests.features.marks")

# A shell starts what runs in its background with SIGINT ignored, and children inherit that: ours are ended by it.
signal.signal(signal.SIGINT, signal.default_int_handler)
