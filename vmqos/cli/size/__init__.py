# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs: it is let have one more after the other, and its misses are counted with each."""
