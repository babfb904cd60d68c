# SPDX-License-Identifier: Apache-2.0
"""``vmqos placement``: what servers hold of the hosts, looked at and put right."""
