# System packages (Debian: liblmdb-dev libxxhash-dev libzstd-dev libjansson-dev libssl-dev libcmocka-dev).
# Everything that a watched process or a bare GPU machine needs is linked statically.
function(rlk_find_static target header archive)
  find_path(${target}_INC ${header} REQUIRED)
  find_library(${target}_LIB NAMES ${archive} REQUIRED)
  add_library(rlk_${target} INTERFACE)
  target_include_directories(rlk_${target} SYSTEM INTERFACE ${${target}_INC})
  target_link_libraries(rlk_${target} INTERFACE ${${target}_LIB})
  add_library(rlk::${target} ALIAS rlk_${target})
  set(${target}_LIB ${${target}_LIB} PARENT_SCOPE)
endfunction()

rlk_find_static(zstd zstd.h libzstd.a)
rlk_find_static(jansson jansson.h libjansson.a)

# xxHash header-only: our translation units inline it, so no xxHash symbol can meet the watched program's own copy.
find_path(xxhash_INC xxhash.h REQUIRED)
add_library(rlk_xxhash INTERFACE)
target_include_directories(rlk_xxhash SYSTEM INTERFACE ${xxhash_INC})
target_compile_definitions(rlk_xxhash INTERFACE XXH_INLINE_ALL)
add_library(rlk::xxhash ALIAS rlk_xxhash)

# LMDB: rlk::lmdb for programs; rlk::lmdb_pic for shared objects. Debian's archive is not position-independent in one
# place only, its reference to stderr; the copy made here refers to a hidden FILE * of ours (rlki_stderr) instead.
find_path(lmdb_INC lmdb.h REQUIRED)
find_library(lmdb_LIB NAMES liblmdb.a REQUIRED)
add_library(rlk_lmdb INTERFACE)
target_include_directories(rlk_lmdb SYSTEM INTERFACE ${lmdb_INC})
target_link_libraries(rlk_lmdb INTERFACE ${lmdb_LIB})
add_library(rlk::lmdb ALIAS rlk_lmdb)

set(_lmdb_dir ${PROJECT_BINARY_DIR}/lmdb_pic)
file(MAKE_DIRECTORY ${_lmdb_dir})
add_custom_command(OUTPUT ${_lmdb_dir}/liblmdb_pic.a
  COMMAND ${CMAKE_AR} x ${lmdb_LIB} mdb.o midl.o
  COMMAND ${CMAKE_OBJCOPY} --redefine-sym stderr=rlki_stderr mdb.o
  COMMAND ${CMAKE_AR} rcs liblmdb_pic.a mdb.o midl.o
  WORKING_DIRECTORY ${_lmdb_dir} DEPENDS ${lmdb_LIB} VERBATIM)
add_custom_target(rlk_lmdb_pic_archive DEPENDS ${_lmdb_dir}/liblmdb_pic.a)
add_library(rlk_lmdb_pic INTERFACE)
target_include_directories(rlk_lmdb_pic SYSTEM INTERFACE ${lmdb_INC})
target_link_libraries(rlk_lmdb_pic INTERFACE ${_lmdb_dir}/liblmdb_pic.a)
add_dependencies(rlk_lmdb_pic rlk_lmdb_pic_archive)
add_library(rlk::lmdb_pic ALIAS rlk_lmdb_pic)

find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)

if(RLK_TESTS)
  find_path(cmocka_INC cmocka.h REQUIRED)
  find_library(cmocka_LIB NAMES cmocka REQUIRED)
  add_library(rlk_cmocka INTERFACE)
  target_include_directories(rlk_cmocka SYSTEM INTERFACE ${cmocka_INC})
  target_link_libraries(rlk_cmocka INTERFACE ${cmocka_LIB})
  add_library(rlk::cmocka ALIAS rlk_cmocka)
endif()
