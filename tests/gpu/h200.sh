#!/bin/bash
# The recorder on a real GPU, in one call of about 140 s, on a machine that has a driver, Python 3.12 with torch and
# transformers, and a compiler.
#   h200.sh pack BUILD DIR   collects the installed tree, the programs and an observer built ahead into DIR.
#                            RLK_TORCH_PYTHON: a Python whose torch is the machine's (same version), for the observer;
#                            RLK_TARGET_INCLUDE: headers of the machine's Python (default: that one's own)
#   h200.sh run DIR OUT      runs the stages, most important first; a few lines each, everything else in OUT. Exit 0: all as
#                            they should be. RLK_SECONDS: when to stop starting things (default 140)
# For a rehearsal without a GPU: RLK_DEVICE=cpu (what needs CUDA is skipped), RLK_INSIDE="env NAME=VALUE..." in front of each
# recorded program, RLK_PYTHON, RLK_SLOW=N (every limit N times as long).
set -u
usage() { sed -n 2,12p "$0"; exit 2; }
[ $# -eq 3 ] || usage
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    local build=$1 dir=$2 root
    root=$(cd "$here/../.." && pwd)
    rm -rf "$dir" && mkdir -p "$dir" || exit 2
    cmake --install "$build" --prefix "$dir/tree" >/dev/null || exit 2
    find "$dir/tree" -name '*.a' -delete
    strip "$dir"/tree/bin/* "$dir"/tree/lib/*.so 2>/dev/null
    cp "$here"/h200/*.py "$here/h200.sh" "$here/launches.py" "$root"/tests/workloads/hf_qwen3_*.py "$dir/" || exit 2
    for t in gpu.digest cuda_raw; do cp "$build/tests/gpu/$t" "$dir/" && strip "$dir/$t"; done
    if [ -n "${RLK_TORCH_PYTHON:-}" ]; then
        PYTHONPATH=$dir/tree/share/rlkrec/recorder/torch/python "$RLK_TORCH_PYTHON" - "$dir" <<'P' || exit 2
import os, pathlib, sys, torch
from rlkrec_torch import build
include = os.environ.get("RLK_TARGET_INCLUDE")
if include:
    build.sysconfig.get_paths = lambda: {"include": include}
build.compile_into(torch, pathlib.Path(sys.argv[1]))
for left in pathlib.Path(sys.argv[1]).glob("*.o"):
    left.unlink()
(pathlib.Path(sys.argv[1]) / "observer.for").write_text(torch.__version__ + " " + (pathlib.Path(include).name if include else f"python{sys.version_info[0]}.{sys.version_info[1]}"))
P
    fi
    find "$dir" -name __pycache__ -prune -exec rm -rf {} +
    du -sh "$dir"
}

# ---- run
say() { echo "$@" | tee -a "$out/summary.txt"; }
left() { echo $((limit - $(date +%s) + began)); }
# One line a stage. stage NAME SECONDS COMMAND...: at most SECONDS, and not past the end.
stage() {
    local name=$1 most=$(($2 * slow)) start rc; shift 2
    [ "$(left)" -gt 3 ] || { say "$name: not run, out of time"; fail=1; return 1; }
    [ "$most" -lt "$(left)" ] || most=$(left)
    start=$(date +%s)
    timeout -k 2 "$most" "$@" >"$out/$name.log" 2>&1; rc=$?
    say "$name: rc $rc, $(($(date +%s) - start)) s"
    [ $rc -eq 0 ] || fail=1
    return $rc
}
# A program in the background: OUT/NAME.out, .err, .rc.
bg() {
    local name=$1 most=$(($2 * slow)); shift 2
    [ "$(left)" -gt 5 ] || { say "$name: not run, out of time"; return; }
    [ "$most" -lt "$(left)" ] || most=$(left)
    (timeout -k 2 "$most" "$@" >"$out/$name.out" 2>"$out/$name.err"; echo $? >"$out/$name.rc") &
}
rec() { # NAME SECONDS "OPTIONS" PROGRAM...
    local name=$1 most=$2 options=$3; shift 3
    # shellcheck disable=SC2086
    bg "$name" "$most" "$rlkrec" run -q $options -o "$work/$name" -- $inside "$@"
}
judged() {
    local name=$1
    timeout $((45 * slow)) "$python" "$dir/judge.py" "$name" "$work" "$out" "$rlkrec" "$rlkaudit" >"$out/judge.$name.log" 2>&1
    echo $? >"$out/judge.$name.rc"
}
tell() {
    local name
    for name in "$@"; do
        [ -f "$out/judge.$name.rc" ] || { say "$name: not judged"; fail=1; continue; }
        say "$name: $([ "$(cat "$out/judge.$name.rc")" = 0 ] && echo ok || { tail -1 "$out/judge.$name.log" | grep -q Error && echo "judge broke:"; echo FAIL; })"
        cut -c1-700 "$out/judge.$name.log" | tail -25 | tee -a "$out/summary.txt"
        [ "$(cat "$out/judge.$name.rc")" = 0 ] || fail=1
    done
}
ended() { # what did not end well
    local f
    for f in "$out/${1:-}"*.rc; do
        case $f in *judge.*) continue ;; esac
        [ "$(cat "$f")" = 0 ] || say "  $(basename "$f" .rc): rc $(cat "$f"): $(tail -2 "${f%.rc}.err" | tr '\n' ' ' | cut -c1-300)"
    done
}

timing() { # GROUP "ROLES" ARGUMENTS OF step_times.py
    local group=$1 roles=$2 n=0 i=0 r folder options debug; shift 2
    folder=$work/times.$group; mkdir -p "$folder"
    for r in $roles; do n=$((n + 1)); done
    for r in $roles; do
        debug=
        case $r in
        plain) options= debug=--debug-mode ;;
        digest) options="--level op --inputs digest" ;;
        *) options="--level $r" ;;
        esac
        (
            most=$((55 * slow)); [ $most -lt "$(left)" ] || most=$(left)
            # shellcheck disable=SC2086
            if [ "$r" = plain ]; then timeout -k 2 $most "$python" "$dir/step_times.py" --role $r --turn $i --of $n --dir "$folder" --slow $slow $debug "$@"
            else timeout -k 2 $most "$rlkrec" run -q $options -o "$folder/$r" -- $inside "$python" "$dir/step_times.py" --role $r --turn $i --of $n --dir "$folder" --slow $slow "$@"; fi \
                >"$out/times.$group.$r.out" 2>"$out/times.$group.$r.err"
            echo $? >"$out/times.$group.$r.rc"
            touch "$folder/dead.$i"
        ) &
        i=$((i + 1))
    done
    wait
}

run() {
    dir=$(cd "$1" && pwd); mkdir -p "$2"; out=$(cd "$2" && pwd)
    began=$(date +%s) limit=${RLK_SECONDS:-140} fail=0 device=${RLK_DEVICE:-cuda} inside=${RLK_INSIDE:-} python=${RLK_PYTHON:-python3} slow=${RLK_SLOW:-1}
    work=$(mktemp -d) rlkrec=$dir/tree/bin/rlkrec rlkaudit=$dir/tree/bin/rlkaudit
    export RLKREC_CACHE=$work/cache OMP_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    : >"$out/summary.txt"
    chmod +x "$dir"/tree/bin/* "$dir"/gpu.digest "$dir"/cuda_raw 2>/dev/null
    small= few=13
    [ "$device" = cuda ] || { small="--layers 1" few=2; }

    stage prepare 60 "$python" "$dir/prepare.py" "$dir" || tail -3 "$out/prepare.log"
    tail -3 "$out/prepare.log" | tee -a "$out/summary.txt"
    # everything whose result does not depend on time, at once
    bg doctor 30 "$rlkrec" doctor --python "$python"
    # shellcheck disable=SC2086
    {
        g="$dir/hf_qwen3_grpo.py --device $device $small" t="$dir/hf_qwen3_train.py --device $device --steps $few $small"
        [ "$device" = cuda ] || { g="$g --new 4 --prompts 1" t="$t --hidden 128 --seq 32 --batch 2"; }
        bg grpo.plain 60 "$python" $g
        rec grpo.a 70 "" "$python" $g
        rec grpo.b 70 "" "$python" $g
        bg train.plain 60 "$python" $t
        for i in $([ "$device" = cuda ] && echo 1 2 3 4 || echo 1 2); do rec train.$i 70 "" "$python" $t; done
        rec tensors.cpu 50 "--inputs digest" "$python" "$dir/tensors.py" --device cpu
        if [ "$device" = cuda ]; then
            rec tensors.gpu 50 "--inputs digest" "$python" "$dir/tensors.py" --device cuda
            rec capture 50 "" "$python" "$dir/capture.py"
            rec profile 60 "" "$python" "$dir/profile_count.py"
            bg digest 50 "$dir/gpu.digest"
            bg launches 40 "$python" "$dir/launches.py" --rlkrec "$rlkrec" --program "$dir/cuda_raw"
            sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
            if [ -n "$sanitizer" ]; then rec sanitize 50 "" "$sanitizer" --tool memcheck "$python" "$dir/sanitize.py"; fi
        else
            rec tensors.gpu 50 "--inputs digest" "$python" "$dir/tensors.py" --device cpu
            say "capture, profile, digest, launches, sanitize: skipped, no CUDA"
        fi
    }
    if [ "$device" = cuda ]; then say "  gpu.digest: rc $(wait_rc digest 50)"; fi
    wait
    grep -v '^ok' "$out/doctor.out" | head -6 | tee -a "$out/summary.txt"
    say "  programs done at $(($(date +%s) - began)) s"
    ended
    stages="grpo train tensors"
    [ "$device" = cuda ] && stages="$stages capture profile sanitize"
    for s in $stages; do judged $s & done
    wait
    tell $stages
    say "  judged at $(($(date +%s) - began)) s"
    # times: nothing else runs
    if [ "$device" = cuda ]; then
        [ "$(left)" -gt 20 ] && timing launch "plain launch step module op digest" --rounds 3 --untimed 3 --timed 15
        say "  launch-bound timed at $(($(date +%s) - began)) s"
        [ "$(left)" -gt 25 ] && timing gpu "plain op digest module launch" --rounds 1 --untimed 2 --timed 3 --batch 8 --seq 4096 --hidden 2048
    else
        timing launch "plain launch step module op digest" --rounds 2 --untimed 1 --timed 2 --layers 1 --hidden 128 --batch 2 --seq 32 --device cpu
    fi
    judged times; tell times; ended times.
    say "done at $(($(date +%s) - began)) s, $([ $fail = 0 ] && echo 'all as it should be' || echo 'see FAIL above')"
    exit $fail
}
wait_rc() { # waits for the program NAME alone
    local i=0
    while [ ! -f "$out/$1.rc" ] && [ $i -lt $(($2 * 5)) ]; do sleep 0.2; i=$((i + 1)); done
    cat "$out/$1.rc" 2>/dev/null || echo none
}

case $1 in
pack) pack "$2" "$3" ;;
run) run "$2" "$3" ;;
*) usage ;;
esac
