# What each operator costs against the provider's; on a GPU with --check the goals of docs/kernels.md decide.
add_executable(bench_kernels bench_kernels.c)
target_link_libraries(bench_kernels PRIVATE rlk_compile rlk_kernels ${CMAKE_DL_LIBS})
if(RLK_HAVE_CUDA)
  target_include_directories(bench_kernels SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()
set_target_properties(bench_kernels PROPERTIES BUILD_RPATH "$ORIGIN")
add_test(NAME bench.kernels COMMAND bench_kernels cpu)
set_tests_properties(bench.kernels PROPERTIES LABELS "long" SKIP_RETURN_CODE 77)
