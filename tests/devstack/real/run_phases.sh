#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Run phases of the plugins with DevStack's own functions, as stack.sh, unstack.sh and clean.sh do.
#
#     run_phases.sh ROOT "stack install"...
#
# ROOT/devstack is DevStack's tree, with a local.conf. What DevStack keeps in fixed places of the machine goes below ROOT.

ROOT=$1
shift

TOP_DIR=$ROOT/devstack
# shellcheck disable=SC2034
{
    RC_DIR=$TOP_DIR
    FILES=$TOP_DIR/files
}
cd "$TOP_DIR" || exit

# shellcheck source=/dev/null
source "$TOP_DIR/functions"
extract_localrc_section "$TOP_DIR/local.conf" "$TOP_DIR/localrc" "$TOP_DIR/.localrc.auto"
for _file in lib/stack stackrc lib/apache lib/tls lib/infra lib/libraries lib/keystone lib/nova lib/placement; do
    # shellcheck source=/dev/null
    source "$TOP_DIR/$_file"
done

# shellcheck disable=SC2034
{
    SYSTEMD_DIR=$ROOT/systemd
    NOVA_CONF=$ROOT/etc/nova/nova.conf
    SSL_BUNDLE_FILE=$ROOT/data/ca-bundle.pem
    LOGDIR=$ROOT/logs
}

if [[ "$1" == stack* ]]; then
    set -o errexit
fi
load_plugin_settings
for _phase; do
    # shellcheck disable=SC2086
    run_phase $_phase
    if [[ "$_phase" == "stack post-config" ]]; then
        merge_config_group "$TOP_DIR/local.conf" post-config
    fi
done
