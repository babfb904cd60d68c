# SPDX-License-Identifier: Apache-2.0
"""The machine below resctrl: what its CPUs and kernel offer, what they have counted, and which tasks run."""
