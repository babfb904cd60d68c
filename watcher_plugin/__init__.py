# SPDX-License-Identifier: Apache-2.0
"""A goal and a strategy for Watcher: part VMs from those that slow them.

Watcher has a strategy ``noisy_neighbor`` of its own. It compares what VMs hold of the cache, which tells of no harm,
and is on its way out of Watcher. This one takes the verdicts of the agents on the compute nodes, which the gateways
publish for Prometheus, and judges nothing itself. ``watcher-decision-engine`` finds both by their entry points
(``watcher_goals``, ``watcher_strategies``).

:mod:`watcher_plugin.pairs` says what Prometheus is asked, and :mod:`watcher_plugin.plan` what is done. Both are pure.
"""
