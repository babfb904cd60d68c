# SPDX-License-Identifier: Apache-2.0
"""The ``[telemetry]`` section: how often counters are read."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("telemetry", title="Counters")

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=2.0,
        min=0.0,
        max=3600.0,
        help="Seconds between two looks at all counters, for the page and for bandwidths. Each look interrupts one CPU "
        "of each cache for some microseconds a counter. 0 looks only when a client asks, and remembers nothing.",
    ),
    cfg.FloatOpt(
        "history",
        default=600.0,
        min=0.0,
        max=86400.0,
        help="How many seconds of each VM's readings are kept for the page. A VM takes 16 bytes for each look, 16 "
        "more where the agent may count hardware events, and 16 more where the processor's packages count.",
    ),
    cfg.IntOpt(
        "minutes",
        default=1440,
        min=0,
        max=1440,
        help="How many minutes of each VM's readings are kept beside them, each as its least, mean and greatest value. "
        "A day of a VM takes 60 kB of minutes_file at most: less where its readings change little. It takes 40 more "
        "where the agent may count hardware events, and 40 more where the processor's packages count.",
    ),
    cfg.StrOpt(
        "minutes_file",
        default="$agent.state_path/minutes",
        sample_default="/run/vmqos/minutes",
        help="The file that has these minutes, also while the agent is away. It is written every five minutes and at "
        "the agent's end. What is older than an hour or two is nowhere else. Empty: all are in the agent's memory, "
        "and end with it.",
    ),
    cfg.BoolOpt(
        "keep_open",
        default=True,
        help="Keep the counters' files open from look to look, which is three times cheaper. While they are open, "
        "umount finds resctrl busy, and umount -l completes with the next look.",
    ),
    cfg.FloatOpt(
        "counter_turn",
        default=10.0,
        min=0.0,
        max=3600.0,
        help="Seconds for which a VM has hardware counters for its memory traffic before another VM gets them, on "
        "machines that have fewer of them than VMs (AMD's assignable counters, ABMC). A turn takes 5 seconds and three "
        "looks at the counters at the least. While a VM has none, its last bandwidth is told with its age, and what it "
        "moves is not counted. 0: no turns; VMs that find no free counter are not counted. Without regular looks "
        "there are no turns, either.",
    ),
    cfg.BoolOpt(
        "hardware_events",
        default=True,
        help="Count what each VM's tasks execute where the kernel counts it: cycles, instructions, and references and "
        "misses of the last-level cache. A VM takes four files for each thread that it has when the counting begins, "
        "and a read for each such thread at each look. Other programs that count these events, such as perf, have to "
        "share the processor's counters.",
    ),
    cfg.FloatOpt(
        "neighbours_interval",
        default=30.0,
        min=0.0,
        max=3600.0,
        help="Seconds between two judgements of which VM slows which, so that there is an event when that begins and "
        "when it is over. A judgement of 200 VMs takes 0.04 seconds of a CPU, and more where many VMs have just begun "
        "to move more: 10 per cent of a CPU at most. 0 judges only when a client asks, and makes no events.",
    ),
]
