/* alloc_map.h - device allocations that are alive: which buffer does an address lie in, and where.
 *
 * Each allocation has an ordinal, its place in the order of allocations: an epoch. A recycled address has another one.
 * Readers take no lock and never wait for a writer longer than its few stores (a sequence lock over a sorted array);
 * writers are serialised. Growing keeps the old array, so a reader can never touch freed memory (at most twice the
 * size).
 */
#ifndef RECORDER_CUPTI_ALLOC_MAP_H
#define RECORDER_CUPTI_ALLOC_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the allocation's ordinal, from 1; 0 = no memory, the range stays unknown. */
uint64_t rlki_alloc_add(uint64_t base, uint64_t bytes);
void rlki_alloc_remove(uint64_t base); /* no such allocation: nothing happens */
/* True: address lies in allocation *ordinal at *offset. */
bool rlki_alloc_find(uint64_t address, uint64_t *ordinal, uint64_t *offset);
/* Replaces each aligned 8-byte word of the block that lies in an allocation (param_block.h says by what). */
void rlki_alloc_relocate(unsigned char *block, size_t bytes);
uint64_t rlki_alloc_count(void); /* alive */

#endif
