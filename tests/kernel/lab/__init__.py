# SPDX-License-Identifier: Apache-2.0
"""What runs outside the guest: its parts are built, it is booted, and what it says is collected."""
