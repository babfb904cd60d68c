# SPDX-License-Identifier: Apache-2.0
"""Every option of vmqos, one module a section; :func:`vmqos.conf.loader.load` reads and checks them."""
