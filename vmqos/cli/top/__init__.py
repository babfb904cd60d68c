# SPDX-License-Identifier: Apache-2.0
"""``vmqos top``: who has how much cache and memory bandwidth now, on a screen that follows."""
