# SPDX-License-Identifier: Apache-2.0
"""What a processor package counts for a group: Intel's Application Energy Telemetry (AET), Linux 7.0 and later.

The names are the kernel's (``mon_event_all`` in fs/resctrl/monitor.c); which of them a processor has is in
``info/PERF_PKG_MON/mon_features``. Two habits differ from those of an L3's counters:

* A group that gets an RMID that another one had goes on from that one's counts: the kernel lets the bandwidth counters
  of an L3 alone begin anew (``mon_add_all_files`` in fs/resctrl/rdtgroup.c).
* A package that has heard nothing of an RMID yet says ``Unavailable`` (``intel_aet_read_event`` in
  arch/x86/kernel/cpu/resctrl/intel_aet.c); until then it has counted nothing for it.
"""

from __future__ import annotations

CORE_ENERGY = "core_energy"
"""Joules that the cores used: arithmetic, TLBs, L1 and L2; neither the L3 nor memory."""
ACTIVITY = "activity"
"""Farads: the work that was done, whatever the frequency."""
CYCLES = "unhalted_core_cycles"
"""Cycles for which a CPU ran."""
REFERENCE_CYCLES = "unhalted_ref_cycles"
"""Cycles of a clock that never changes its frequency, while a CPU ran."""
STALLS_LLC_HIT = "stalls_llc_hit"
"""Cycles stalled on loads that hit the last-level cache."""
STALLS_LLC_MISS = "stalls_llc_miss"
"""Cycles stalled on loads that missed it."""
UOPS_RETIRED = "uops_retired"
"""Micro-operations that were retired."""
C1_RESIDENCY = "c1_res"
C6_RESIDENCY = "c6_res"
"""Cycles in these idle states."""
