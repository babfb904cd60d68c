# SPDX-License-Identifier: Apache-2.0
"""What the agent answers, as Prometheus metrics."""
