# SPDX-License-Identifier: Apache-2.0
"""How many ways and which classes each VM gets."""
