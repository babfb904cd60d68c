# SPDX-License-Identifier: Apache-2.0
"""What the life of a daemon needs, whether it is the agent or the gateway."""
