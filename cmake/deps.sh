#!/bin/sh
# Installs what the build and its tests need and lack, through apt where that is possible; else prints the one line to run.
set -eu
need=""
command_or() { command -v "$1" >/dev/null 2>&1 || need="$need $2"; }
file_or() { [ -e "$1" ] || need="$need $2"; }
command_or gcc gcc
command_or g++ g++
command_or make make
command_or cmake cmake
command_or ar binutils
command_or python3 python3
file_or /usr/include/lmdb.h liblmdb-dev
file_or /usr/include/xxhash.h libxxhash-dev
file_or /usr/include/zstd.h libzstd-dev
file_or /usr/include/jansson.h libjansson-dev
file_or /usr/include/openssl/evp.h libssl-dev
file_or /usr/include/cmocka.h libcmocka-dev
# For the tests of the PyTorch adapter: a venv, and the headers of the interpreter.
if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import ensurepip' 2>/dev/null || need="$need python3-venv"
    header=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h
    [ -e "$header" ] || need="$need python3-dev"
else
    need="$need python3-venv python3-dev"
fi
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
