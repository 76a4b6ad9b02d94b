# One interface target that every target of ours links: language level, warnings, visibility, sanitizers.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)           # POSIX and Linux interfaces; the language used is C11
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_package(Threads REQUIRED)

add_library(rlk_compile INTERFACE)
target_include_directories(rlk_compile INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(rlk_compile INTERFACE _GNU_SOURCE $<$<CONFIG:Release>:NDEBUG>)
target_compile_options(rlk_compile INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wvla -Werror -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror -ffp-contract=off>)
target_link_libraries(rlk_compile INTERFACE Threads::Threads m)
if(RLK_SANITIZE)
  string(REPLACE ";" "," _san "${RLK_SANITIZE}")
  target_compile_options(rlk_compile INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${_san} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(rlk_compile INTERFACE -fsanitize=${_san})
endif()

# rlk_add_library(NAME SOURCES...): a static, position-independent library of one folder.
function(rlk_add_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC rlk_compile)
endfunction()

# rlk_add_program(NAME SOURCES...): an installed program.
function(rlk_add_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE rlk_compile)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
