# SPDX-License-Identifier: Apache-2.0
"""What a kernel does that no user-space filesystem can play: scarce ids, hardware faults, CPUs that go and come."""
