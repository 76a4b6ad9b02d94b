#!/bin/sh
# Installs what the build needs and lacks, through apt where that is possible; else prints the one line to run.
set -eu
need=""
has() { [ -e "$1" ] || need="$need $2"; }
command -v gcc >/dev/null 2>&1 || need="$need gcc"
command -v g++ >/dev/null 2>&1 || need="$need g++"
command -v cmake >/dev/null 2>&1 || need="$need cmake"
command -v ninja >/dev/null 2>&1 || command -v make >/dev/null 2>&1 || need="$need make"
command -v python3 >/dev/null 2>&1 || need="$need python3"
has /usr/include/lmdb.h liblmdb-dev
has /usr/include/xxhash.h libxxhash-dev
has /usr/include/zstd.h libzstd-dev
has /usr/include/jansson.h libjansson-dev
has /usr/include/openssl/evp.h libssl-dev
has /usr/include/cmocka.h libcmocka-dev
[ -n "$need" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "rlkrec: installing$need" >&2
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq $need >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq $need >/dev/null; }
else
    echo "rlkrec: packages are missing. Run:" >&2
    echo "    sudo apt-get install$need" >&2
    exit 1
fi
