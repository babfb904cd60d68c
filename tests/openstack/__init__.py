# SPDX-License-Identifier: Apache-2.0
"""vmqos with real servers of OpenStack and of others, started by the tests on loopback."""
