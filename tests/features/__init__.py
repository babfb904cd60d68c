# SPDX-License-Identifier: Apache-2.0
"""Which feature was shown on which machine and kernel: a mark for tests, and the documentation's matrix of them."""
