# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The DevStack plugin of vmqos. In local.conf, after Ceilometer's plugin if that is wanted:
#
#     enable_plugin vmqos URL [REF]
#
# Every node gets what its other services call for:
#
#     n-api                     the validators of the extra specs; nova-api finds them by itself
#     n-sch                     CacheWaysFilter and CacheWaysWeigher
#     n-cpu with libvirt        vmqos-agent, and resctrl: the kernel's, or vmqos-simulator; vmqos-gateway, which tells
#                               Placement and has metrics and the page; a timer that withdraws the host from Placement
#                               when the agent has been away for ten minutes
#     ceilometer-acompute       the pollsters
#     ceilometer-anotification  their metrics in Gnocchi
#
# devstack/settings has what local.conf may choose.

# Save trace setting
_XTRACE_VMQOS=$(set +o | grep xtrace)
set +o xtrace

VMQOS_BIN_DIR=$(get_python_exec_prefix)

_VMQOS_FILTER=nova_plugin.scheduler.filters.CacheWaysFilter
_VMQOS_ALL_FILTERS=nova.scheduler.filters.all_filters
_VMQOS_WEIGHER=nova_plugin.scheduler.weights.CacheWaysWeigher
_VMQOS_ALL_WEIGHERS=nova.scheduler.weights.all_weighers

_VMQOS_MOUNT=sys-fs-resctrl.mount
_VMQOS_MOUNT_NAME="Devstack resctrl"

_VMQOS_AGENT=devstack@vmqos-agent.service
_VMQOS_WITHDRAW=devstack@vmqos-withdraw


# Before anything is installed
# ----------------------------

# Die early where it could not work.
function check_vmqos {
    if [[ "$USE_VENV" == "True" ]]; then
        die $LINENO "vmqos: with USE_VENV each service has a Python environment of its own, and the plugin installs" \
            "into one for all. Leave USE_VENV False; GLOBAL_VENV may be True or False."
    fi
    if [[ "$USER_UNITS" == "True" ]] && is_service_enabled vmqos-agent; then
        die $LINENO "vmqos: the agent needs root, which USER_UNITS=True can't give it."
    fi
    if [[ ",$DEVSTACK_PLUGINS," =~ ,vmqos,(.*,)?ceilometer, ]]; then
        die $LINENO "vmqos: in local.conf, enable_plugin ceilometer has to stand before enable_plugin vmqos: both" \
            "write into $CEILOMETER_CONF_DIR, and Ceilometer begins anew."
    fi
}


# Installing
# ----------

# Into the Python environment that Nova and Ceilometer run in, which load parts of it. The extras "nova" and "ceilometer"
# are left out: they would have pip judge the versions of these two, which come from git.
function install_vmqos {
    local extras=cli
    if is_service_enabled vmqos-agent; then
        extras=agent,simulator
    fi
    setup_develop "$VMQOS_DIR" "$extras"
}


# Configuring
# -----------

