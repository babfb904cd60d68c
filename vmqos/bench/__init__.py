# SPDX-License-Identifier: Apache-2.0
"""The noisy-neighbour experiment: a cache-sensitive load alone, beside a noisy one, and with ways of its own."""
