#include "recorder/cupti/func_cache.h"

#include "recorder/cupti/image_map.h"
#include "store/rlk_types.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OWN_PREFIX "__rlkrec_"
#define MAX_PARAMS 4096
#define MAX_BLOCK 65536

struct entry {
    const void *handle;
    uint64_t generation;
    struct rlki_func func;
};

struct table { /* open addressing; entries are published once and never change; a larger table replaces a full one */
    size_t mask, used;
    struct entry *slot[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *table; /* old ones stay: a reader may be inside */
static uint64_t generation = 1;
static const struct rlki_func nothing = {.name = "", .image = ""};

static size_t home(const void *handle, size_t mask)
{
    return (size_t)(((uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;
}

static struct entry *find(const struct table *t, const void *handle, uint64_t now)
{
    for (size_t i = home(handle, t->mask);; i = (i + 1) & t->mask) {
        struct entry *e = __atomic_load_n(&t->slot[i], __ATOMIC_ACQUIRE);
        if (!e || (e->handle == handle && e->generation == now))
            return e;
    }
}

static void place(struct table *t, struct entry *e)
{
    size_t i = home(e->handle, t->mask);
    while (t->slot[i])
        i = (i + 1) & t->mask;
    __atomic_store_n(&t->slot[i], e, __ATOMIC_RELEASE);
    t->used++;
}

static bool grow(void)
{
    const size_t size = table ? 2 * (table->mask + 1) : 1024;
    struct table *t = calloc(1, sizeof *t + size * sizeof t->slot[0]);
    if (!t)
        return false;
    t->mask = size - 1;
    for (size_t i = 0; table && i <= table->mask; i++)
        if (table->slot[i] && table->slot[i]->generation == generation) /* stale ones stay behind */
            place(t, table->slot[i]);
    __atomic_store_n(&table, t, __ATOMIC_RELEASE);
    return true;
}

static bool param_info(const struct rlki_cupti *c, const void *handle, bool kernel, size_t i, size_t *offset,
                       size_t *size)
{
    if (kernel)
        return c->kernel_param_info &&
               c->kernel_param_info((CUkernel)(uintptr_t)handle, i, offset, size) == CUDA_SUCCESS;
    return c->func_param_info && c->func_param_info((CUfunction)(uintptr_t)handle, i, offset, size) == CUDA_SUCCESS;
}

/* No entry point gives the number of parameters in CUDA 13.0: ask until one is refused. A kernel without parameters is
 * refused at once by both kinds, which is the same answer: nothing to record. */
static void learn_layout(const struct rlki_cupti *c, const void *handle, struct rlki_func *f)
{
    size_t offset, size;
    const bool kernel = param_info(c, handle, true, 0, &offset, &size);
    struct rlki_param params[256], *all = params;
    uint32_t n = 0, room = 256, bytes = 0;
    for (; n < MAX_PARAMS && param_info(c, handle, kernel, n, &offset, &size); n++) {
        if (offset > MAX_BLOCK || size > MAX_BLOCK)
            goto out;
        if (n == room) {
            struct rlki_param *more = malloc(2 * room * sizeof *more);
            if (!more)
                goto out;
            memcpy(more, all, n * sizeof *more);
            if (all != params)
                free(all);
            all = more;
            room *= 2;
        }
        all[n] = (struct rlki_param){(uint16_t)offset, (uint16_t)size};
        if (offset + size > bytes)
            bytes = (uint32_t)(offset + size);
    }
    struct rlki_param *kept = malloc((n ? n : 1) * sizeof *kept);
    if (kept) {
        memcpy(kept, all, n * sizeof *kept);
        f->params = kept;
        f->nparams = n;
        f->block_bytes = bytes;
        f->layout_known = true;
    }
out:
    if (all != params)
        free(all);
}

const struct rlki_func *rlki_func_get(const struct rlki_cupti *cupti, const void *handle, const char *name)
{
    const struct table *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    const uint64_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    struct entry *e = t ? find(t, handle, now) : NULL;
    if (e)
        return &e->func;
    /* Asked of the driver outside the lock: a thread inside the driver may wait for us here. */
    struct entry *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return &nothing;
    const char *given = name;
    if (!given && cupti->func_name)
        if (cupti->func_name(&given, (CUfunction)(uintptr_t)handle) != CUDA_SUCCESS &&
            (!cupti->kernel_name || cupti->kernel_name(&given, (CUkernel)(uintptr_t)handle) != CUDA_SUCCESS))
            given = NULL;
    fresh->handle = handle;
    fresh->generation = now;
    fresh->func.name = given ? strndup(given, RLK_MAX_STRING) : NULL;
    if (!fresh->func.name)
        fresh->func.name = "";
    fresh->func.image = rlki_image_of(fresh->func.name);
    fresh->func.own = strncmp(fresh->func.name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0;
    learn_layout(cupti, handle, &fresh->func);
    pthread_mutex_lock(&lock);
    if ((!table || 2 * (table->used + 1) > table->mask + 1) && !grow()) {
        pthread_mutex_unlock(&lock);
        return &fresh->func; /* kept by nobody: asked again next time */
    }
    place(table, fresh);
    pthread_mutex_unlock(&lock);
    return &fresh->func;
}

void rlki_func_forget_all(void)
{
    pthread_mutex_lock(&lock);
    __atomic_store_n(&generation, generation + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}
