# The digest on the device: host side (always built) and the kernel's fat binary (with nvcc). sm_90 code, and PTX from
# which the driver makes code for every other device since sm_75.
target_sources(rlk_store PRIVATE
  ${PROJECT_SOURCE_DIR}/store/rlk_digest_gpu.c
  ${PROJECT_SOURCE_DIR}/store/rlk_cuda_symbols.c
  ${PROJECT_SOURCE_DIR}/store/cuda/rlk_digest_segment.c)
target_link_libraries(rlk_store PUBLIC ${CMAKE_DL_LIBS})

if(RLK_HAVE_CUDA)
  set(_fatbin ${CMAKE_CURRENT_BINARY_DIR}/rlk_digest.fatbin)
  add_custom_command(OUTPUT ${_fatbin}
    COMMAND ${CMAKE_CUDA_COMPILER} -std=c++17 -O3 --threads 2 -fmad=false -I${PROJECT_SOURCE_DIR}
            -gencode arch=compute_90,code=sm_90 -gencode arch=compute_75,code=compute_75
            -fatbin -o ${_fatbin} ${PROJECT_SOURCE_DIR}/store/cuda/rlk_digest_kernel.cu
    DEPENDS cuda/rlk_digest_kernel.cu cuda/rlk_digest_kernel.h cuda/rlk_xxh3.cuh
    COMMENT "Building the digest kernel" VERBATIM)
  target_sources(rlk_store PRIVATE ${PROJECT_SOURCE_DIR}/store/cuda/rlk_digest_fatbin.c)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/store/cuda/rlk_digest_fatbin.c TARGET_DIRECTORY rlk_store PROPERTIES
    COMPILE_DEFINITIONS "RLK_DIGEST_FATBIN=\"${_fatbin}\"" OBJECT_DEPENDS ${_fatbin})
  set_source_files_properties(${PROJECT_SOURCE_DIR}/store/rlk_digest_gpu.c TARGET_DIRECTORY rlk_store PROPERTIES
    COMPILE_DEFINITIONS RLK_HAVE_CUDA)
endif()
