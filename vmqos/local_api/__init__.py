# SPDX-License-Identifier: Apache-2.0
"""The agent's API on its Unix socket: what each answer holds, and how to ask."""
