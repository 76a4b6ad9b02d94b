#!/bin/sh
# The whole of rlkrec in two minutes, on a machine without a GPU.
# usage: demo.sh BUILD_DIR [torch]      exits non-zero when an expected result does not come
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
torch=${2:-}
python=${PYTHON:-python3}
PATH=$build/bin:$PATH
train=$build/workloads/train
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rlk-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset RLKREC_RECORDING RLKREC_LIBRARY 2>/dev/null || true
export RLKREC_CACHE="${RLKREC_CACHE:-$build/../cache-torch}" # the observer, built once

say() { printf '\n%s\n' "$*"; }

# expect STATUS COMMAND...: shows the command, runs it, and stops the demo when its status is another one.
expect() {
    want=$1
    shift
    printf '$ %s\n' "$*" | sed "s|$build/workloads/||; s|$here/||; s|-- $python |-- python |"
    status=0
    "$@" >out.txt 2>err.txt || status=$?
    sed 's/^/    /' out.txt err.txt
    if [ "$status" != "$want" ]; then
        echo "demo: exit $status, expected $want" >&2
        exit 1
    fi
}

# names TEXT...: each must be in the last command's output.
names() {
    for text in "$@"; do
        grep -q -- "$text" out.txt || {
            echo "demo: the report does not name '$text'" >&2
            exit 1
        }
    done
}

say "1. A small training in C, on several threads, recorded twice."
expect 0 rlkrec run -o clean1 -- "$train"
expect 0 rlkrec run -o clean2 -- "$train"

say "   Every tensor of both runs has the same bits:"
expect 0 rlkaudit first-diff clean1 clean2

say "2. The same program, but one reduction now adds up in the order in which its threads finish."
expect 0 rlkrec run -o racy1 -- "$train" --racy-sum
expect 0 rlkrec run -o racy2 -- "$train" --racy-sum

say "   The gradient norms part. Which tensor went wrong first?"
expect 1 rlkaudit first-diff racy1 racy2
names wgrad.sum "every input is equal"

say "   A reduction whose inputs are equal and whose output is not. Twice more, keeping the bytes of that operator:"
expect 0 rlkrec run -q -o racy3 --payload op=wgrad.sum -- "$train" --racy-sum
expect 0 rlkrec run -q -o racy4 --payload op=wgrad.sum -- "$train" --racy-sum
expect 1 rlkaudit first-diff racy3 racy4
names wgrad.sum ulp

say "3. A recording is evidence: it is sealed, and a changed byte is found."
expect 0 rlkrec verify clean1
data=$(find clean1.rlk -name data.mdb | head -1)
printf '$ %s\n' "printf X | dd of=$data bs=1 seek=9000 conv=notrunc"
printf X | dd of="$data" bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 1 rlkrec verify clean1

say "4. A policy trained by GRPO at TP 4 x CP 2, on virtual ranks; then its recording, replayed under other layouts."
# A busy machine may make the recorder drop events, which it says: then once more.
policy() {
    name=$1
    shift
    for attempt in 1 2 3; do
        rm -rf "$name.rlk"
        expect 0 rlkrec run -o "$name" -- rlktrain --steps 1 --no-times "$@"
        grep -q INCOMPLETE err.txt || return 0
    done
}
policy tp4cp2 --layout tp4cp2
expect 0 rlkreplay tp4cp2 --layout tp2cp4 -o tp2cp4
names "replay at tp2cp4" " 0 different"
expect 0 rlkreplay tp4cp2 --layout tp8cp8
names "replay at tp8cp8" " 0 different"

say "   The replay is a recording too: every tensor, composed over the ranks of either layout, and the report."
expect 0 rlkaudit first-diff tp4cp2 tp2cp4
expect 0 rlkaudit report tp4cp2 tp2cp4

say "5. The same training, but o_proj now adds up its ranks' parts in rank order: another layout, other bits."
policy planted --layout tp8cp1 --plant rank-order
expect 1 rlkaudit first-diff tp4cp2 planted
names self_attn.o_proj
say "   Its recording says that it computed by the contract. It did not: a replay of it does not equal it."
expect 3 rlkreplay planted --layout tp1cp1
names "first at" self_attn.o_proj

if [ "$torch" = torch ]; then
    say "   (PyTorch for the CPU goes into a venv below the build directory: one download)"
    python=$("$here/../torch/venv.sh" "$build/..")
fi
if ! command -v "$python" >/dev/null 2>&1 || ! "$python" -c 'import torch' 2>/dev/null; then
    say "PyTorch cannot be imported here; make demo TORCH=1 installs it below build/ and shows an unmodified training."
    say "All expected results came."
    exit 0
fi

say "6. An unmodified PyTorch training: nothing in it knows of rlkrec."
expect 0 rlkrec run -o torch1 -- "$python" "$here/train_torch.py"
expect 0 rlkrec run -o torch2 -- "$python" "$here/train_torch.py"
expect 0 rlkaudit first-diff torch1 torch2

say "7. The same, with one sum taken in the order in which its parts arrive."
expect 0 rlkrec run -o torch3 -- "$python" "$here/train_torch.py" --arrival
expect 0 rlkrec run -o torch4 -- "$python" "$here/train_torch.py" --arrival
expect 1 rlkaudit first-diff torch3 torch4
names aten::add

say "All expected results came."
