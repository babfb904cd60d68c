# SPDX-License-Identifier: Apache-2.0
"""What things cost, as ratios against a peer or the limit in the same run: ``python -m tests.benchmarks --help``."""
