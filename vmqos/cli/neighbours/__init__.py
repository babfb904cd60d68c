# SPDX-License-Identifier: Apache-2.0
"""Who slows whom: asking the agent, recording what it judges by, and judging a recording."""
