#!/bin/sh
# The figures of docs/performance.md on this machine. Nothing fails here but the programs themselves.
# usage: bench.sh BUILD_DIR [EVENTS of the two recordings, default 10000000: about 1 GB of disk in TMPDIR for each]
set -eu
build=$(cd "$1" && pwd)
bench=$(cd "$(dirname "$0")" && pwd)/bench.sh
events=${2:-10000000}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rlk-bench.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
find_program() { find "$build/tests" -name "$1" -type f -perm -u+x | head -1; }

# measured COMMAND...: wall time and the largest memory of the command itself; best of three.
measured() {
    python3 - "$@" <<'EOF'
import os, subprocess, sys, time
best = None
for _ in range(3):
    start = time.perf_counter()
    p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    took = (time.perf_counter() - start, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))
    best = min(best or took, took)
print(f"    {best[0] * 1e3:.0f} ms, {best[1]:.0f} MB, exit {best[2]}")
EOF
}

echo "CPU digest against a plain loop of xxHash calls:"
"$(find_program bench.digest)" | sed 's/^/    /'
echo "writer on one core:"
"$(find_program bench_writer)" 4000000 | sed 's/^/    /'
echo "a tap, without and with a recorder:"
"$(find_program bench.tap)" "$build/lib/librlkrec.so" | sed 's/^/    /'
echo "rlkrec run -- true:"
measured "$build/bin/rlkrec" run -- true
echo "first-diff, two recordings of $events events, one late tensor differs:"
late=$((events * 9 / 10))
"$(find_program gen_recording)" a.rlk -n "$events" -m 100 >/dev/null
"$(find_program gen_recording)" b.rlk -n "$events" -m 100 -c "$late" >/dev/null
du -sh a.rlk | sed 's/^/    on disk /'
measured "$build/bin/rlkaudit" first-diff a.rlk b.rlk
echo "rlkrec info of one of them:"
measured "$build/bin/rlkrec" info a.rlk
echo "the reference workload: recording, replay, first-diff across layouts:"
python3 "$(dirname "$bench")/bench_replay.py" "$build/bin" | sed 's/^/    /'
