#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# The first program in the guest: finds the disks by their serial numbers, and goes on in the real root with the job.
#     root     the Debian system; what is written to it is forgotten
#     modules  the kernel's modules
#     job      a tar archive: the job, and this lab's init.sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /mnt
$b mount -t devtmpfs dev /dev
$b mount -t sysfs sys /sys
$b insmod /virtio_blk.ko

disk() {
    n=0
    while [ $n -lt 100 ]; do
        for s in /sys/block/vd*/serial; do
            [ -e "$s" ] && [ "$($b cat "$s")" = "$1" ] && s=${s%/serial} && echo "/dev/${s##*/}" && return
        done
        $b usleep 50000
        n=$((n + 1))
    done
    echo "lab: no disk '$1'" >/dev/ttyS0
    $b poweroff -f
}

$b mount -t ext4 -o noatime "$(disk root)" /mnt
$b mkdir -p /mnt/usr/lib/modules
$b mount -t ext4 -o ro "$(disk modules)" /mnt/usr/lib/modules
$b mount -t tmpfs -o mode=755 run /mnt/run
$b mkdir -p /mnt/run/lab
$b tar -xf "$(disk job)" -C /mnt/run/lab
$b mount -o move /dev /mnt/dev
$b mount -o move /sys /mnt/sys
exec $b switch_root /mnt /bin/sh /run/lab/init.sh
