# SPDX-License-Identifier: Apache-2.0
"""Real programs in a small Linux: what they are, the VM that runs them, and ``vmqos size`` on it beside the truth."""
