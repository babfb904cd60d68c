# SPDX-License-Identifier: Apache-2.0
"""What several commands share: base classes, options, the way to the agent, and a lease of a trial."""
