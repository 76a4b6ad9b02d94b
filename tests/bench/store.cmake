# The writer, and the generator of large recordings that other benchmarks use (target gen_recording).
add_executable(gen_recording gen_recording.c)
target_link_libraries(gen_recording PRIVATE rlk_compile rlk_archive rlk_store rlk::lmdb)
add_executable(bench_writer bench_writer.c)
target_link_libraries(bench_writer PRIVATE rlk_compile rlk_store rlk::lmdb)
