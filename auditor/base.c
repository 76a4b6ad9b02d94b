#include "auditor/base.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool rlki_grow(void *array, size_t *cap, size_t n, size_t size)
{
    void *p;
    if (n < *cap)
        return true;
    size_t want = *cap ? *cap * 2 : 16;
    if (want <= n)
        want = n + 1;
    if (want > SIZE_MAX / size)
        return false;
    memcpy(&p, array, sizeof p);
    p = realloc(p, want * size);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = want;
    return true;
}

static bool names_rehash(struct rlki_names *names, uint32_t nslot)
{
    uint32_t *slot = calloc(nslot, sizeof *slot);
    if (!slot)
        return false;
    for (uint32_t i = 0; i < names->n; i++) {
        uint32_t at = (uint32_t)names->hash[i] & (nslot - 1);
        while (slot[at])
            at = (at + 1) & (nslot - 1);
        slot[at] = i + 1;
    }
    free(names->slot);
    names->slot = slot;
    names->nslot = nslot;
    return true;
}

static uint32_t names_add(struct rlki_names *names, const char *text, size_t n, uint64_t hash)
{
    if (names->n == names->cap) {
        uint32_t cap = names->cap ? names->cap * 2 : 256;
        char **t = realloc(names->text, cap * sizeof *t);
        if (t)
            names->text = t;
        uint64_t *h = realloc(names->hash, cap * sizeof *h);
        if (h)
            names->hash = h;
        if (!t || !h)
            return 0;
        names->cap = cap;
    }
    if (names->n * 2 >= names->nslot && !names_rehash(names, names->nslot ? names->nslot * 2 : 1024))
        return 0;
    char *copy = malloc(n + 1);
    if (!copy)
        return 0;
    memcpy(copy, text, n + 1);
    uint32_t at = (uint32_t)hash & (names->nslot - 1);
    while (names->slot[at])
        at = (at + 1) & (names->nslot - 1);
    names->text[names->n] = copy;
    names->hash[names->n] = hash;
    names->slot[at] = ++names->n;
    return names->n - 1;
}

int rlki_names_init(struct rlki_names *names)
{
    memset(names, 0, sizeof *names);
    names_add(names, "", 0, XXH3_64bits("", 0));
    return names->n == 1 ? 0 : -1;
}

void rlki_names_release(struct rlki_names *names)
{
    for (uint32_t i = 0; i < names->n; i++)
        free(names->text[i]);
    free(names->text);
    free(names->hash);
    free(names->slot);
    memset(names, 0, sizeof *names);
}

uint32_t rlki_names_id(struct rlki_names *names, const char *text)
{
    if (!text || !*text)
        return 0;
    size_t n = strlen(text);
    uint64_t hash = XXH3_64bits(text, n);
    uint32_t at = (uint32_t)hash & (names->nslot - 1);
    for (; names->slot[at]; at = (at + 1) & (names->nslot - 1)) {
        uint32_t id = names->slot[at] - 1;
        if (names->hash[id] == hash && strcmp(names->text[id], text) == 0)
            return id;
    }
    uint32_t id = names_add(names, text, n, hash);
    if (id == 0)
        names->failed = true;
    return id;
}

#define PAGE_BITS 16u
#define PAGE_WORDS ((1u << PAGE_BITS) / 64u)

void rlki_bits_set(struct rlki_bits *bits, uint64_t i)
{
    size_t page = (size_t)(i >> PAGE_BITS);
    if (page >= bits->npages) {
        size_t want = page + 1 + page / 2;
        uint64_t **p = realloc(bits->page, want * sizeof *p);
        if (!p) {
            bits->failed = true;
            return;
        }
        memset(p + bits->npages, 0, (want - bits->npages) * sizeof *p);
        bits->page = p;
        bits->npages = want;
    }
    if (!bits->page[page]) {
        bits->page[page] = calloc(PAGE_WORDS, sizeof(uint64_t));
        if (!bits->page[page]) {
            bits->failed = true;
            return;
        }
    }
    uint64_t in = i & ((1u << PAGE_BITS) - 1);
    bits->page[page][in / 64] |= UINT64_C(1) << (in % 64);
}

bool rlki_bits_get(const struct rlki_bits *bits, uint64_t i)
{
    size_t page = (size_t)(i >> PAGE_BITS);
    if (page >= bits->npages || !bits->page[page])
        return false;
    uint64_t in = i & ((1u << PAGE_BITS) - 1);
    return (bits->page[page][in / 64] >> (in % 64)) & 1;
}

void rlki_bits_release(struct rlki_bits *bits)
{
    for (size_t i = 0; i < bits->npages; i++)
        free(bits->page[i]);
    free(bits->page);
    memset(bits, 0, sizeof *bits);
}

static size_t table_find(const struct rlki_hash *table, uint64_t key)
{
    size_t at = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (table->cap - 1);
    while (table->key[at] && table->key[at] != key)
        at = (at + 1) & (table->cap - 1);
    return at;
}

static bool table_room(struct rlki_hash *table)
{
    if (table->n * 3 < table->cap * 2)
        return true;
    struct rlki_hash next = {.cap = table->cap ? table->cap * 2 : 64, .n = table->n, .failed = table->failed};
    next.key = calloc(next.cap, sizeof *next.key);
    next.value = calloc(next.cap, sizeof *next.value);
    if (!next.key || !next.value) {
        free(next.key);
        free(next.value);
        table->failed = true;
        return false;
    }
    for (size_t i = 0; i < table->cap; i++) {
        if (!table->key[i])
            continue;
        size_t at = table_find(&next, table->key[i]);
        next.key[at] = table->key[i];
        next.value[at] = table->value[i];
    }
    free(table->key);
    free(table->value);
    *table = next;
    return true;
}

/* 0 marks a free slot. */
static uint64_t table_key(uint64_t key)
{
    return key ? key : UINT64_C(0x6a09e667f3bcc908);
}

bool rlki_hash_get(const struct rlki_hash *table, uint64_t key, uint64_t *value)
{
    if (!table->n)
        return false;
    size_t at = table_find(table, table_key(key));
    if (!table->key[at])
        return false;
    if (value)
        *value = table->value[at];
    return true;
}

bool rlki_hash_put(struct rlki_hash *table, uint64_t key, uint64_t value)
{
    if (!table_room(table))
        return true;
    size_t at = table_find(table, table_key(key));
    bool fresh = !table->key[at];
    table->n += fresh;
    table->key[at] = table_key(key);
    table->value[at] = value;
    return fresh;
}

uint64_t rlki_hash_count(struct rlki_hash *table, uint64_t key, uint64_t add)
{
    if (!table_room(table))
        return 0;
    size_t at = table_find(table, table_key(key));
    table->n += !table->key[at];
    table->key[at] = table_key(key);
    uint64_t before = table->value[at];
    table->value[at] += add;
    return before;
}

void rlki_hash_clear(struct rlki_hash *table)
{
    if (table->n) {
        memset(table->key, 0, table->cap * sizeof *table->key);
        memset(table->value, 0, table->cap * sizeof *table->value);
    }
    table->n = 0;
}

void rlki_hash_release(struct rlki_hash *table)
{
    free(table->key);
    free(table->value);
    memset(table, 0, sizeof *table);
}
