#include "recorder/cupti/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct node {
    const void *handle, *graph;
    bool kernel;
    struct rlk_launch launch;
    uint64_t order; /* of creation, over all graphs */
};

struct exec {
    const void *handle;
    struct rlki_exec pub;
    const void **origins; /* handle of the node that each of pub.nodes came from */
};

/* Handles to records: open addressing, deleted ones marked. */
struct map {
    const void **key;
    void **value;
    size_t used, live, capacity;
};
static char deleted_mark;
#define DELETED ((const void *)&deleted_mark)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map nodes, execs;
static uint64_t orders, exec_ordinals;

static size_t home(const void *key, size_t capacity)
{
    return (size_t)(((uintptr_t)key >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 24) & (capacity - 1);
}

static void *map_get(const struct map *m, const void *key)
{
    for (size_t i = m->capacity ? home(key, m->capacity) : 0; m->capacity; i = (i + 1) & (m->capacity - 1)) {
        if (!m->key[i])
            return NULL;
        if (m->key[i] == key)
            return m->value[i];
    }
    return NULL;
}

static bool map_put(struct map *m, const void *key, void *value);

static bool map_grow(struct map *m)
{
    struct map bigger = {.capacity = m->live * 4 < 256 ? 256 : 1};
    while (bigger.capacity < m->live * 4)
        bigger.capacity *= 2;
    bigger.key = calloc(bigger.capacity, sizeof *bigger.key);
    bigger.value = calloc(bigger.capacity, sizeof *bigger.value);
    if (!bigger.key || !bigger.value) {
        free(bigger.key);
        free(bigger.value);
        return false;
    }
    for (size_t i = 0; i < m->capacity; i++)
        if (m->key[i] && m->key[i] != DELETED)
            map_put(&bigger, m->key[i], m->value[i]);
    free(m->key);
    free(m->value);
    *m = bigger;
    return true;
}

static bool map_put(struct map *m, const void *key, void *value)
{
    if (2 * (m->used + 1) > m->capacity && !map_grow(m))
        return false;
    size_t i = home(key, m->capacity);
    while (m->key[i] && m->key[i] != key)
        i = (i + 1) & (m->capacity - 1);
    m->used += !m->key[i];
    m->live += !m->key[i];
    m->key[i] = key;
    m->value[i] = value;
    return true;
}

static void *map_take(struct map *m, const void *key)
{
    for (size_t i = m->capacity ? home(key, m->capacity) : 0; m->capacity && m->key[i]; i = (i + 1) & (m->capacity - 1))
        if (m->key[i] == key) {
            m->key[i] = DELETED;
            m->live--;
            return m->value[i];
        }
    return NULL;
}

static struct node *node_of(const void *handle)
{
    struct node *n = map_get(&nodes, handle);
    if (!n) {
        n = calloc(1, sizeof *n);
        if (n && !map_put(&nodes, handle, n)) {
            free(n);
            n = NULL;
        }
        if (n) {
            n->handle = handle;
            n->order = orders++;
        }
    }
    return n;
}

void rlki_graph_node_created(const void *graph, const void *handle)
{
    pthread_mutex_lock(&lock);
    struct node *n = node_of(handle);
    if (n)
        n->graph = graph;
    pthread_mutex_unlock(&lock);
}

void rlki_graph_node_destroyed(const void *handle)
{
    pthread_mutex_lock(&lock);
    free(map_take(&nodes, handle));
    pthread_mutex_unlock(&lock);
}

void rlki_graph_node_cloned(const void *graph, const void *handle, const void *original)
{
    pthread_mutex_lock(&lock);
    const struct node *from = map_get(&nodes, original);
    struct node *n = node_of(handle); /* may move the table, never the records */
    if (n && from) {
        n->graph = graph;
        n->kernel = from->kernel;
        n->launch = from->launch;
        n->order = from->order; /* a clone runs in its original's place */
    }
    pthread_mutex_unlock(&lock);
}

void rlki_graph_destroyed(const void *graph)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < nodes.capacity; i++) {
        struct node *n = nodes.key[i] && nodes.key[i] != DELETED ? nodes.value[i] : NULL;
        if (n && n->graph == graph) {
            nodes.key[i] = DELETED;
            nodes.live--;
            free(n);
        }
    }
    pthread_mutex_unlock(&lock);
}

