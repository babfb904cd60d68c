# SPDX-License-Identifier: Apache-2.0
"""What OpenStack and the agent have to tell each other: Placement, Nova, and the message bus."""
