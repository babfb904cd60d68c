# SPDX-License-Identifier: Apache-2.0
"""What ways of its own do for a VM beside a noisy neighbour: real VMs, the agent, and a model of the caches."""
