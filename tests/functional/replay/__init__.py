# SPDX-License-Identifier: Apache-2.0
"""Replaying what real kernels answered against the simulator."""
