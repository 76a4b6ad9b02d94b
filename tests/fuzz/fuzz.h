/* fuzz.h - the targets of fuzz_reader.c, and its entry point in libFuzzer's form. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_FILE, FUZZ_EVENT, FUZZ_DESC, FUZZ_STATE, FUZZ_ROLL, FUZZ_CHUNK, FUZZ_SEAL, FUZZ_TARGETS };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
void fuzz_cleanup(void);

#endif
