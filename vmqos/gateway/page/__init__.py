# SPDX-License-Identifier: Apache-2.0
"""The page: a read-only view of the host for browsers, served by the gateway beside the agent's API."""

from vmqos.gateway.page.site import Site

__all__ = ["Site"]
