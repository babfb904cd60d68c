# SPDX-License-Identifier: Apache-2.0
"""Where the ways lie, and in which order the masks are written."""
