#!/bin/sh
# Makes prometheus and promtool available to the tests: from Debian, where that can be done.
# Never fails a build, except in CI, where tests that are skipped would go unseen.
set -eu

policy=/usr/sbin/policy-rc.d
lock=/run/lock/gputally-tools

main() {
    present && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { flock 9 && install_from_debian; } 9>"$lock" || :
    fi
    present && return
    [ -z "${CI:-}" ] || fail
    echo "prometheus and promtool are missing, so their tests will be skipped;" \
        "on Debian: apt-get install prometheus; elsewhere: https://prometheus.io/download"
}

present() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null
}

# A subshell, so that its traps end with it; chained, because whoever asks `||` turns `set -e` off.
install_from_debian() (
    present && exit # another build was first
    log=$(mktemp) || exit
    trap 'restore; rm -f "$log"' EXIT
    trap 'exit 1' HUP INT TERM
    { forbid_starting && install_package; } >"$log" 2>&1 || tail -n 3 "$log" >&2
)

# The package starts a server on port 9090 as soon as it is there, unless a policy says no.
forbid_starting() {
    if [ -e "$policy" ] && ! [ -e "$policy.gputally" ]; then
        mv "$policy" "$policy.gputally" || return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
}

install_package() {
    install_once || { apt update && install_once; } || return
    update-rc.d prometheus disable || : # nor when this computer starts
}

install_once() {
    apt install --yes --no-install-recommends prometheus
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get --quiet -o DPkg::Lock::Timeout=120 "$@" 9>&-
}

restore() {
    rm -f "$policy"
    if [ -e "$policy.gputally" ]; then
        mv "$policy.gputally" "$policy"
    fi
}

fail() {
    echo "tools/install.sh: CI is set, and prometheus and promtool could not be installed" >&2
    exit 1
}

main
