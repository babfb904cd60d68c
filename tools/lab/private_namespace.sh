#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A place where a libvirt daemon sees its own directories instead of the host's, and its own part of the cgroups.
#
#     private_namespace.sh hold STATE                             make the place; lasts until this process is ended
#     private_namespace.sh run STATE HOLDER COMMAND [ARGUMENT...] run a command there; HOLDER is the first one's PID
#
# STATE/{etc,run,lib,log,cache,dbus} are laid over libvirt's and D-Bus's directories in a mount namespace; the cgroup
# namespace begins at the cgroup named like STATE's last part; the network namespace is empty. D-Bus is hidden because
# libvirt would ask the host's systemd-machined for a cgroup there. STATE/hostname, if it is there, says what the place
# is called. STATE/ready says that it is made.
set -eu

directories='
etc    /etc/libvirt
run    /run/libvirt
lib    /var/lib/libvirt
log    /var/log/libvirt
cache  /var/cache/libvirt
dbus   /run/dbus
'

# Written where the host lacks the accounts that libvirt insists on (they come with libvirt-daemon-system,
# which would start the host's own daemons).
accounts='passwd group'

cgroup_mounts() {
    awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts
}

# Make a directory of the host's one of this place: it becomes a tmpfs that holds the directory's entries. What the host
# adds and replaces there later is not seen here.
take_over() {
    ! awk -v path="$1" '$1 == "vmqos-lab" && $2 == path { found = 1 } END { exit !found }' /proc/self/mounts || return 0
    original=$(mktemp -d "$state/original.XXXXXX")
    mount --rbind "$1" "$original"
    mount -t tmpfs -o mode=0755 vmqos-lab "$1"
    find "$original" -mindepth 1 -maxdepth 1 | while read -r entry; do
        name=$1/${entry##*/}
        if [ -L "$entry" ]; then
            cp -P "$entry" "$name"
        else
            # mount(8) itself makes /run/mount.
            if [ -d "$entry" ]; then mkdir -p "$name"; else : >>"$name"; fi
            mount --rbind "$entry" "$name"
        fi
    done
}

# An empty directory where the host has none, without leaving one there.
provide() {
    [ ! -d "$1" ] || return 0
    ( provide "$(dirname "$1")" )
    take_over "$(dirname "$1")"
    mkdir "$1"
}

enter_new_cgroups() {
    for mount in $(cgroup_mounts); do
        mkdir "$mount/$group"
        if [ -e "$mount/$group/cgroup.clone_children" ] && [ -e "$mount/cpuset.cpus" ]; then
            # A new cpuset of version 1 has no CPU and takes no process.
            cat "$mount/cpuset.cpus" >"$mount/$group/cpuset.cpus"
            cat "$mount/cpuset.mems" >"$mount/$group/cpuset.mems"
        fi
        echo $$ >"$mount/$group/cgroup.procs"
    done
}

# A package that adds a user renames another file over the host's. The kernel then drops what any namespace has mounted
# over that file. So these files lie in a directory of this place's own, and nothing is mounted over the host's.
lay_accounts() {
    for file in $accounts; do
        [ -e "$state/$file" ] || continue
        take_over /etc
        umount "/etc/$file"
        cp "$state/$file" "/etc/$file"
    done
}

lay_directories() {
    echo "$directories" | while read -r own theirs; do
        [ -n "$own" ] || continue
        provide "$theirs"
        mount --bind "$state/$own" "$theirs"
    done
}

lay_cgroups() {
    for mount in $(cgroup_mounts); do
        mount --bind "$mount/$group" "$mount"
        # Version 2 hands controllers on only from a cgroup that has no process of its own.
        if [ -e "$mount/cgroup.subtree_control" ]; then
            mkdir "$mount/daemon"
            echo $$ >"$mount/daemon/cgroup.procs"
        fi
    done
}

# Another workspace's simulator that stays mounted here would outlive its end.
drop_simulators() {
    awk '$3 == "fuse.resctrl" { print $2 }' /proc/self/mounts | while read -r mount; do
        umount --lazy "$mount" || true
    done
}

verb=$1
state=$2
group=$(basename "$state")
shift 2

case $verb in
hold)
    enter_new_cgroups
    # slave: what the host mounts and unmounts, such as resctrl, libvirt sees come and go (where / is shared).
    exec unshare --mount --net --cgroup --uts --propagation slave -- "$0" hold-inside "$state"
    ;;
hold-inside)
    [ ! -e "$state/hostname" ] || cat "$state/hostname" >/proc/sys/kernel/hostname
    drop_simulators
    lay_accounts
    lay_directories
    lay_cgroups
    : >"$state/ready"
    exec sleep infinity
    ;;
run)
    holder=$1
    shift
    for mount in $(cgroup_mounts); do
        if [ -d "$mount/$group/daemon" ]; then
            echo $$ >"$mount/$group/daemon/cgroup.procs"
        else
            echo $$ >"$mount/$group/cgroup.procs"
        fi
    done
    # --root: entering a mount namespace leaves a chroot.
    exec nsenter --target "$holder" --mount --net --cgroup --uts --root -- "$@"
    ;;
esac
