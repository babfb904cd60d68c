# SPDX-License-Identifier: Apache-2.0
"""What runs in the guest: its first process, and the plugin of pytest that sends the reports out."""
