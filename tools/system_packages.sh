#!/bin/sh
# Install the Debian packages that tests and fault harnesses use, where that is possible.
# Never fails: what cannot be installed is named, and the tests that need it are skipped.
set -eu

# mkfs lives where an ordinary user's PATH does not look.
PATH=$PATH:/usr/sbin:/sbin

missing=
need() {  # command, packages...
    command -v "$1" >/dev/null 2>&1 && return
    shift
    missing="$missing $*"
}
need git git
need bwrap bubblewrap
need strace strace
need mkfs.xfs xfsprogs
need mkfs.ext4 e2fsprogs
need fusermount3 fuse3
need cc gcc libc6-dev
need chromium chromium fonts-dejavu-core

[ -z "$missing" ] && exit 0

give_up() {
    echo "system packages: missing$missing ($1); the tests that need them will be skipped and counted" >&2
    exit 0
}

command -v apt-get >/dev/null 2>&1 || give_up "no apt-get here: install them by hand"
[ "$(id -u)" = 0 ] || give_up "as root: apt-get install$missing"

echo "system packages: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt() {
    apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >/dev/null
}
apt update || echo "system packages: apt-get update failed; trying with the lists there are" >&2
# shellcheck disable=SC2086  # one word for each package
apt install -y --no-install-recommends $missing || give_up "apt-get could not install them"
