# SPDX-License-Identifier: Apache-2.0
"""A campaign of hostile input against a real agent, while the VMs of others must be served all the time.

:mod:`.inputs` says what an input is, ``families`` has all of them, :mod:`.stage` what they are tried on,
:mod:`.witness` what is looked at meanwhile, and :mod:`.campaign` how both come together.
"""
