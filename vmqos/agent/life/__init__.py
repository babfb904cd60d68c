# SPDX-License-Identifier: Apache-2.0
"""What the agent's life needs: waking up, trying again, logging once, talking to systemd."""
