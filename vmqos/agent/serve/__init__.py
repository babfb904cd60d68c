# SPDX-License-Identifier: Apache-2.0
"""What the agent tells on its Unix socket."""