void rlki_graph_node_describe(const void *handle, const struct rlk_launch *launch)
{
    pthread_mutex_lock(&lock);
    struct node *n = node_of(handle);
    if (n) {
        n->kernel = true;
        n->launch = *launch;
        n->launch.nattrs = 0; /* attributes belong to the caller's stack */
        n->launch.attrs = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static int by_order(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Fills the exec's nodes from the graph's kernel nodes. */
static void adopt(struct exec *e, const void *graph)
{
    size_t n = 0;
    struct node **list = malloc((nodes.live ? nodes.live : 1) * sizeof(struct node *));
    for (size_t i = 0; list && i < nodes.capacity; i++) {
        struct node *x = nodes.key[i] && nodes.key[i] != DELETED ? nodes.value[i] : NULL;
        if (x && x->graph == graph && x->kernel)
            list[n++] = x;
    }
    struct rlk_launch *launches = calloc(n ? n : 1, sizeof *launches);
    const void **origins = calloc(n ? n : 1, sizeof *origins);
    if (!list || !launches || !origins || n > UINT32_MAX) {
        free(launches);
        free(origins);
        free(list);
        return;
    }
    qsort(list, n, sizeof *list, by_order);
    for (size_t i = 0; i < n; i++) {
        launches[i] = list[i]->launch;
        launches[i].graph = (int64_t)e->pub.ordinal;
        launches[i].node = (int64_t)i;
        origins[i] = list[i]->handle;
    }
    free(list);
    free(e->pub.nodes);
    free(e->origins);
    e->pub.nodes = launches;
    e->pub.nnodes = (uint32_t)n;
    e->origins = origins;
    e->pub.version++;
}

void rlki_exec_created(const void *handle, const void *graph)
{
    pthread_mutex_lock(&lock);
    struct exec *e = map_get(&execs, handle);
    if (!e) {
        e = calloc(1, sizeof *e);
        if (e && !map_put(&execs, handle, e)) {
            free(e);
            e = NULL;
        }
    }
    if (e) {
        e->handle = handle;
        e->pub.ordinal = exec_ordinals++;
        adopt(e, graph);
    }
    pthread_mutex_unlock(&lock);
}

void rlki_exec_destroyed(const void *handle)
{
    pthread_mutex_lock(&lock);
    struct exec *e = map_take(&execs, handle);
    if (e) {
        free(e->pub.nodes);
        free(e->origins);
        free(e);
    }
    pthread_mutex_unlock(&lock);
}

void rlki_exec_updated(const void *handle, const void *graph)
{
    pthread_mutex_lock(&lock);
    struct exec *e = map_get(&execs, handle);
    if (e)
        adopt(e, graph);
    pthread_mutex_unlock(&lock);
}

void rlki_exec_node_describe(const void *handle, const void *node, const struct rlk_launch *launch)
{
    pthread_mutex_lock(&lock);
    struct exec *e = map_get(&execs, handle);
    for (uint32_t i = 0; e && i < e->pub.nnodes; i++) {
        if (e->origins[i] != node)
            continue;
        e->pub.nodes[i] = *launch;
        e->pub.nodes[i].nattrs = 0;
        e->pub.nodes[i].attrs = NULL;
        e->pub.nodes[i].graph = (int64_t)e->pub.ordinal;
        e->pub.nodes[i].node = (int64_t)i;
        e->pub.version++;
    }
    pthread_mutex_unlock(&lock);
}

bool rlki_exec_with(const void *handle, void (*use)(void *context, struct rlki_exec *exec), void *context)
{
    pthread_mutex_lock(&lock);
    struct exec *e = map_get(&execs, handle);
    if (e)
        use(context, &e->pub);
    pthread_mutex_unlock(&lock);
    return e != NULL;
}
