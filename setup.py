# SPDX-License-Identifier: Apache-2.0
"""For the tools that still call it; everything is in setup.cfg, read by pbr."""

import setuptools

setuptools.setup(setup_requires=["pbr>=6.1.1"], pbr=True)
