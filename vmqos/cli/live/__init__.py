# SPDX-License-Identifier: Apache-2.0
"""Terminals that are drawn on again and again, until the operator has seen enough."""