# Print a comma-separated list without an item.
function _vmqos_without {
    local item=$1
    local list=",${2// /},"
    list=${list//,$item,/,}
    list=${list#,}
    echo "${list%,}"
}

function _vmqos_enabled_filters {
    _vmqos_without "${_VMQOS_FILTER##*.}" "$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)"
}

function _vmqos_available_filters {
    local lines
    lines=$(iniget_multiline "$NOVA_CONF" filter_scheduler available_filters)
    _vmqos_without "$_VMQOS_FILTER" "${lines// /,}"
}

function _vmqos_weight_classes {
    _vmqos_without "$_VMQOS_WEIGHER" "$(iniget "$NOVA_CONF" filter_scheduler weight_classes)"
}

# The filter comes last, where there are fewer hosts left to count on.
function configure_vmqos_scheduler {
    local enabled available weighers
    enabled=$(_vmqos_enabled_filters)
    available=$(_vmqos_available_filters)
    available=${available:-$_VMQOS_ALL_FILTERS}
    weighers=$(_vmqos_weight_classes)
    iniset "$NOVA_CONF" filter_scheduler enabled_filters "${enabled:-$NOVA_FILTERS},${_VMQOS_FILTER##*.}"
    # shellcheck disable=SC2086
    iniset_multiline "$NOVA_CONF" filter_scheduler available_filters ${available//,/ } "$_VMQOS_FILTER"
    iniset "$NOVA_CONF" filter_scheduler weight_classes "${weighers:-$_VMQOS_ALL_WEIGHERS},$_VMQOS_WEIGHER"
}

# Set an option to what is left of it, or remove it if that is nothing or what Nova has by default.
function _vmqos_leave {
    local option=$1
    local default=$2
    shift 2
    inidelete "$NOVA_CONF" filter_scheduler "$option"
    if [[ -n "$*" && "$*" != "$default" ]]; then
        iniset_multiline "$NOVA_CONF" filter_scheduler "$option" "$@"
    fi
}

function unconfigure_vmqos_scheduler {
    local available
    available=$(_vmqos_available_filters)
    _vmqos_leave enabled_filters "" "$(_vmqos_enabled_filters)"
    # shellcheck disable=SC2086
    _vmqos_leave available_filters "$_VMQOS_ALL_FILTERS" ${available//,/ }
    _vmqos_leave weight_classes "$_VMQOS_ALL_WEIGHERS" "$(_vmqos_weight_classes)"
}

function configure_vmqos_agent {
    sudo install -d -o "$STACK_USER" -m 755 "$VMQOS_CONF_DIR"
    # Begun anew each time, and nobody else's to read: a password will stand in it.
    install -m 600 /dev/null "$VMQOS_CONF"
    iniset "$VMQOS_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    setup_logging "$VMQOS_CONF"
    iniset "$VMQOS_CONF" resctrl path "$VMQOS_RESCTRL_PATH"
    iniset "$VMQOS_CONF" resctrl sysfs_cpu_path "$VMQOS_SYSFS_CPU_PATH"
    # The agent closes resctrl to all but root and this group: the pollsters run as the user of all services.
    iniset "$VMQOS_CONF" resctrl readers_group "$(id -gn)"
    iniset "$VMQOS_CONF" libvirt uri "$VMQOS_LIBVIRT_URI"
    # So that "vmqos vm list" needs no sudo.
    iniset "$VMQOS_CONF" api socket_group "$(id -gn)"
    # The gateway needs no root: it runs as the user of all services, who owns this directory.
    iniset "$VMQOS_CONF" gateway user "$STACK_USER"
    iniset "$VMQOS_CONF" gateway socket "$VMQOS_GATEWAY_SOCKET"
    if is_service_enabled placement placement-client; then
        configure_keystoneauth "$VMQOS_CONF" vmqos placement
        iniset "$VMQOS_CONF" placement region_name "$REGION_NAME"
        if is_service_enabled tls-proxy; then
            iniset "$VMQOS_CONF" placement cafile "$SSL_BUNDLE_FILE"
        fi
    fi
}

function configure_vmqos_pollsters {
    local polling=$CEILOMETER_CONF_DIR/polling.yaml
    iniset "$CEILOMETER_CONF" vmqos resctrl_path "$VMQOS_RESCTRL_PATH"
    # Where all meters are polled, as Ceilometer's plugin has it, a source for these would have them polled twice.
    if ! grep -qE '^ *- *["'\'']?\*["'\'']?$|^ *- name: vmqos$' "$polling"; then
        sed -n '/^ *- name: vmqos$/,$p' "$VMQOS_DIR/etc/ceilometer/polling.yaml" >>"$polling"
    fi
}

# Without a copy of its own, Ceilometer takes the file that it is installed with.
function configure_vmqos_gnocchi {
    local resources=$CEILOMETER_CONF_DIR/gnocchi_resources.yaml
    if [[ ! -e "$resources" ]]; then
        cp "$CEILOMETER_DIR/ceilometer/publisher/data/gnocchi_resources.yaml" "$resources"
    fi
    "$VMQOS_BIN_DIR/vmqos" gnocchi-resources merge "$resources" --write
}

function configure_vmqos {
    if is_service_enabled keystone; then
        create_service_user vmqos
    fi
    if is_service_enabled n-sch; then
        configure_vmqos_scheduler
    fi
    if is_service_enabled vmqos-agent; then
        configure_vmqos_agent
        if is_service_enabled ceilometer-acompute; then
            configure_vmqos_pollsters
        fi
    fi
    if is_service_enabled ceilometer-anotification && [[ "$CEILOMETER_BACKENDS" =~ gnocchi ]]; then
        configure_vmqos_gnocchi
    fi
}


# Starting and stopping
# ---------------------

# resctrl has to be there before ceilometer-polling starts, which looks for it only then.
function start_vmqos_resctrl {
    if [[ "$VMQOS_SIMULATE" == "True" ]]; then
        run_process vmqos-simulator "$VMQOS_BIN_DIR/vmqos simulate $VMQOS_RESCTRL_PATH \
--profile $VMQOS_SIMULATOR_PROFILE --sysfs $VMQOS_SYSFS_CPU_PATH" "" root
        if is_service_enabled vmqos-simulator; then
            test_with_retry "mountpoint -q $VMQOS_RESCTRL_PATH" "vmqos-simulator did not start" 30
        fi
    elif ! mountpoint -q "$VMQOS_RESCTRL_PATH"; then
        if [[ ! -e "$SYSTEMD_DIR/$_VMQOS_MOUNT" ]]; then
            sudo install -m 644 "$VMQOS_DIR/etc/systemd/$_VMQOS_MOUNT" "$SYSTEMD_DIR/$_VMQOS_MOUNT"
            # Tells it from one that was there before.
            iniset -sudo "$SYSTEMD_DIR/$_VMQOS_MOUNT" Unit Description "$_VMQOS_MOUNT_NAME"
            $SYSTEMCTL daemon-reload
            $SYSTEMCTL enable "$_VMQOS_MOUNT"
        fi
        $SYSTEMCTL start "$_VMQOS_MOUNT"
    fi
}

# Ten minutes after the agent ended, Placement is told that this host has nothing to promise: with the units of a
# compute node, under DevStack's names.
function install_vmqos_withdraw {
    local kind
    for kind in service timer; do
        sudo install -m 644 "$VMQOS_DIR/etc/systemd/vmqos-withdraw.$kind" "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.$kind"
    done
    iniset -sudo "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.timer" Unit Before "$_VMQOS_AGENT"
    iniset -sudo "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.service" Unit ConditionPathExists "$VMQOS_BIN_DIR/vmqos"
    iniset -sudo "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.service" Service ExecCondition \
        "/bin/sh -c '! /bin/systemctl --quiet is-active $_VMQOS_AGENT'"
    iniset -sudo "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.service" Service ExecStart \
        "$VMQOS_BIN_DIR/vmqos --config-file $VMQOS_CONF placement withdraw"
    # The agent's unit is DevStack's own, which it writes at each start of the agent.
    sudo install -d -m 755 "$SYSTEMD_DIR/$_VMQOS_AGENT.d"
    echo "[Service]
ExecStartPost=-+/bin/systemctl --no-block stop $_VMQOS_WITHDRAW.timer $_VMQOS_WITHDRAW.service
ExecStopPost=-+/bin/systemctl --no-block start $_VMQOS_WITHDRAW.timer" \
        | sudo tee "$SYSTEMD_DIR/$_VMQOS_AGENT.d/withdraw.conf" >/dev/null
    $SYSTEMCTL daemon-reload
    # At boot it starts by itself, for an agent that never comes.
    $SYSTEMCTL enable "$_VMQOS_WITHDRAW.timer"
}

# After the agent, whose end starts the timer.
function remove_vmqos_withdraw {
    if [[ -e "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.timer" ]]; then
        $SYSTEMCTL stop "$_VMQOS_WITHDRAW.timer"
        $SYSTEMCTL stop "$_VMQOS_WITHDRAW.service"
        $SYSTEMCTL disable "$_VMQOS_WITHDRAW.timer"
        sudo rm -f "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.timer" "$SYSTEMD_DIR/$_VMQOS_WITHDRAW.service"
        sudo rm -rf "$SYSTEMD_DIR/$_VMQOS_AGENT.d"
        $SYSTEMCTL daemon-reload
    fi
}

function start_vmqos_agent {
    install_vmqos_withdraw
    run_process vmqos-agent "$VMQOS_BIN_DIR/vmqos-agent --config-file $VMQOS_CONF" "" root
    test_with_retry "$VMQOS_BIN_DIR/vmqos --config-file $VMQOS_CONF vm list >/dev/null 2>&1" \
        "vmqos-agent did not start" 60
}

# It tells Placement what the agent says that the host has, so it comes after the agent.
function start_vmqos_gateway {
    run_process vmqos-gateway "$VMQOS_BIN_DIR/vmqos-gateway --config-file $VMQOS_CONF"
    test_with_retry "$VMQOS_BIN_DIR/vmqos --socket $VMQOS_GATEWAY_SOCKET vm list >/dev/null 2>&1" \
        "vmqos-gateway did not start" 60
}

# Print the groups of the kernel's resctrl; when vmqos has taken its own back, they are others'.
function _vmqos_groups {
    sudo find /sys/fs/resctrl /sys/fs/resctrl/mon_groups -mindepth 1 -maxdepth 1 -type d \
        ! -name info ! -name mon_data ! -name mon_groups
}

# Unmounting removes every group, whoever made it.
function stop_vmqos_resctrl {
    local groups
    stop_process vmqos-simulator
    if grep -qs "^Description *= *$_VMQOS_MOUNT_NAME\$" "$SYSTEMD_DIR/$_VMQOS_MOUNT"; then
        groups=$(_vmqos_groups)
        if [[ -n "$groups" ]]; then
            warn $LINENO "/sys/fs/resctrl stays mounted, for others than vmqos have groups there: $groups"
            return
        fi
        $SYSTEMCTL stop "$_VMQOS_MOUNT"
        $SYSTEMCTL disable "$_VMQOS_MOUNT"
        sudo rm -f "$SYSTEMD_DIR/$_VMQOS_MOUNT"
        $SYSTEMCTL daemon-reload
    fi
}

# The agent before its groups: it would make them again.
function stop_vmqos {
    stop_process vmqos-gateway
    stop_process vmqos-agent
    if [[ -e "$VMQOS_CONF" ]] && mountpoint -q "$(iniget "$VMQOS_CONF" resctrl path)"; then
        sudo "$VMQOS_BIN_DIR/vmqos" --config-file "$VMQOS_CONF" reset --yes
    fi
    remove_vmqos_withdraw
    stop_vmqos_resctrl
}


# Cleaning
# --------

# clean.sh has called unstack.sh before, which stopped everything, and Ceilometer's plugin has removed its directory. The
# user vmqos and the host's provider in Placement are in databases that go too.
function cleanup_vmqos {
    local service directory
    for service in agent gateway simulator; do
        sudo rm -f "$SYSTEMD_DIR/devstack@vmqos-$service.service"
    done
    sudo rm -f "$VMQOS_CONF" "$VMQOS_GATEWAY_SOCKET"
    sudo rm -rf "$VMQOS_SIMULATOR_DIR/cpu"
    # What agent and gateway leave to the next ones.
    sudo rm -f /run/vmqos/minutes "${VMQOS_GATEWAY_SOCKET%.*}.counters"
    for directory in "$VMQOS_CONF_DIR" "$VMQOS_SIMULATOR_DIR" "${VMQOS_GATEWAY_SOCKET%/*}" /run/vmqos; do
        if [[ -d "$directory" ]]; then
            sudo rmdir --ignore-fail-on-non-empty "$directory"
        fi
    done
    $SYSTEMCTL daemon-reload
    if [[ -e "$NOVA_CONF" ]]; then
        unconfigure_vmqos_scheduler
    fi
    # Nova would go on loading the validators. The global environment is removed as a whole.
    if [[ "$GLOBAL_VENV" != "True" ]]; then
        pip_uninstall vmqos
    fi
}


# Dispatch
# --------

if [[ "$1" == "stack" && "$2" == "pre-install" ]]; then
    check_vmqos

elif [[ "$1" == "stack" && "$2" == "install" ]]; then
    echo_summary "Installing vmqos"
    install_vmqos

elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
    echo_summary "Configuring vmqos"
    configure_vmqos
    if is_service_enabled vmqos-agent; then
        start_vmqos_resctrl
    fi

elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
    if is_service_enabled vmqos-agent; then
        echo_summary "Starting vmqos-agent"
        start_vmqos_agent
        if is_service_enabled vmqos-gateway; then
            echo_summary "Starting vmqos-gateway"
            start_vmqos_gateway
        fi
    fi

elif [[ "$1" == "stack" && "$2" == "test-config" ]]; then
    # Tempest has no test that would have to know of vmqos.
    :

elif [[ "$1" == "unstack" ]]; then
    stop_vmqos

elif [[ "$1" == "clean" ]]; then
    cleanup_vmqos
fi

# Restore xtrace
$_XTRACE_VMQOS

# Tell emacs to use shell-script-mode
## Local variables:
## mode: shell-script
## End:
