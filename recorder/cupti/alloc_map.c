#include "recorder/cupti/alloc_map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint64_t base, end, ordinal;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *table; /* sorted by base; replaced, never freed */
static uint64_t count, capacity, ordinals;
static uint64_t low = UINT64_MAX, high; /* no allocation was ever outside: most parameter words are no addresses */
static uint64_t sequence;               /* odd while a writer is inside */

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

static void begin(void)
{
    __atomic_store_n(&sequence, sequence + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end(void)
{
    __atomic_store_n(&sequence, sequence + 1, __ATOMIC_RELEASE);
}

/* Index of the first range with base > address. Fields are read one by one: a torn look is caught by the sequence. */
static uint64_t upper(const struct range *t, uint64_t n, uint64_t address)
{
    uint64_t a = 0, b = n;
    while (a < b) {
        const uint64_t m = (a + b) / 2;
        if (LOAD(t[m].base) <= address)
            a = m + 1;
        else
            b = m;
    }
    return a;
}

static void put(struct range *at, const struct range *from)
{
    STORE(at->base, from->base);
    STORE(at->end, from->end);
    STORE(at->ordinal, from->ordinal);
}

uint64_t rlki_alloc_add(uint64_t base, uint64_t bytes)
{
    uint64_t ordinal = 0;
    if (!base || !bytes || base + bytes < base)
        return 0;
    pthread_mutex_lock(&lock);
    if (count == capacity) {
        const uint64_t more = capacity ? 2 * capacity : 256;
        struct range *t = malloc(more * sizeof *t);
        if (!t)
            goto out;
        if (count)
            memcpy(t, table, count * sizeof *t);
        __atomic_store_n(&table, t, __ATOMIC_RELEASE);
        capacity = more;
    }
    ordinal = ++ordinals;
    const struct range fresh = {base, base + bytes, ordinal};
    const uint64_t at = upper(table, count, base);
    begin();
    if (at > 0 && table[at - 1].base == base) { /* its free was not seen: the new one replaces it */
        put(&table[at - 1], &fresh);
    } else {
        for (uint64_t i = count; i > at; i--)
            put(&table[i], &table[i - 1]);
        put(&table[at], &fresh);
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    }
    if (base < low)
        STORE(low, base);
    if (base + bytes > high)
        STORE(high, base + bytes);
    end();
out:
    pthread_mutex_unlock(&lock);
    return ordinal;
}

void rlki_alloc_remove(uint64_t base)
{
    pthread_mutex_lock(&lock);
    const uint64_t at = upper(table, count, base);
    if (at > 0 && table[at - 1].base == base) {
        begin();
        for (uint64_t i = at; i < count; i++)
            put(&table[i - 1], &table[i]);
        STORE(count, count - 1);
        end();
    }
    pthread_mutex_unlock(&lock);
}

/* The range that a word was found in last, as long as nothing changed: parameters lie close together. */
static __thread struct {
    uint64_t sequence;
    struct range range;
} recent;

static bool find(uint64_t address, uint64_t *ordinal, uint64_t *offset)
{
    for (;;) {
        const uint64_t before = __atomic_load_n(&sequence, __ATOMIC_ACQUIRE);
        if (before & 1)
            continue;
        if (recent.sequence == before && address >= recent.range.base && address < recent.range.end) {
            *ordinal = recent.range.ordinal;
            *offset = address - recent.range.base;
            return true;
        }
        /* the count first: the table seen after it has room for at least as many */
        const uint64_t n = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
        const struct range *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
        const uint64_t at = t ? upper(t, n, address) : 0;
        struct range r = {0, 0, 0};
        if (at > 0)
            r = (struct range){LOAD(t[at - 1].base), LOAD(t[at - 1].end), LOAD(t[at - 1].ordinal)};
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&sequence, __ATOMIC_RELAXED) != before)
            continue;
        if (at == 0 || address >= r.end)
            return false;
        recent.sequence = before;
        recent.range = r;
        *ordinal = r.ordinal;
        *offset = address - r.base;
        return true;
    }
}

bool rlki_alloc_find(uint64_t address, uint64_t *ordinal, uint64_t *offset)
{
    return address >= LOAD(low) && address < LOAD(high) && find(address, ordinal, offset);
}

void rlki_alloc_relocate(unsigned char *block, size_t bytes)
{
    const uint64_t least = LOAD(low), past = LOAD(high);
    for (size_t o = 0; o + 8 <= bytes; o += 8) {
        uint64_t word, ordinal, offset;
        memcpy(&word, block + o, 8);
        if (word < least || word >= past || !find(word, &ordinal, &offset))
            continue;
        word = UINT64_C(1) << 63 | (ordinal & 0x7fffff) << 40 | (offset & 0xffffffffff);
        memcpy(block + o, &word, 8);
    }
}

uint64_t rlki_alloc_count(void)
{
    return LOAD(count);
}
