#!/bin/bash
# The recorder on a real GPU, in one call of about 140 s, on a machine that has a driver, Python 3.12 with torch and
# transformers, and a compiler.
#   h200.sh pack BUILD DIR   collects the installed tree, the programs and an observer built ahead into DIR.
#                            RLK_TORCH_PYTHON: a Python whose torch is the machine's (same version), for the observer;
#                            RLK_TARGET_INCLUDE: headers of the machine's Python (default: that one's own)
#   h200.sh run DIR OUT [STAGE]...  runs the stages named (all), a few lines each, everything else in OUT. Exit 0: all as they
#                            should be. RLK_SECONDS: when to stop starting things (default 300)
# Stages: doctor grpo levels train repeat graph tensors options payload capture profile sanitize tools sticky fresh digest launches, all at
# once; plan, from train's recordings; times, alone.
# For a rehearsal without a GPU: RLK_DEVICE=cpu (what needs CUDA is skipped), RLK_INSIDE="env NAME=VALUE..." in front of each
# recorded program, RLK_PYTHON, RLK_SLOW=N (every limit N times as long).
set -u
usage() { sed -n 2,14p "$0"; exit 2; }
[ $# -ge 3 ] || usage
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    local build=$1 dir=$2 root
    root=$(cd "$here/../.." && pwd)
    rm -rf "$dir" && mkdir -p "$dir" || exit 2
    cmake --install "$build" --prefix "$dir/tree" >/dev/null || exit 2
    find "$dir/tree" -name '*.a' -delete
    rm -f "$dir"/tree/bin/rlktrain "$dir"/tree/bin/rlkreplay
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

# ---- the stages. start_NAME: puts its programs into the background; judge.py has the rest.
start_doctor() { bg doctor 60 "$rlkrec" doctor --python "$python"; }
start_grpo() {
    need grpo.plain || bg grpo.plain 90 "$python" $grpo
    rec grpo.a 100 "" "$python" $grpo
    rec grpo.b 100 "" "$python" $grpo
    rec grpo.profiled 100 "" "$python" "$dir/under_profiler.py" $grpo
}
start_levels() {
    need grpo.plain || bg grpo.plain 90 "$python" $grpo
    for l in launch step module; do rec levels.$l 100 "--level $l" "$python" $grpo; done
    rec levels.digest 100 "--inputs digest" "$python" $grpo
}
start_train() {
    local i
    bg train.plain 90 "$python" $train
    for i in 1 2 3 4; do [ "$device" = cuda ] || [ $i -le 2 ] || continue; rec train.$i 110 "" "$python" $train; done
}
start_repeat() { bg repeat 150 "$python" "$dir/repeat_ops.py" --times $([ "$device" = cuda ] && echo 100 || echo 3) --calls 8 --seconds 55 --json "$out/repeat.json" $train --steps 1; }
start_graph() { on_gpu graph && rec graph 90 "" "$python" "$dir/graph_nodes.py" $train --steps 4 --graph && rec graph.launch 90 "--level launch" "$python" "$dir/graph_nodes.py" $train --steps 4 --graph; }
start_tensors() {
    rec tensors.cpu 60 "--inputs digest" "$python" "$dir/tensors.py" --device cpu
    rec tensors.gpu 60 "--inputs digest" "$python" "$dir/tensors.py" --device "$device"
}
start_options() {
    local o="$dir/hf_qwen3_grpo.py --device $device --steps 6 --new 4 --prompts 1 --layers 1"
    rec options.all 60 "" "$python" $o
    rec options.every 60 "--every 2" "$python" $o
    rec options.last 60 "--keep-last 2" "$python" $o
    rec options.size 60 "--max-size 250K" "$python" $o
}
start_payload() {
    rec payload.a 60 "--payload op=planted::* --payload op=aten::arange" "$python" "$dir/payload.py" --device "$device"
    rec payload.b 60 "--payload op=planted::* --payload op=aten::arange" "$python" "$dir/payload.py" --device "$device"
    rec payload.c 60 "--payload op=planted::*" "$python" "$dir/payload.py" --device "$device" --plant
}
start_capture() { on_gpu capture && rec capture 60 "" "$python" "$dir/capture.py"; }
start_profile() {
    on_gpu profile || return 0
    rec profile 70 "" "$python" "$dir/under_profiler.py" "$dir/few_steps.py"
    rec profile.late 70 "" "$python" "$dir/under_profiler.py" --late "$dir/few_steps.py"
    bg profile.plain 70 "$python" "$dir/under_profiler.py" "$dir/few_steps.py"
}
tool() { command -v "$1" || ls /usr/local/cuda*/bin/"$1" 2>/dev/null | head -1; }
start_sanitize() {
    on_gpu sanitize && [ -n "$(tool compute-sanitizer)" ] && rec sanitize 70 "" "$(tool compute-sanitizer)" --tool memcheck "$python" "$dir/sanitize.py"
}
start_tools() { # who else takes CUPTI
    on_gpu tools || return 0
    [ -z "$(tool ncu)" ] || rec tools.ncu 100 "" "$(tool ncu)" --launch-count 2 "$python" "$dir/sanitize.py"
    [ -z "$(tool nsys)" ] || rec tools.nsys 100 "" "$(tool nsys)" profile -o "$work/nsys" "$python" "$dir/sanitize.py"
    [ -z "$(tool cuda-gdb)" ] || rec tools.gdb 100 "" "$(tool cuda-gdb)" -batch -ex run --args "$python" "$dir/sanitize.py"
}
start_sticky() {
    on_gpu sticky || return 0
    bg sticky.plain 60 "$python" "$dir/sticky.py"
    rec sticky 60 "" "$python" "$dir/sticky.py"
}
start_fresh() {
    on_gpu fresh || return 0
    rec fresh.a 60 "" "$python" "$dir/fresh.py" 5
    rec fresh.b 60 "" "$python" "$dir/fresh.py" 90
}
start_digest() { on_gpu digest && bg digest 60 "$dir/gpu.digest"; }
start_launches() { on_gpu launches && bg launches 60 "$python" "$dir/launches.py" --rlkrec "$rlkrec" --program "$dir/cuda_raw"; }
on_gpu() { [ "$device" = cuda ] || { say "$1: skipped, no CUDA"; false; }; }
need() { case " $began_programs " in *" $1 "*) return 0 ;; esac; began_programs="$began_programs $1"; return 1; }

