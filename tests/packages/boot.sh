#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Boots the Debian in a directory, as a container boots: systemd is its first process, and has processes, mounts,
# control groups and an empty network of its own. It ends when this process is killed.
#
#     boot.sh ROOT NAME    NAME: of its control group
set -eu

root=$1
name=$2

case ${3:-outside} in
outside)
    # Of cgroup v2, which systemd insists on, wherever this machine has it mounted.
    mount --make-rprivate /
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir "/sys/fs/cgroup/$name"
    echo $$ >"/sys/fs/cgroup/$name/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup -- "$0" "$root" "$name" inside
    ;;
inside)
    hostname "$name"
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in full null random tty urandom zero; do
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t tmpfs tmpfs "$root/dev/shm"
    cd "$root"
    pivot_root . .
    umount -l .
    # As systemd has it on a host: what it mounts for a service's credentials has to come back to it.
    mount --make-rshared /
    # It can't load modules into this machine's kernel, and does not try.
    exec chroot . env -i container=vmqos-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set=-sys_module --inh-caps=-sys_module /sbin/init
    ;;
esac
