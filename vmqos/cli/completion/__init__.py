# SPDX-License-Identifier: Apache-2.0
"""Completion of the ``vmqos`` command in shells."""
