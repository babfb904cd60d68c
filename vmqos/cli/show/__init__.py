# SPDX-License-Identifier: Apache-2.0
"""Drawing for people: tables, maps, figures with their units, and text that is safe for a terminal."""
