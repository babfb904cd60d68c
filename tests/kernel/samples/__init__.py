# SPDX-License-Identifier: Apache-2.0
"""Test modules that ``test_lab.py`` has pytest run; by their names, a run of everything leaves them out."""
