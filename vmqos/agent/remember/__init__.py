# SPDX-License-Identifier: Apache-2.0
"""What happened: events, lines of the log, how long passes took, and for how long promises were kept."""
