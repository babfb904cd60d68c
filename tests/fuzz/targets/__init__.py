# SPDX-License-Identifier: Apache-2.0
"""The functions of the table, by the room that their parsers are in."""
