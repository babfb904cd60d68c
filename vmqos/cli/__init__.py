# SPDX-License-Identifier: Apache-2.0
"""The ``vmqos`` command, on cliff; each command is an entry point of the group ``vmqos.cli``."""
