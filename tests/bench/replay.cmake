# The reference workload recorded, replayed and compared: prints ratios (make bench); one round in the long tests shows that it runs.
if(TARGET rlktrain AND TARGET rlkrec AND TARGET rlkaudit)
  add_test(NAME bench.replay COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/bench_replay.py ${PROJECT_BINARY_DIR}/bin 1
    --model qwen3-mini --steps 1)
  set_tests_properties(bench.replay PROPERTIES LABELS "long;bench" TIMEOUT 600)
endif()
