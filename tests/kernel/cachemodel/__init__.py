# SPDX-License-Identifier: Apache-2.0
"""The model of the caches in the emulated CPUs: switching it, reading it, and its own tests.

See ``doc/source/contributor/cachemodel.rst``.
"""
