# SPDX-License-Identifier: Apache-2.0
"""What several commands share: base classes, options, and the way to the agent."""
