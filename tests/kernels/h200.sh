#!/bin/sh
# Every GPU test and bench of the kernels in one call, on a machine that has only a driver.
#   h200.sh pack BUILD DIR   collects the programs, libcmocka and, where given, the wheel of compute-sanitizer
#                            (RLK_SANITIZER_WHEEL; it is the package nvidia-cuda-sanitizer-api) into DIR
#   h200.sh run DIR [OUT]    runs them; a line a step; exit 0 when all passed. The log is OUT/kernels.log (default DIR)
set -u
[ $# -ge 2 ] || { sed -n 2,5p "$0"; exit 2; }
case $1 in
pack)
    build=$2 dir=$3
    mkdir -p "$dir" || exit 2
    for t in test_num test_reference test_decode test_sample test_matrix; do cp "$build/tests/kernels/$t" "$dir/" || exit 2; done
    cp "$build/tests/bench/bench_kernels" "$dir/" || exit 2
    cp -L "$(ldd "$build/tests/kernels/test_matrix" | awk '/libcmocka/ {print $3}')" "$dir/libcmocka.so.0" || exit 2
    strip "$dir"/test_* "$dir/bench_kernels" 2>/dev/null
    cp "$0" "$dir/h200.sh"
    [ -z "${RLK_SANITIZER_WHEEL:-}" ] || cp "$RLK_SANITIZER_WHEEL" "$dir/sanitizer.whl" || exit 2
    du -sh "$dir"
    ;;
run)
    dir=$(cd "$2" && pwd) out=${3:-$dir}
    logs=$(mktemp -d)
    mkdir -p "$out"
    : >"$out/kernels.log"
    began=$(date +%s)
    fail=0
    chmod +x "$dir"/test_* "$dir/bench_kernels"
    cublas=$(find / -name 'libcublas.so.1[23]' -not -path '/proc/*' 2>/dev/null | head -1)
    [ -n "$cublas" ] && export LD_LIBRARY_PATH="$(dirname "$cublas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "cuBLAS: ${cublas:-none}"
    step() { # NAME SECONDS COMMAND...; nothing starts after 560 s
        name=$1 limit=$2
        shift 2
        start=$(date +%s)
        left=$((560 - start + began))
        if [ $left -lt 5 ]; then echo "$name: not run, out of time"; fail=1; return; fi
        [ "$limit" -lt $left ] || limit=$left
        timeout "$limit" "$@" >"$logs/log" 2>&1
        rc=$?
        { echo "===== $name"; cat "$logs/log"; } >>"$out/kernels.log"
        echo "$name: rc $rc, $(($(date +%s) - start)) s"
        if [ $rc -ne 0 ]; then fail=1; grep -E 'ERROR|FAILED|differs|error|BELOW' "$logs/log" | head -12; tail -3 "$logs/log"; fi
    }
    step reference 60 "$dir/test_reference" cuda
    step decode 60 "$dir/test_decode" cuda
    step sample 60 "$dir/test_sample" cuda
    step small 60 "$dir/test_matrix" cuda small
    step bench 120 "$dir/bench_kernels" cuda --check
    sed -n '/===== bench/,/=====  *[^b]/p' "$out/kernels.log" | grep -v =====
    step matrix 240 "$dir/test_matrix" cuda
    step num 120 "$dir/test_num" cuda
    [ ! -f "$dir/sanitizer.whl" ] || python3 -m zipfile -e "$dir/sanitizer.whl" "$logs/sanitizer"
    memcheck=$(find "$logs/sanitizer" -name compute-sanitizer -type f 2>/dev/null | sort | tail -1)
    [ -n "$memcheck" ] || memcheck=$(command -v compute-sanitizer)
    if [ -n "$memcheck" ]; then
        [ ! -d "$logs/sanitizer" ] || chmod -R +x "$logs/sanitizer"
        step memcheck 120 "$memcheck" --tool memcheck --error-exitcode 1 "$dir/test_matrix" cuda small
        step racecheck 150 "$memcheck" --tool racecheck --error-exitcode 1 "$dir/test_matrix" cuda small
    else
        echo "memcheck, racecheck: skipped, no compute-sanitizer"
    fi
    step matrix_long 300 "$dir/test_matrix" cuda long
    exit $fail
    ;;
*) sed -n 2,5p "$0"; exit 2 ;;
esac
