# SPDX-License-Identifier: Apache-2.0
"""``vmqos flavor``: the promises of the flavors of the cloud, written and checked."""
