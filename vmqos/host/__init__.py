# SPDX-License-Identifier: Apache-2.0
"""What can be told of this host, and done to it, where no agent runs: checks, a description, a reset."""
