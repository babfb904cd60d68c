# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# What tools/demo and tools/test share: to be sourced, with $root the top of the source tree.
# It installs what is missing, and does next to nothing where all is there.

started=$(date +%s)
venv=${root:?}/.venv

# A line for the user: seconds since the start, then the text.
say() {
    printf '[%3ds] %s\n' "$(($(date +%s) - started))" "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Run a command as root; $reason tells the user why.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n true 2>/dev/null || say "sudo may ask for your password: $reason"
        sudo -- "$@"
    else
        die "this needs root ($reason), and there is no sudo: run as root: $*"
    fi
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# Install Debian packages; the package lists are fetched only if those that are there do not do.
install_packages() {
    command -v apt-get >/dev/null || die "this is neither Debian nor Ubuntu. Install what corresponds to these Debian" \
        "packages, then run again with VMQOS_NO_PACKAGES=1 in the environment: $*"
    reason="to install system packages: $*"
    say "installing system packages: $*"
    log=$(mktemp)
    if ! apt_get install -y --no-install-recommends "$@" >"$log" 2>&1; then
        say "fetching the package lists first (apt-get update)"
        if ! { apt_get update && apt_get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
            cat "$log" >&2
            rm -f "$log"
            die "apt-get could not install: $*"
        fi
    fi
    rm -f "$log"
}

# Whether a Python is one of ours (3.11 to 3.13) and can make virtual environments.
python_fits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

find_python() {
    for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if python_fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# Make the virtual environment, and put bindep into it, which reads bindep.txt.
make_venv() {
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        if ! python=$(find_python); then
            [ -z "${VMQOS_NO_PACKAGES:-}" ] || die "no Python 3.11 to 3.13 with venv found"
            install_packages python3 python3-venv
            python=$(find_python) || die "vmqos needs Python 3.11, 3.12 or 3.13; found: $(python3 --version 2>&1)"
        fi
        say "making a virtual environment in .venv with $("$python" --version)"
        "$python" -m venv --clear "$venv"
    fi
    [ -x "$venv/bin/bindep" ] || pip_install_locked tools
}

pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || die "pip could not install: $*"
}

# Install what a file of tools/requirements names: these versions, and these files alone.
pip_install_locked() {
    name=$1
    shift
    pip_install --require-hashes --requirement "$root/tools/requirements/$name.txt" "$@"
}

# What pip is told of where packages come from, for uv, with which tox installs.
tell_uv_what_pip_knows() {
    settings=$("$venv/bin/python" -m pip --disable-pip-version-check config list)
    : "${UV_DEFAULT_INDEX:=$(setting index-url)}"
    : "${UV_INDEX:=$(setting extra-index-url)}"
    links=
    for place in $(setting find-links); do
        # Without a directory that is not there pip goes on, and uv does not.
        case $place in
        *://*) links=$links,$place ;;
        *) [ ! -d "$place" ] || links=$links,$place ;;
        esac
    done
    : "${UV_FIND_LINKS:=${links#,}}"
    : "${SSL_CERT_FILE:=$(setting cert)}"
    case $(setting no-index | tr '[:upper:]' '[:lower:]') in
    1 | y | yes | t | true | on)
        # No variable of uv's says so, but a file does, which stands for the one that uv would find.
        echo "no-index = true" >"$venv/uv.toml"
        : "${UV_CONFIG_FILE:=$venv/uv.toml}"
        ;;
    esac
    for name in UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_CONFIG_FILE SSL_CERT_FILE; do
        if eval "[ -n \"\${$name:-}\" ]"; then
            # shellcheck disable=SC2163
            export "$name"
        else
            unset "$name"
        fi
    done
}

# A setting of pip's, the environment's before that of a file, several values in a line; empty if there is none.
setting() {
    printf '%s\n' "$settings" | sed -n "s/^[^.]*\.$1='\(.*\)'\$/\1/p" | sed -n '1{s/\\n/ /g;s/^ *//;s/ *$//;p;}'
}

# Install what bindep.txt names in these profiles, "test" if there are none, and the machine lacks.
install_system_packages() {
    [ -z "${VMQOS_NO_PACKAGES:-}" ] || return 0
    # bindep prints the missing packages, one a line, and ends with 1 if there are any.
    [ $# -gt 0 ] || set -- test
    missing=$("$venv/bin/bindep" --brief --file "$root/bindep.txt" "$@" 2>/dev/null) || true
    if [ -n "$missing" ]; then
        # shellcheck disable=SC2086
        install_packages $missing
    fi
}
