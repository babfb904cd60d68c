# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of every parser of outside text.

:mod:`.table` has the targets, :mod:`.trial` judges one input, :mod:`.guided` and :mod:`.unguided` make inputs, and
``python -m tests.fuzz`` runs them all and prints what came of it. The inputs in ``corpus`` and ``findings`` are tried
by the unit tests, too.
"""