# From two recordings of the training to the elements of the root: what differs, which bytes to keep, again with them, how.
plan() {
    local a=$work/train.1.rlk b=$work/train.2.rlk i
    timeout 60 "$rlkaudit" first-diff "$a" "$b" --plan "$out/plan.txt" --html "$out/plan.before.html" >"$out/plan.before.txt" 2>&1
    [ "$device" = cuda ] && timeout 90 "$rlkaudit" first-diff "$a" "$b" --self-a "$work/train.3.rlk" --self-b "$work/train.4.rlk" \
        --html "$out/plan.repeats.html" --json "$out/plan.repeats.json" >"$out/plan.repeats.txt" 2>&1
    [ -s "$out/plan.txt" ] || { say "  plan: no plan was written: $(tail -1 "$out/plan.before.txt")"; return; }
    # the root does not repeat itself: next time it may be another call of that operator, so the plan is widened
    sed 's/^step=[^,]*,/step=0:3,/; /^step=/s/,call=.*,op=/,op=/; /role=in/d' "$out/plan.txt" | sort -u >"$out/plan.wide.txt"
    for i in 1 2; do rec planned.$i 110 "--plan $out/plan.wide.txt" "$python" $train --steps 3; done
    wait
    timeout 60 "$rlkaudit" first-diff "$work/planned.1.rlk" "$work/planned.2.rlk" --json "$out/planned.json" --html "$out/planned.html" >"$out/planned.txt" 2>&1
}

run() {
    dir=$(cd "$1" && pwd); mkdir -p "$2"; out=$(cd "$2" && pwd); shift 2
    began=$(date +%s) limit=${RLK_SECONDS:-300} fail=0 device=${RLK_DEVICE:-cuda} inside=${RLK_INSIDE:-} python=${RLK_PYTHON:-python3} slow=${RLK_SLOW:-1}
    work=$(mktemp -d) rlkrec=$dir/tree/bin/rlkrec rlkaudit=$dir/tree/bin/rlkaudit began_programs=
    export RLKREC_CACHE=$work/cache OMP_NUM_THREADS=2 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    : >"$out/summary.txt"
    chmod +x "$dir"/tree/bin/* "$dir"/gpu.digest "$dir"/cuda_raw 2>/dev/null
    grpo="$dir/hf_qwen3_grpo.py --device $device" train="$dir/hf_qwen3_train.py --device $device --steps 13"
    [ "$device" = cuda ] || { grpo="$grpo --layers 1 --new 4 --prompts 1" train="$dir/hf_qwen3_train.py --device $device --steps 2 --layers 1 --hidden 128 --seq 32 --batch 2"; }
    local at_once="doctor grpo levels train repeat graph tensors options payload capture profile sanitize tools sticky fresh digest launches"
    [ $# -gt 0 ] || set -- $at_once plan times
    local asked=" $* " s
    stage prepare 60 "$python" "$dir/prepare.py" "$dir" || tail -3 "$out/prepare.log"
    tail -3 "$out/prepare.log" | tee -a "$out/summary.txt"
    for s in $at_once; do case $asked in *" $s "*) start_$s ;; esac; done
    wait
    say "  programs done at $(($(date +%s) - began)) s"
    case $asked in *" plan "*) plan; say "  planned at $(($(date +%s) - began)) s" ;; esac
    ended
    local judge=
    for s in $at_once plan; do case $asked in *" $s "*) judge="$judge $s"; judged $s & ;; esac; done
    wait
    tell $judge
    say "  judged at $(($(date +%s) - began)) s"
    case $asked in *" times "*) times ;; esac
    say "done at $(($(date +%s) - began)) s, $([ $fail = 0 ] && echo 'all as it should be' || echo 'see FAIL above')"
    exit $fail
}

times() { # nothing else runs
    if [ "$device" = cuda ]; then
        [ "$(left)" -gt 20 ] && timing launch "plain launch step module op digest" --rounds 3 --untimed 3 --timed 15
        say "  launch-bound timed at $(($(date +%s) - began)) s"
        [ "$(left)" -gt 25 ] && timing gpu "plain op digest module step launch" --rounds 1 --untimed 2 --timed 3 --batch 8 --seq 4096 --hidden 2048
    else
        timing launch "plain launch step module op digest" --rounds 2 --untimed 1 --timed 2 --layers 1 --hidden 128 --batch 2 --seq 32 --device cpu
    fi
    judged times; tell times; ended times.
}

case $1 in
pack) pack "$2" "$3" ;;
run) shift; run "$@" ;;
*) usage ;;
esac
