# The adapter's cost on a CPU training step; run by hand or by bench.sh: bench_adapter.py BUILD_DIR TRAIN.py PYTHON.
add_executable(bench.adapter bench_adapter.c)
target_link_libraries(bench.adapter PRIVATE rlk_compile rlk_store rlk::lmdb)
