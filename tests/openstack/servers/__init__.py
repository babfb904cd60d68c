# SPDX-License-Identifier: Apache-2.0
"""Servers that belong to the tests: each with a directory, ports and a configuration of its own."""
