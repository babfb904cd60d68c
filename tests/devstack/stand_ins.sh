# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What devstack/plugin.sh calls, standing in for DevStack and for the machine: to be sourced, with $ROOT a directory.
#
# Each call is a line of $ROOT/calls, its words separated by tabs. Options of INI files are files below $ROOT/ini, so
# that they can be read back. What is mounted is a line of $ROOT/mounts.

function record {
    local IFS=$'\t'
    printf '%s\n' "$*" >>"$ROOT/calls"
}

for _name in setup_develop pip_uninstall create_service_user setup_logging configure_keystoneauth echo_summary warn \
    define_plugin; do
    eval "function $_name { record $_name \"\$@\"; }"
done

function die {
    shift
    record die "$*"
    exit 1
}

function get_python_exec_prefix {
    echo "$ROOT/bin"
}

function trueorfalse {
    case "${!2:-}" in
        True | False) echo "${!2}" ;;
        *) echo "$1" ;;
    esac
}

# Services
# --------

function is_service_enabled {
    local service
    for service in "$@"; do
        case $service in
            keystone) service=key ;;
            placement) service=placement-api ;;
        esac
        if [[ ",$ENABLED_SERVICES," == *",$service,"* ]]; then
            return 0
        fi
    done
    return 1
}

function enable_service {
    local service
    for service in "$@"; do
        if ! is_service_enabled "$service" && [[ ",$DISABLED_SERVICES," != *",$service,"* ]]; then
            ENABLED_SERVICES+=",$service"
        fi
    done
}

function run_process {
    record run_process "$@"
    if [[ "$1" == "vmqos-simulator" ]] && is_service_enabled "$1"; then
        echo "$VMQOS_RESCTRL_PATH" >"$ROOT/mounts"
    fi
}

function stop_process {
    record stop_process "$@"
    if [[ "$1" == "vmqos-simulator" ]] && grep -qs vmqos-sim "$ROOT/mounts"; then
        : >"$ROOT/mounts"
    fi
}

function test_with_retry {
    record test_with_retry "$@"
}

function systemctl {
    record systemctl "$@"
    case "$*" in
        "start sys-fs-resctrl.mount") echo /sys/fs/resctrl >"$ROOT/mounts" ;;
        "stop sys-fs-resctrl.mount") : >"$ROOT/mounts" ;;
    esac
}

# INI files
# ---------

function _option {
    echo "$ROOT/ini/${1##*/}/$2/$3"
}

function iniset {
    record iniset "$@"
    if [[ "$1" == "-sudo" ]]; then
        # What is not there would stay away.
        command grep -q "^$4=" "$2" || die 0 "iniset: $2 has no $4"
        sed -i "s|^$4=.*|$4=$5|" "$2"
        return
    fi
    mkdir -p "$ROOT/ini/${1##*/}/$2"
    echo "$4" >"$(_option "$@")"
}

function iniset_multiline {
    local file
    record iniset_multiline "$@"
    file=$(_option "$@")
    mkdir -p "${file%/*}"
    shift 3
    printf '%s\n' "$@" >"$file"
}

function iniget {
    cat "$(_option "$@")" 2>/dev/null || true
}

function iniget_multiline {
    iniget "$@" | tr '\n' ' ' | sed 's/ $//'
}

function inidelete {
    record inidelete "$@"
    rm -f "$(_option "$@")"
}

# The machine
# -----------

function grep {
    case "$*" in
        *" /proc/filesystems" | *" /proc/cpuinfo") [[ "$RDT" == "True" ]] ;;
        *) command grep "$@" ;;
    esac
}

function mountpoint {
    command grep -qsxF "$2" "$ROOT/mounts"
}

# Only what stays within $ROOT is done.
function sudo {
    record sudo "$@"
    case "$1" in
        find) printf '%s' "$GROUPS_LEFT" ;;
        install | rm | rmdir | tee) [[ "${!#}" != "$ROOT"/* ]] || "$@" ;;
    esac
}
