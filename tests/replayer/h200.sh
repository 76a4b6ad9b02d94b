#!/bin/sh
# Recorded on the CPU and replayed on the GPU, and the other way round, in one call on a machine that has only a driver.
#   h200.sh pack BUILD DIR            collects the programs of a build with CUDA and the libraries they load into DIR
#   h200.sh run DIR [OUT] [SECONDS]   runs the stages, each with a limit, all within SECONDS (30); a line a stage: identical or
#                                     not. Exit 0 when every stage that ran was identical. Logs in OUT (DIR).
set -u
usage() { sed -n 2,5p "$0"; exit 2; }
[ $# -ge 2 ] || usage
case $1 in
pack)
    build=$2 dir=$3
    mkdir -p "$dir/bin" "$dir/lib" || exit 2
    for p in rlkrec rlktrain rlkreplay rlkaudit; do cp "$build/bin/$p" "$dir/bin/" || exit 2; done
    cp "$build/lib/librlkrec.so" "$dir/lib/" || exit 2
    # Libraries that a bare machine may lack; the C library and the driver's are its own.
    for l in $(ldd "$dir"/bin/* "$dir/lib/librlkrec.so" | awk '/=> \// {print $3}' | sort -u |
               grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libgcc_s|libstdc\+\+|libcuda)\.so'); do
        cp -L "$l" "$dir/lib/" || exit 2
    done
    strip "$dir"/bin/* 2>/dev/null
    cp "$0" "$dir/h200.sh"
    du -sh "$dir"
    ;;
run)
    dir=$(cd "$2" && pwd) out=${3:-$dir} total=${4:-30}
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    mkdir -p "$out"
    : >"$out/replay.log"
    began=$(date +%s)
    fail=0
    chmod +x "$dir"/bin/*
    export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TMPDIR="$logs"
    cublas=$(ls /usr/local/cuda*/lib64/libcublas.so.1[23] /usr/lib/x86_64-linux-gnu/libcublas.so.1[23] 2>/dev/null | head -1)
    [ -n "$cublas" ] && export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$(dirname "$cublas")"
    step() { # NAME SECONDS COMMAND...; nothing starts in the last 2 s
        name=$1 limit=$2
        shift 2
        start=$(date +%s)
        left=$((total - start + began))
        if [ $left -lt 2 ]; then echo "$name: not run, out of time"; return 1; fi
        [ "$limit" -lt $left ] || limit=$left
        timeout -k 2 "$limit" "$@" >"$logs/$name" 2>&1
        rc=$?
        { echo "===== $name: $*"; cat "$logs/$name"; } >>"$out/replay.log"
        [ $rc -ne 124 ] || rc="124 (ran into its limit)"
        echo "$name: rc $rc, $(($(date +%s) - start)) s"
        if [ "$rc" != 0 ]; then fail=1; tail -4 "$logs/$name"; return 1; fi
    }
    record() { # NAME DEVICE LAYOUT OPTIONS...
        name=$1 device=$2 layout=$3
        shift 3
        step "record-$name" 10 "$dir/bin/rlkrec" run -q --level op -o "$logs/$name" -- "$dir/bin/rlktrain" --no-times --device "$device" \
            --layout "$layout" "$@"
    }
    replay() { # NAME RECORDING DEVICE LAYOUT
        if step "replay-$1" 12 "$dir/bin/rlkreplay" "$logs/$2" --device "$3" --layout "$4"; then
            echo "  identical: $(grep -E '^(replay|self check)' "$logs/replay-$1" | tail -1)"
        else
            echo "  NOT identical: $(grep -E ' at ' "$logs/replay-$1" | tail -1)"
        fi
    }
    mini="--model qwen3-mini --steps 1 --new 12"
    record cpu cpu tp4cp2 $mini && replay cpu-on-gpu cpu cuda tp2cp2
    record gpu cuda tp2cp2 $mini && replay gpu-on-cpu gpu cpu tp4cp2
    if [ -f "$logs/record-cpu" ] && [ -f "$logs/record-gpu" ]; then # lines of JSON alone
        grep '^{' "$logs/record-cpu" >"$logs/a"
        grep '^{' "$logs/record-gpu" >"$logs/b"
        if [ -s "$logs/a" ] && cmp -s "$logs/a" "$logs/b"; then echo "rlktrain prints the same on both: identical"
        else echo "rlktrain prints other lines on the GPU: NOT identical"; fail=1; fi
    fi
    step first-diff 5 "$dir/bin/rlkaudit" first-diff "$logs/cpu" "$logs/gpu" && echo "  first-diff of CPU at tp4cp2 and GPU at tp2cp2: identical"
    tiny="--steps 1 --samples 4 --new 8 --micro-batches 1"
    record tiny cpu tp2cp1 $tiny && replay tiny-on-gpu tiny cuda tp1cp2
    exit $fail
    ;;
*) usage ;;
esac
