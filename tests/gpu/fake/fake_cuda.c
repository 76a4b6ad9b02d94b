#include "tests/gpu/fake/fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONTEXTS 64
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define INVALID_CONTEXT 201

struct context {
    int device, broken; /* broken: atomic */
    unsigned long long id;
};

struct module {
    unsigned long long context;
};

struct work {
    struct work *next;
    void *parameters; /* of a digest; NULL: a copy */
    void *to;
    const void *from;
    size_t bytes;
    struct context *context;
};

struct stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **last;
    bool held, busy, capturing, started;
    size_t captured;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[MAX_CONTEXTS]; /* 0..7: the primary ones */
static bool active[8];
static int ncontexts = 8;
static struct context *destroyed;
static unsigned long long ids = 100;
static __thread struct context *current, *below;
static struct stream *legacy;
static bool run_inline;
static int query_error;
static struct fake_counts counts;
static struct {
    const char *entry;
    unsigned n;
    int code;
} failing[8];

/* The error that this call meets: one that was asked for, or the context's own. */
static int meets(const char *entry, struct context *c)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 8 && !code; i++)
        if (failing[i].entry && !strcmp(failing[i].entry, entry) && (failing[i].n == 0 || --failing[i].n == 0))
            code = failing[i].code;
    pthread_mutex_unlock(&lock);
    return code ? code : c ? __atomic_load_n(&c->broken, __ATOMIC_ACQUIRE) : 0;
}

void fake_fail(const char *entry, unsigned n, int code)
{
    pthread_mutex_lock(&lock);
    int at = 0;
    for (int i = 7; i >= 0; i--)
        if (!failing[i].entry || !strcmp(failing[i].entry, entry))
            at = i;
    failing[at].entry = code ? entry : NULL;
    failing[at].n = n;
    failing[at].code = code;
    pthread_mutex_unlock(&lock);
}

/* For a program that knows nothing of us: FAKE_CUDA=inline. */
__attribute__((constructor)) static void start(void)
{
    const char *how = getenv("FAKE_CUDA");
    run_inline = how && !strcmp(how, "inline");
    active[0] = run_inline;
}

void fake_inline(bool on)
{
    run_inline = on;
}

struct fake_counts fake_counts_now(void)
{
    pthread_mutex_lock(&lock);
    struct fake_counts c = counts;
    pthread_mutex_unlock(&lock);
    return c;
}

void fake_use_device(int ordinal)
{
    pthread_mutex_lock(&lock);
    active[ordinal] = true;
    contexts[ordinal].device = ordinal;
    pthread_mutex_unlock(&lock);
    current = &contexts[ordinal];
}

void *fake_context_new(int ordinal)
{
    pthread_mutex_lock(&lock);
    struct context *c = destroyed ? destroyed : &contexts[ncontexts++];
    destroyed = NULL;
    *c = (struct context){.device = ordinal, .id = ++ids};
    pthread_mutex_unlock(&lock);
    return current = c;
}

void fake_context_destroy(void *context)
{
    pthread_mutex_lock(&lock);
    destroyed = context;
    destroyed->id = 0;
    pthread_mutex_unlock(&lock);
    current = NULL;
}

void fake_set_current(void *context)
{
    current = context;
}

void fake_break(void *context, int code)
{
    struct context *c = context ? context : current;
    __atomic_store_n(&c->broken, code, __ATOMIC_RELEASE);
}

/* ---- streams */
static void perform(struct work *w)
{
    if (w->context && __atomic_load_n(&w->context->broken, __ATOMIC_ACQUIRE))
        return; /* a broken context runs nothing */
    if (w->parameters)
        fake_digest_kernel(w->parameters);
    else
        memcpy(w->to, w->from, w->bytes);
}

static void *worker(void *value)
{
    struct stream *s = value;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first || s->held)
            pthread_cond_wait(&s->changed, &s->lock);
        struct work *w = s->first;
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        perform(w);
        free(w->parameters);
        free(w);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    return NULL;
}

void *fake_stream_new(void)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->last = &s->first;
    return s;
}

static struct stream *stream_of(void *stream)
{
    pthread_mutex_lock(&lock);
    if (!stream && !legacy)
        legacy = fake_stream_new();
    struct stream *s = stream ? stream : legacy;
    pthread_mutex_unlock(&lock);
    return s;
}

