#!/bin/sh
# A Python that can import torch, for tests and the demo: prints its path on stdout, everything else on stderr.
# usage: venv.sh BUILD_DIR        exit 77: there is none and none can be made, with the reason
#
# Taken in this order: $RLK_TORCH_PYTHON; BUILD_DIR/venv-torch, made once and kept. The venv holds the torch wheel without
# the gigabytes of its GPU libraries: two small ones, and empty stand-ins for the rest (cuda_stubs.py).
# RLK_TORCH_VERSION (default 2.11.0), RLK_TORCH_WHEELS (a folder with wheels to look in first).
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && build=$(cd "$1" && pwd) || exit 77
version=${RLK_TORCH_VERSION:-2.11.0}
venv=$build/venv-torch
ready=$venv/ready-$version

say() { echo "venv-torch: $*" >&2; }
skip() {
    say "$*"
    rm -rf "$venv.new"
    exit 77
}
unset PYTHONPATH RLKREC_RECORDING RLKREC_LIBRARY

if [ -n "${RLK_TORCH_PYTHON:-}" ]; then
    "$RLK_TORCH_PYTHON" -c 'import torch' 2>/dev/null || skip "$RLK_TORCH_PYTHON cannot import torch"
    echo "$RLK_TORCH_PYTHON"
    exit 0
fi

exec 9>"$build/venv-torch.lock"
command -v flock >/dev/null 2>&1 && flock 9
if [ -f "$ready" ]; then
    echo "$venv/bin/python"
    exit 0
fi

free=$(df -Pk "$build" | awk 'NR==2 {print int($4 / 1024 / 1024)}')
[ "$free" -ge 4 ] || skip "4 GB of disk are needed, $free are free"
command -v gcc >/dev/null 2>&1 || skip "no gcc"
rm -rf "$venv" "$venv.new"
python3 -m venv "$venv" >&2 || skip "python3 -m venv failed (python3-venv is missing?)"
pip() {
    timeout 280 "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@" >>"$build/venv-torch.log" 2>&1 && return
    tail -3 "$build/venv-torch.log" >&2
    return 1
}
links=
[ -z "${RLK_TORCH_WHEELS:-}" ] || links="--find-links=$RLK_TORCH_WHEELS"
: >"$build/venv-torch.log"
say "installing torch $version without its GPU libraries (once)"
# shellcheck disable=SC2086
pip install $links --no-deps "torch==$version" || skip "torch $version cannot be installed for $(python3 -V)"
pip install filelock 'typing-extensions>=4.10' 'sympy>=1.13.3' 'networkx>=2.5.1' jinja2 'fsspec>=0.8.5' 'setuptools<82' numpy xxhash ||
    skip "what torch imports cannot be installed"
# The two libraries that are really called: versions as the wheel asks for them.
cuda=$("$venv/bin/python" -c 'import importlib.metadata as m, re
print(next((re.search(r"==([0-9]+\.[0-9]+)", r).group(1) for r in m.requires("torch") or [] if r.startswith("cuda-toolkit")), ""))')
if [ -n "$cuda" ]; then
    pip install --no-deps "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*" || skip "the CUDA runtime cannot be installed"
fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
python3 "$here/cuda_stubs.py" "$site" >>"$build/venv-torch.log" || skip "no stand-ins for the GPU libraries"
"$venv/bin/python" -c 'import torch; torch.zeros(2).sum()' >&2 || skip "torch $version does not import"
: >"$ready"
echo "$venv/bin/python"
