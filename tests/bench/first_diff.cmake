# first-diff of generated recordings: 1,000,000 events in every run, the 10,000,000 of the goal in the long ones.
add_test(NAME bench.first_diff COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/bench_first_diff.py ${PROJECT_BINARY_DIR}/bin
  $<TARGET_FILE:gen_recording> 1000000)
add_test(NAME bench.first_diff_10m COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/bench_first_diff.py ${PROJECT_BINARY_DIR}/bin
  $<TARGET_FILE:gen_recording> 10000000)
set_tests_properties(bench.first_diff PROPERTIES LABELS "bench" TIMEOUT 600)
set_tests_properties(bench.first_diff_10m PROPERTIES LABELS "long;bench" TIMEOUT 1800)
