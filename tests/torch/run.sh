#!/bin/sh
# Runs a test on the Python that imports torch; 77 where there is none. usage: run.sh FILE or run.sh -m MODULE
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/venv.sh" "$RLK_SOURCE/build") || exit $?
unset RLKREC_RECORDING RLKREC_LIBRARY RLKREC_LEVEL RLKREC_OBSERVER
if [ "$1" = -m ]; then
    PYTHONPATH=$RLK_SOURCE/recorder/torch/python exec "$python" "$@"
fi
exec "$python" "$@"
