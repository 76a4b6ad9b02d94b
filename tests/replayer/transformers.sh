#!/bin/sh
# Runs a test on a Python with torch and transformers; 77 where there is none and none can be made, with the reason.
# usage: transformers.sh FILE ARG...
#
# transformers and the little that it imports go into a folder beside the torch venv, once; RLK_TRANSFORMERS names a
# folder that has them already.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$RLK_SOURCE/build
python=$("$here/../torch/venv.sh" "$build") || exit $?
skip() {
    echo "transformers: $*" >&2
    exit 77
}
unset RLKREC_RECORDING RLKREC_LIBRARY RLKREC_LEVEL
folder=${RLK_TRANSFORMERS:-$build/transformers-5.24.0}
HF_HUB_OFFLINE=1
PYTHONPATH=$folder
HF_HUB_DISABLE_PROGRESS_BARS=1 TRANSFORMERS_VERBOSITY=error
export PYTHONPATH HF_HUB_OFFLINE HF_HUB_DISABLE_PROGRESS_BARS TRANSFORMERS_VERBOSITY
if ! "$python" -c 'import transformers' 2>/dev/null && [ -z "${RLK_TRANSFORMERS:-}" ]; then
    rm -rf "$folder"
    timeout 280 "$python" -m pip --quiet --disable-pip-version-check install --no-deps --target "$folder" \
        transformers==5.24.0 huggingface_hub==1.33.0 tokenizers==0.23.3 safetensors==0.8.0 regex pyyaml tqdm packaging \
        httpx httpcore h11 anyio sniffio idna certifi typer click shellingham rich annotated-doc filelock fsspec \
        typing_extensions >"$build/transformers.log" 2>&1 || skip "it cannot be installed: $(tail -1 "$build/transformers.log")"
fi
"$python" -c 'from transformers import Qwen3ForCausalLM' 2>"$build/transformers.log" ||
    skip "it does not import: $(tail -1 "$build/transformers.log")"
exec "$python" "$@"
