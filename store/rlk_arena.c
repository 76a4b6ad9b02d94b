#include "store/rlk_event.h"

#include <stdlib.h>
#include <string.h>

/* Blocks double up to a bound, so that small events take one block and large ones waste little. A reset keeps the
 * largest block: a reader that goes event by event settles on one block and never allocates again. */
#define FIRST_BLOCK ((size_t)4096)
#define LARGEST_STEP ((size_t)1 << 20)

struct rlk_arena_block {
    struct rlk_arena_block *next;
    size_t size, used; /* of data */
    _Alignas(max_align_t) unsigned char data[];
};

static void *take(struct rlk_arena_block *block, size_t bytes, size_t align)
{
    uintptr_t at = (uintptr_t)block->data + block->used;
    size_t pad = (size_t)(-at & (align - 1));
    size_t room = block->size - block->used;
    if (pad > room || bytes > room - pad)
        return NULL;
    void *p = block->data + block->used + pad;
    block->used += pad + bytes;
    return memset(p, 0, bytes);
}

void *rlk_arena_alloc(struct rlk_arena *arena, size_t bytes, size_t align)
{
    if (align == 0 || (align & (align - 1)) != 0)
        return NULL;
    if (bytes == 0)
        bytes = 1; /* never NULL for success */
    struct rlk_arena_block *head = arena->head;
    void *p = head ? take(head, bytes, align) : NULL;
    if (p)
        return p;

    size_t size = head ? head->size : FIRST_BLOCK / 2;
    size = size < LARGEST_STEP / 2 ? size * 2 : LARGEST_STEP;
    size_t limit = SIZE_MAX - sizeof(struct rlk_arena_block);
    if (align > limit || bytes > limit - align)
        return NULL;
    if (size < bytes + align)
        size = bytes + align;
    struct rlk_arena_block *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->size = size;
    block->used = 0;
    block->next = head;
    arena->head = block;
    return take(block, bytes, align);
}

void rlk_arena_reset(struct rlk_arena *arena)
{
    struct rlk_arena_block *keep = NULL, *next;
    for (struct rlk_arena_block *b = arena->head; b; b = next) {
        next = b->next;
        if (!keep || b->size > keep->size) {
            free(keep);
            keep = b;
        } else {
            free(b);
        }
    }
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
    arena->head = keep;
}

void rlk_arena_release(struct rlk_arena *arena)
{
    struct rlk_arena_block *next;
    for (struct rlk_arena_block *b = arena->head; b; b = next) {
        next = b->next;
        free(b);
    }
    arena->head = NULL;
}
