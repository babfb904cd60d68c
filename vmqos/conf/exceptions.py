# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the configuration."""

from __future__ import annotations


class ConfigurationError(Exception):
    """An option has no value, or one that is not allowed; the message names file, section, option and value."""
