# SPDX-License-Identifier: Apache-2.0
"""Hardware events that the plugin counts and the kernel hands out."""
