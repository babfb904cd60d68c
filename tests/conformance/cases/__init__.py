# SPDX-License-Identifier: Apache-2.0
"""The cases: one module a section."""