static void enqueue(struct stream *s, struct work *w)
{
    pthread_t thread;
    w->context = current;
    if (run_inline) {
        perform(w);
        free(w->parameters);
        free(w);
        return;
    }
    pthread_mutex_lock(&s->lock);
    *s->last = w;
    s->last = &w->next;
    if (!s->started) {
        s->started = true;
        if (pthread_create(&thread, NULL, worker, s))
            abort();
        pthread_detach(thread);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void fake_stream_hold(void *stream, bool held)
{
    struct stream *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    s->held = held;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void fake_stream_sync(void *stream)
{
    struct stream *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void fake_copy(void *stream, void *to, const void *from, size_t bytes)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->to = to;
    w->from = from;
    w->bytes = bytes;
    enqueue(stream_of(stream), w);
}

void fake_capture_begin(void *stream)
{
    struct stream *s = stream_of(stream);
    s->capturing = true;
    s->captured = 0;
}

size_t fake_capture_end(void *stream)
{
    struct stream *s = stream_of(stream);
    s->capturing = false;
    return s->captured;
}

void fake_capture_query_fails(int code)
{
    query_error = code;
}

/* ---- the driver's entry points */
#define API __attribute__((visibility("default"))) int
API cuCtxGetCurrent(void **out);
API cuCtxGetDevice(int *out);
API cuCtxGetId(void *context, unsigned long long *out);
API cuCtxPushCurrent_v2(void *context);
API cuCtxPopCurrent_v2(void **out);
API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active);
API cuDevicePrimaryCtxRetain(void **out, int device);
API cuDevicePrimaryCtxRelease_v2(int device);
API cuDeviceGetAttribute(int *out, int attribute, int device);
API cuModuleLoadData(void **out, const void *image);
API cuModuleUnload(void *module);
API cuModuleGetFunction(void **out, void *module, const char *name);
API cuMemAlloc_v2(uint64_t *out, size_t bytes);
API cuMemFree_v2(uint64_t address);
API cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes);
API cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags);
API cuMemHostUnregister(void *p);
API cuMemHostAlloc(void **out, size_t bytes, unsigned flags);
API cuMemFreeHost(void *p);
API cuMemHostGetDevicePointer_v2(uint64_t *out, void *p, unsigned flags);
API cuThreadExchangeStreamCaptureMode(int *mode);
API cuStreamIsCapturing(void *stream, int *status);
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
API cuStreamSynchronize(void *stream);
API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void *stream, void **parameters, void **extra);

int cuCtxGetCurrent(void **out)
{
    *out = current;
    return meets("cuCtxGetCurrent", NULL);
}

int cuCtxGetDevice(int *out)
{
    if (!current)
        return INVALID_CONTEXT;
    *out = current->device;
    return 0;
}

int cuCtxGetId(void *context, unsigned long long *out)
{
    *out = ((struct context *)context)->id;
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    below = current;
    current = context;
    return 0;
}

int cuCtxPopCurrent_v2(void **out)
{
    *out = current;
    current = below;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    if (device < 0 || device >= 8)
        return INVALID_VALUE;
    *flags = 0;
    pthread_mutex_lock(&lock);
    *is_active = active[device];
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **out, int device)
{
    *out = &contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    (void)attribute, (void)device;
    *out = 4;
    return 0;
}

int cuModuleLoadData(void **out, const void *image)
{
    struct module *m = malloc(sizeof *m);
    if (!m)
        return OUT_OF_MEMORY;
    (void)image;
    m->context = current->id;
    *out = m;
    return meets("cuModuleLoadData", current);
}

int cuModuleUnload(void *module)
{
    free(module);
    return 0;
}

int cuModuleGetFunction(void **out, void *module, const char *name)
{
    (void)name;
    *out = module;
    return 0;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    const int code = meets("cuMemAlloc_v2", current);
    void *p = code ? NULL : malloc(bytes);
    if (!p)
        return code ? code : OUT_OF_MEMORY;
    *out = (uint64_t)(uintptr_t)p;
    pthread_mutex_lock(&lock);
    counts.device_bytes += bytes;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    free((void *)(uintptr_t)address);
    return 0;
}

int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)address, value, bytes);
    return 0;
}

static int pin(const char *entry, size_t bytes)
{
    const int code = meets(entry, current);
    pthread_mutex_lock(&lock);
    counts.pinned_bytes += code ? 0 : bytes;
    pthread_mutex_unlock(&lock);
    return code;
}

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    (void)p, (void)flags;
    return pin("cuMemHostRegister_v2", bytes);
}

int cuMemHostUnregister(void *p)
{
    (void)p;
    return 0;
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    const int code = pin("cuMemHostAlloc", bytes);
    *out = code ? NULL : malloc(bytes);
    return code ? code : *out ? 0 : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *p)
{
    free(p);
    return 0;
}

int cuMemHostGetDevicePointer_v2(uint64_t *out, void *p, unsigned flags)
{
    (void)flags;
    *out = (uint64_t)(uintptr_t)p;
    return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    static __thread int mine;
    const int before = mine;
    mine = *mode;
    *mode = before;
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    const struct stream *s = stream_of(stream);
    pthread_mutex_lock(&lock);
    counts.capture_queries++;
    pthread_mutex_unlock(&lock);
    *status = s->capturing;
    return query_error;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    const int code = meets("cuMemcpyDtoHAsync_v2", current);
    if (!code)
        fake_copy(stream, to, (const void *)(uintptr_t)from, bytes);
    return code;
}

int cuStreamSynchronize(void *stream)
{
    fake_stream_sync(stream);
    return current ? __atomic_load_n(&current->broken, __ATOMIC_ACQUIRE) : INVALID_CONTEXT;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void *stream, void **parameters, void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)smem, (void)extra;
    const int code = current ? meets("cuLaunchKernel", current) : INVALID_CONTEXT;
    struct stream *s = stream_of(stream);
    if (code)
        return code;
    if (((struct module *)f)->context != current->id)
        abort(); /* what a driver does with a function of a context that is gone, if it does not do worse */
    if (s->capturing) {
        s->captured++;
        return 0;
    }
    struct work *w = calloc(1, sizeof *w);
    const size_t n = fake_digest_parameters(parameters[0]);
    if (!w || !(w->parameters = malloc(n)))
        abort();
    memcpy(w->parameters, parameters[0], n);
    pthread_mutex_lock(&lock);
    counts.launches++;
    pthread_mutex_unlock(&lock);
    enqueue(s, w);
    return 0;
}
