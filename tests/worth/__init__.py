# SPDX-License-Identifier: Apache-2.0
"""What cache allocation is worth, measured in guests with a model of the caches (``contributor/worth.rst``)."""
