#!/bin/sh
# The GPU tests and benches of the kernels in one call, on a machine that has only a driver.
#   h200.sh pack BUILD DIR             collects the programs, libcmocka and, where given, the wheel of compute-sanitizer
#                                      (RLK_SANITIZER_WHEEL; it is the package nvidia-cuda-sanitizer-api) into DIR
#   h200.sh run DIR [OUT] [SECONDS]    runs them, the most telling first, each with a limit of its own and all within SECONDS
#                                      (560); a line a step and a table last; exit 0 when all that ran passed. Logs in OUT (DIR)
set -u
usage() { sed -n 2,7p "$0"; exit 2; }
[ $# -ge 2 ] || usage
case $1 in
pack)
    build=$2 dir=$3
    mkdir -p "$dir" || exit 2
    for t in test_rows test_num test_reference test_provider test_decode test_sample test_matrix; do cp "$build/tests/kernels/$t" "$dir/" || exit 2; done
    cp "$build/tests/bench/bench_kernels" "$dir/" || exit 2
    cp -L "$(ldd "$build/tests/kernels/test_matrix" | awk '/libcmocka/ {print $3}')" "$dir/libcmocka.so.0" || exit 2
    strip "$dir"/test_* "$dir/bench_kernels" 2>/dev/null
    cp "$0" "$dir/h200.sh"
    (cd "$dir" && tar cJf programs.txz test_* bench_kernels libcmocka.so.0 && rm -f test_* bench_kernels libcmocka.so.0) || exit 2
    [ -z "${RLK_SANITIZER_WHEEL:-}" ] || cp "$RLK_SANITIZER_WHEEL" "$dir/sanitizer.whl" || exit 2
    du -sh "$dir"
    ;;
run)
    packed=$(cd "$2" && pwd) out=${3:-$2} total=${4:-560}
    logs=$(mktemp -d)
    dir=$logs/programs
    mkdir -p "$dir" && { tar xJf "$packed/programs.txz" -C "$dir" 2>/dev/null || python3 -m tarfile -e "$packed/programs.txz" "$dir"; } || exit 2
    mkdir -p "$out"
    : >"$out/kernels.log"
    began=$(date +%s)
    fail=0
    chmod +x "$dir"/test_* "$dir/bench_kernels"
    cublas=$(ls /usr/local/cuda*/lib64/libcublas.so.1[23] /usr/lib/x86_64-linux-gnu/libcublas.so.1[23] 2>/dev/null | head -1)
    [ -n "$cublas" ] || cublas=$(timeout 10 find /opt /usr -name 'libcublas.so.1[23]' 2>/dev/null | head -1)
    [ -n "$cublas" ] && export LD_LIBRARY_PATH="$(dirname "$cublas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "cuBLAS: ${cublas:-none}"
    step() { # NAME SECONDS COMMAND...; nothing starts in the last 4 s
        name=$1 limit=$2
        shift 2
        start=$(date +%s)
        left=$((total - start + began))
        : >"$logs/$name"
        if [ $left -lt 4 ]; then echo "$name: not run, out of time"; return; fi
        [ "$limit" -lt $left ] || limit=$left
        timeout -k 2 "$limit" "$@" >"$logs/$name" 2>&1
        rc=$?
        { echo "===== $name"; cat "$logs/$name"; } >>"$out/kernels.log"
        [ $rc -ne 124 ] || rc="124 (ran into its limit)"
        echo "$name: rc $rc, $(($(date +%s) - start)) s"
        if [ "$rc" != 0 ]; then fail=1; grep -E 'ERROR|FAILED|differs|error|BELOW|hazard' "$logs/$name" | head -12; tail -3 "$logs/$name"; fi
    }
    step rows 30 "$dir/test_rows" cuda
    step small 30 "$dir/test_matrix" cuda small
    step memory 40 "$dir/bench_kernels" cuda memory --check
    step provider 20 "$dir/test_provider" cuda
    step decode 20 "$dir/test_decode" cuda
    step sample 20 "$dir/test_sample" cuda
    [ ! -f "$packed/sanitizer.whl" ] || python3 -m zipfile -e "$packed/sanitizer.whl" "$logs/sanitizer"
    sanitizer=$(find "$logs/sanitizer" -name compute-sanitizer -type f 2>/dev/null | sort | tail -1)
    [ -z "$sanitizer" ] || chmod -R +x "$logs/sanitizer"
    [ -n "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
    if [ -n "$sanitizer" ]; then
        step race_rows 25 "$sanitizer" --tool racecheck --error-exitcode 1 "$dir/test_rows" cuda tiny
        step race_matrix 40 "$sanitizer" --tool racecheck --error-exitcode 1 "$dir/test_matrix" cuda tiny
        step mem_rows 25 "$sanitizer" --tool memcheck --error-exitcode 1 "$dir/test_rows" cuda tiny
        step mem_matrix 40 "$sanitizer" --tool memcheck --error-exitcode 1 "$dir/test_matrix" cuda tiny
    else
        echo "racecheck, memcheck: skipped, no compute-sanitizer"
    fi
    step reference 30 "$dir/test_reference" cuda
    step matrix 120 "$dir/test_matrix" cuda
    step num 60 "$dir/test_num" cuda
    step bench 120 "$dir/bench_kernels" cuda --check
    [ -z "$sanitizer" ] || step memcheck 120 "$sanitizer" --tool memcheck --error-exitcode 1 "$dir/test_matrix" cuda small
    step matrix_long 300 "$dir/test_matrix" cuda long
    # Share of a copy's bandwidth, beside what the kernels before had (30 November 2026, timed by the clock, 4 calls a round).
    echo "operator                 ms   share of copy   before"
    awk '/% of copy/ { name = $1 " " $2; if ($1 == "rope" || $1 == "adamw") name = $1
            match($0, /\( *[0-9]+ % of copy/); share = substr($0, RSTART + 1, 3) + 0
            was["rmsnorm fwd"] = 20; was["rmsnorm bwd"] = 3; was["q_norm fwd"] = 53; was["swiglu fwd"] = 69; was["residual add"] = 84
            was["rope"] = 78; was["embedding fwd"] = 79; was["adamw"] = 102; was["grad norm"] = 58
            match($0, /[0-9.]+ ms/); ms = substr($0, RSTART, RLENGTH - 3)
            printf "%-16s %10s %13d %% %8s\n", name, ms, share, name in was ? was[name] " %" : "-" }
         /^copy / { print }' "$logs/memory"
    exit $fail
    ;;
*) usage ;;
esac
