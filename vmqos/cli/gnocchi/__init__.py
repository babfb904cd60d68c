# SPDX-License-Identifier: Apache-2.0
"""Having Gnocchi keep the meters."""
