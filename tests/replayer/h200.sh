#!/bin/sh
# The reference workload on a GPU, in one call on a machine that has only a driver and Python: captured decode, both directions
# between CPU and GPU, the cross-layout report with its graph rows, faults planted on the GPU, and what a step takes.
#   h200.sh pack BUILD DIR            collects the programs of a build with CUDA and the libraries they load into DIR
#   h200.sh run DIR [OUT] [SECONDS]   runs the stages, each with a limit, all within SECONDS (200); a line a stage. Exit 0 when
#                                     every stage that ran went well. Logs, report.json and summary.txt in OUT (DIR).
set -u
usage() { sed -n 2,6p "$0"; exit 2; }
[ $# -ge 2 ] || usage
case $1 in
pack)
    build=$2 dir=$3 here=$(dirname "$0")
    mkdir -p "$dir/bin" "$dir/lib" || exit 2
    for p in bin/rlkrec bin/rlktrain bin/rlkreplay bin/rlkaudit tests/kernels/test_rows; do cp "$build/$p" "$dir/bin/" || exit 2; done
    cp "$build/lib/librlkrec.so" "$dir/lib/" || exit 2
    # Libraries that a bare machine may lack; the C library and the driver's are its own.
    for l in $(ldd "$dir"/bin/* "$dir/lib/librlkrec.so" | awk '/=> \// {print $3}' | sort -u |
               grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libgcc_s|libstdc\+\+|libcuda)\.so'); do
        cp -L "$l" "$dir/lib/" || exit 2
    done
    strip "$dir"/bin/* 2>/dev/null
    cp "$0" "$dir/h200.sh"
    cp "$here/test_record.py" "$here/recorded.py" "$here/step_parts.py" "$dir/"
    du -sh "$dir"
    ;;
run)
    dir=$(cd "$2" && pwd) out=${3:-$dir} total=${4:-200} bin=$dir/bin
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    mkdir -p "$out"
    : >"$out/replay.log"
    : >"$out/summary.txt"
    began=$(date +%s)
    fail=0
    chmod +x "$bin"/*
    export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TMPDIR="$logs"
    # The provider's rows are cuBLAS's: beside a toolkit, in the system's libraries, or in a Python package.
    for at in /usr/local/cuda*/lib64 /usr/lib/x86_64-linux-gnu \
        "$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)/cu13/lib"; do
        ls "$at"/libcublas.so.1[23] >/dev/null 2>&1 && export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$at"
    done
    say() { echo "$@" | tee -a "$out/summary.txt"; }
    step() { # NAME SECONDS COMMAND...; nothing starts in the last 2 s
        name=$1 limit=$2
        shift 2
        start=$(date +%s%N)
        left=$((total + began - start / 1000000000))
        if [ $left -lt 2 ]; then say "$name: not run, out of time"; return 1; fi
        [ "$limit" -lt $left ] || limit=$left
        timeout -k 2 "$limit" "$@" >"$logs/$name.out" 2>"$logs/$name.err"
        rc=$?
        { echo "===== $name: $*"; cat "$logs/$name.out" "$logs/$name.err"; } >>"$out/replay.log"
        [ $rc -ne 124 ] || rc="124 (ran into its limit)"
        say "$name: rc $rc, $((($(date +%s%N) - start) / 1000000)) ms"
        if [ "$rc" != 0 ]; then fail=1; tail -4 "$logs/$name.err"; return 1; fi
    }
    record() { # NAME OPTIONS...
        name=$1
        shift
        step "record-$name" 25 "$bin/rlkrec" run -q --level op -o "$logs/$name" -- "$bin/rlktrain" "$@"
    }
    same() { # WHAT, A, B: what two stages printed
        if [ -s "$logs/$2.out" ] && cmp -s "$logs/$2.out" "$logs/$3.out"; then say "  identical: $1"
        else say "  NOT identical: $1"; fail=1; fi
    }
    replay() { # NAME RECORDING DEVICE LAYOUT
        step "replay-$1" 30 "$bin/rlkreplay" "$logs/$2" --device "$3" --layout "$4"
        say "  $(tail -1 "$logs/replay-$1.out")"
    }
    step rows 20 "$bin/test_rows" cuda
    mini="--model qwen3-mini --no-times --steps 2 --new 16 --samples 6 --group 2"
    # shellcheck disable=SC2086
    {
        record cpu --layout tp4cp2 $mini
        record gpu --device cuda --layout tp2cp2 $mini
        step eager 15 "$bin/rlktrain" --device cuda --layout tp2cp2 --decode-graphs off $mini
    }
    same "CPU and GPU" record-cpu record-gpu
    same "decode by graphs and without" record-gpu eager
    replay cpu-on-gpu cpu cuda tp2cp2
    replay gpu-on-cpu gpu cpu tp4cp2
    step tiny 20 "$bin/rlktrain" --no-times
    record a --device cuda --layout tp4cp2 --no-times
    record b --device cuda --layout tp2cp4 --no-times
    same "qwen3-tiny, CPU and GPU at tp4cp2" tiny record-a
    same "qwen3-tiny, GPU at tp4cp2 and tp2cp4" record-a record-b
    step first-diff 5 "$bin/rlkaudit" first-diff "$logs/a" "$logs/b" && say "  $(head -1 "$logs/first-diff.out")"
    step report 5 "$bin/rlkaudit" report "$logs/a" "$logs/b" --json "$out/report.json" && say "$(grep cudagraph "$logs/report.out")"
    step faults 60 python3 "$dir/test_record.py" "$bin" cuda rank-order ring-attention recompute-provider mode-off dx-shard zigzag-map
    say "$(cat "$logs/faults.out")"
    for layout in tp1cp1 tp4cp2; do
        step "tiny-$layout" 15 "$bin/rlktrain" --device cuda --layout $layout --steps 6
        step "tiny-$layout-recorded" 20 "$bin/rlkrec" run -q --level op -o "$logs/tiny-$layout" -- "$bin/rlktrain" --device cuda \
            --layout $layout --steps 6
    done
    big="--device cuda --threads 0 --model qwen3-0.6b --steps 3"
    # shellcheck disable=SC2086
    {
        step big-tp1cp1 40 "$bin/rlktrain" $big
        step big-tp1cp1-eager 40 "$bin/rlktrain" $big --decode-graphs off
        step big-tp1cp1-recorded 60 "$bin/rlkrec" run -q --level op -o "$logs/big" -- "$bin/rlktrain" $big
        step big-tp2cp4 60 "$bin/rlktrain" $big --layout tp2cp4
    }
    python3 "$dir/step_parts.py" "$logs"/tiny-*.out "$logs"/big-*.out | tee -a "$out/summary.txt"
    exit $fail
    ;;
*) usage ;;
esac
