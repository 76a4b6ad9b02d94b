#!/bin/sh
# Every GPU test and bench of the kernels in one call, on a machine that has only a driver.
#   h200.sh pack BUILD DIR   collects the programs, libcmocka and, where given, the sanitizer (RLK_SANITIZER_DIR) into DIR
#   h200.sh run DIR [OUT]    runs them; a line a step; exit 0 when all passed. Logs to OUT (default DIR/log)
set -u
[ $# -ge 2 ] || { sed -n 2,4p "$0"; exit 2; }
case $1 in
pack)
    build=$2 dir=$3
    mkdir -p "$dir" || exit 2
    for t in test_num test_reference test_decode test_sample test_matrix; do cp "$build/tests/kernels/$t" "$dir/" || exit 2; done
    cp "$build/tests/bench/bench_kernels" "$dir/" || exit 2
    cp -L "$(ldd "$build/tests/kernels/test_matrix" | awk '/libcmocka/ {print $3}')" "$dir/libcmocka.so.0" || exit 2
    strip "$dir"/test_* "$dir/bench_kernels" 2>/dev/null
    cp "$0" "$dir/h200.sh"
    if [ -n "${RLK_SANITIZER_DIR:-}" ]; then mkdir -p "$dir/sanitizer" && cp -r "$RLK_SANITIZER_DIR/." "$dir/sanitizer/"; fi
    du -sh "$dir"
    ;;
run)
    dir=$(cd "$2" && pwd) out=${3:-$dir/log}
    mkdir -p "$out"
    fail=0
    chmod +x "$dir"/test_* "$dir/bench_kernels"
    cublas=$(find / -name 'libcublas.so.1[23]' -not -path '/proc/*' 2>/dev/null | head -1)
    [ -n "$cublas" ] && export LD_LIBRARY_PATH="$(dirname "$cublas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "cuBLAS: ${cublas:-none}"
    step() { # NAME SECONDS COMMAND...
        name=$1 limit=$2
        shift 2
        start=$(date +%s)
        timeout "$limit" "$@" >"$out/$name.log" 2>&1
        rc=$?
        echo "$name: rc $rc, $(($(date +%s) - start)) s"
        if [ $rc -ne 0 ]; then fail=1; grep -E 'ERROR|FAILED|differs|error|rank' "$out/$name.log" | head -12; tail -3 "$out/$name.log"; fi
    }
    step matrix 150 "$dir/test_matrix" cuda
    step reference 60 "$dir/test_reference" cuda
    step decode 60 "$dir/test_decode" cuda
    step sample 60 "$dir/test_sample" cuda
    step bench 120 "$dir/bench_kernels" cuda --check
    cat "$out/bench.log"
    step num 120 "$dir/test_num" cuda
    memcheck=$(find "$dir/sanitizer" -name compute-sanitizer -type f 2>/dev/null | head -1)
    [ -n "$memcheck" ] || memcheck=$(command -v compute-sanitizer)
    if [ -n "$memcheck" ]; then
        chmod -R +x "$(dirname "$memcheck")"
        step memcheck 120 "$memcheck" --tool memcheck --error-exitcode 1 "$dir/test_matrix" cuda small
        step racecheck 150 "$memcheck" --tool racecheck --error-exitcode 1 "$dir/test_matrix" cuda small
    else
        echo "memcheck, racecheck: skipped, no compute-sanitizer"
    fi
    step matrix_long 200 "$dir/test_matrix" cuda long
    exit $fail
    ;;
*) sed -n 2,4p "$0"; exit 2 ;;
esac
