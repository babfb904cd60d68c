#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Process 1 of the guest: sets up what a system has at boot, runs the job, sends back what it left, powers off.
#     /run/lab/job   the job, a shell script; its working directory is /run/lab/tree
#     /run/lab/before-systemd   if it is there: a shell script, after which systemd becomes process 1; the job is a
#                               service of it then, for which this file is run again; it is started with the others
#     /run/out       what the job leaves here goes back ($VMQOS_GUEST_OUT)
# Ports to the outside (/dev/virtio-ports): stdout, stderr, events (JSON lines), and as tar archives out and bytecode (what
# Python compiled of the tree).
export PATH=/run/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=vt100
if [ "$1" != job ]; then
    mount -t proc proc /proc
    mkdir -p /dev/pts /dev/shm /dev/virtio-ports /run/out /run/lock /run/dbus /run/lab/tree
    mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
    mount -t tmpfs tmpfs /dev/shm
    mount -t tmpfs tmpfs /tmp
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # As systemd does: libvirt gives each VM a cgroup with these, and pins QEMU's threads there.
    echo +cpuset +cpu +io +memory +pids >/sys/fs/cgroup/cgroup.subtree_control
    chmod 1777 /tmp /dev/shm
    ln -sf /proc/self/fd /dev/fd
    for port in /sys/class/virtio-ports/*; do
        ln -sf "/dev/${port##*/}" "/dev/virtio-ports/$(cat "$port/name")"
    done
    hostname guest
    echo "127.0.0.1 localhost guest" >/etc/hosts
    ip link set lo up
    # Messages of level "warning" and above go to the console, all of them to dmesg.
    echo "5 4 1 7" >/proc/sys/kernel/printk
    modprobe -a msr cpuid
    echo on >/sys/module/msr/parameters/allow_writes
    {
        read -r up _
    } </proc/uptime
    echo "{\"event\": \"booted\", \"uptime\": $up}" >/dev/virtio-ports/events
fi

export VMQOS_GUEST_OUT=/run/out PYTHONUNBUFFERED=1
cd /run/lab/tree || exit
if [ "$1" != job ] && [ -e /run/lab/before-systemd ]; then
    sh /run/lab/before-systemd >/dev/virtio-ports/stdout 2>/dev/virtio-ports/stderr || busybox poweroff -n -f
    mkdir -p /run/systemd/system
    cat >/run/systemd/system/lab.service <<END
[Unit]
Description=The job of the lab
# Not of multi-user.target: a Python takes so long to start that the services can do so meanwhile.
After=basic.target

[Service]
ExecStart=/bin/sh /run/lab/init.sh job
END
    cat >/run/systemd/system/lab.target <<END
[Unit]
Requires=multi-user.target
Wants=lab.service
END
    exec /usr/lib/systemd/systemd --unit=lab.target --show-status=no
fi
if [ -e /run/lab/interactive ]; then
    setsid --ctty sh /run/lab/job </dev/ttyS0 >/dev/ttyS0 2>&1
else
    setsid --wait sh /run/lab/job </dev/null >/dev/virtio-ports/stdout 2>/dev/virtio-ports/stderr
fi
status=$?
dmesg >/run/out/dmesg
tar -cf /dev/virtio-ports/out -C /run/out .
cd /run/lab && find tree -name "*.pyc" -newer init.sh | tar -cf /dev/virtio-ports/bytecode -T -
echo "{\"event\": \"exit\", \"status\": $status}" >/dev/virtio-ports/events
# There is nothing to be synced (-n): the disk is thrown away.
busybox poweroff -n -f
