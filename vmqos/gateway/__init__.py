# SPDX-License-Identifier: Apache-2.0
"""The network side of vmqos: a process that is not root, and talks to the agent over its Unix socket."""
