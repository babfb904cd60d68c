# SPDX-License-Identifier: Apache-2.0
"""What the command can say of this host, and do to it, where no agent runs: checks, a description, a reset."""
