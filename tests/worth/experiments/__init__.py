# SPDX-License-Identifier: Apache-2.0
"""The experiments of the literature, each a module with ``run``, which returns what :mod:`tests.worth.report` shows."""
