# SPDX-License-Identifier: Apache-2.0
"""Looking at every counter of every VM at once: what is listed, what is read, and whose it is."""
