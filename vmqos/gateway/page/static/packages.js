// SPDX-License-Identifier: Apache-2.0
// What the processor's packages count of a VM, where they do. Pure.

/** Series of a VM, as the agent remembers them: watts, a ratio, and two shares of the VM's cycles. */
export const PACKAGES = ["core_watts", "uops_per_cycle", "llc_hit_stalls", "llc_miss_stalls"];

/** The values of PACKAGES by name, each a number or null, of a VM's counters; null where packages count nothing of it. */
export function packagesOf(reading) {
  const rates = reading?.package_rates ?? {};
  if (Object.keys(rates).length === 0) return null;
  const cycles = rates.unhalted_core_cycles ?? null;
  // A VM that did not run has spent no cycle on anything.
  const share = (event) => (cycles && (rates[event] ?? null) !== null ? rates[event] / cycles : null);
  return {
    core_watts: rates.core_energy ?? null,
    uops_per_cycle: share("uops_retired"),
    llc_hit_stalls: share("stalls_llc_hit"),
    llc_miss_stalls: share("stalls_llc_miss"),
  };
}
