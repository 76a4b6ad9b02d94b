#include "store/rlk_digest_gpu.h"

#include "store/cuda/rlk_digest_segment.h"
#include "store/rlk_cuda_symbols.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The driver's few entry points that we need; CUresult is an int, handles are pointers. Declared here so that the file
 * builds without a CUDA toolkit. Values and names: cuda.h. */
typedef int (*launch_fn)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned smem, void *stream, void **params, void **extra);
struct driver {
    int (*ctx_get_current)(void **);
    int (*ctx_get_device)(int *);
    int (*device_get_attribute)(int *, int, int);
    int (*module_load_data)(void **, const void *);
    int (*module_unload)(void *);
    int (*module_get_function)(void **, void *, const char *);
    int (*mem_alloc)(uint64_t *, size_t);
    int (*mem_free)(uint64_t);
    int (*memset_d8)(uint64_t, unsigned char, size_t);
    int (*mem_host_register)(void *, size_t, unsigned);
    int (*mem_host_unregister)(void *);
    int (*mem_host_alloc)(void **, size_t, unsigned);
    int (*mem_host_free)(void *);
    int (*mem_host_device_pointer)(uint64_t *, void *, unsigned);
    int (*thread_exchange_capture_mode)(int *);
    launch_fn launch;
};
#define CU_HOST_PORTABLE 1u
#define CU_HOST_MAPPED 2u
#define CU_ATTR_SM_COUNT 16
#define CU_CAPTURE_RELAXED 2

#ifdef RLK_HAVE_CUDA
extern const unsigned char rlki_digest_fatbin[];
static const void *const kernel_code = rlki_digest_fatbin;
#else
static const void *const kernel_code = NULL;
#endif

/* Three blocks of the kernel fit on a multiprocessor: four full waves, short enough that the last one costs little. */
#define BLOCKS_PER_SM 12
#define CAPTURED_SHARE 4u /* tensors in captured launches, for good: slots / 4 */
/* Tickets of captured launches have the top bit: a replay repeats them. */
#define CAPTURED_TICKET (UINT64_C(1) << 63)

struct rlk_gpu_digester {
    struct driver cu;
    pthread_mutex_t lock; /* enqueue */
    void *module, *tiny, *small, *large;
    uint32_t slots, captured_slots, captured_next, target_blocks;
    uint64_t acc, captured_acc, ring; /* device */
    struct rlkg_record *records;      /* slots ordinary ones, then slots of captured replays */
    size_t host_bytes;
    bool ours; /* else the driver's */
    uint64_t records_device;
    volatile uint64_t *consumed; /* host word that the device reads: captured results handed over */
    uint64_t consumed_device;
    uint64_t next;              /* ticket of the next tensor */
    uint64_t drained;           /* tickets before it were handed over */
    uint64_t captured_position; /* next captured result to read */
    uint8_t *void_ticket;       /* by ticket % slots: its launch failed, no result will come */
    uint64_t launches, tensors, results;
};

struct params { /* head, then as many segments as the kernel takes */
    struct rlkg_params_head head;
    struct rlkg_segment segment[RLKG_SEGMENTS];
};

static int load_driver(struct driver *cu, struct rlk_detail *detail)
{
    static const struct rlki_cuda_symbol table[] = {
#define ENTRY(name, field) {name, offsetof(struct driver, field)}
        ENTRY("cuCtxGetCurrent", ctx_get_current),
        ENTRY("cuCtxGetDevice", ctx_get_device),
        ENTRY("cuDeviceGetAttribute", device_get_attribute),
        ENTRY("cuModuleLoadData", module_load_data),
        ENTRY("cuModuleUnload", module_unload),
        ENTRY("cuModuleGetFunction", module_get_function),
        ENTRY("cuMemAlloc_v2", mem_alloc),
        ENTRY("cuMemFree_v2", mem_free),
        ENTRY("cuMemsetD8_v2", memset_d8),
        ENTRY("cuMemHostRegister_v2", mem_host_register),
        ENTRY("cuMemHostUnregister", mem_host_unregister),
        ENTRY("cuMemHostAlloc", mem_host_alloc),
        ENTRY("cuMemFreeHost", mem_host_free),
        ENTRY("cuMemHostGetDevicePointer_v2", mem_host_device_pointer),
        ENTRY("cuThreadExchangeStreamCaptureMode", thread_exchange_capture_mode),
        ENTRY("cuLaunchKernel", launch),
#undef ENTRY
    };
    return rlki_cuda_symbols(cu, table, sizeof table / sizeof table[0], true, detail);
}

/* Our own pages, registered: the driver's would vanish with the context under a drain that is reading them. A forked
 * child does not get them, so a fork cannot give the parent other pages than those that the device writes. Where the
 * driver registers no memory (some containers), its own. */
static int host_memory(struct rlk_gpu_digester *d, size_t bytes, struct rlk_detail *detail)
{
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED)
        return rlk_fail(detail, RLK_ENOMEM, "no memory for %zu bytes of results", bytes);
    madvise(host, bytes, MADV_DONTFORK);
    memset(host, 0, bytes);
    d->ours = d->cu.mem_host_register(host, bytes, CU_HOST_PORTABLE | CU_HOST_MAPPED) == 0;
    if (!d->ours) {
        munmap(host, bytes);
        if (d->cu.mem_host_alloc(&host, bytes, CU_HOST_PORTABLE | CU_HOST_MAPPED))
            return rlk_fail(detail, RLK_ENOMEM, "no pinned memory for %zu bytes of results", bytes);
        memset(host, 0, bytes);
    }
    d->records = host;
    d->host_bytes = bytes;
    return RLK_OK;
}

static int allocate(struct rlk_gpu_digester *d, struct rlk_detail *detail)
{
    const size_t acc_bytes = ((size_t)d->slots + d->captured_slots) * sizeof(struct rlkg_acc);
    const size_t record_bytes = 2 * (size_t)d->slots * sizeof(struct rlkg_record);
    if (d->cu.mem_alloc(&d->acc, acc_bytes) || d->cu.mem_alloc(&d->ring, sizeof(struct rlkg_captured)) ||
        d->cu.memset_d8(d->acc, 0, acc_bytes) || d->cu.memset_d8(d->ring, 0, sizeof(struct rlkg_captured)))
        return rlk_fail(detail, RLK_ENOMEM, "no device memory for %zu bytes of accumulators", acc_bytes);
    d->captured_acc = d->acc + (uint64_t)d->slots * sizeof(struct rlkg_acc);
    int err = host_memory(d, record_bytes + 64, detail);
    if (err)
        return err;
    void *host = d->records;
    d->consumed = (volatile uint64_t *)(void *)((char *)host + record_bytes);
    if (d->cu.mem_host_device_pointer(&d->records_device, host, 0))
        return rlk_fail(detail, RLK_EUNSUPPORTED, "pinned memory is not mapped to the device");
    d->consumed_device = d->records_device + record_bytes;
    return RLK_OK;
}

int rlk_gpu_digester_new(struct rlk_gpu_digester **out, uint32_t slots, struct rlk_detail *detail)
{
    void *context = NULL;
    int device = 0, sms = 0, err, mode = CU_CAPTURE_RELAXED, code;
    bool exchanged = false;
    *out = NULL;
    if (!slots)
        slots = 32768;
    if (slots & (slots - 1) || slots < 2 * RLK_GPU_MAX_TENSORS || slots > (1u << 24))
        return rlk_fail(detail, RLK_EINVAL, "slots = %u: a power of two from 256 to 2^24", slots);
    if (!kernel_code)
        return rlk_fail(detail, RLK_EUNSUPPORTED, "built without CUDA");
    struct rlk_gpu_digester *d = calloc(1, sizeof *d);
    if (!d)
        return RLK_ENOMEM;
    pthread_mutex_init(&d->lock, NULL);
    d->slots = slots;
    d->captured_slots = slots / CAPTURED_SHARE;
    d->void_ticket = calloc(slots, 1);
    err = d->void_ticket ? RLK_OK : RLK_ENOMEM;
    if (err)
        goto out;
    err = load_driver(&d->cu, detail);
    if (err)
        goto out;
    err = RLK_EUNSUPPORTED;
    if (d->cu.ctx_get_current(&context) || !context) {
        rlk_fail(detail, err, "no current CUDA context");
        goto out;
    }
    /* Another thread may be capturing in the global mode: our allocations must not break that. */
    exchanged = d->cu.thread_exchange_capture_mode(&mode) == 0;
    if (d->cu.ctx_get_device(&device) || d->cu.device_get_attribute(&sms, CU_ATTR_SM_COUNT, device)) {
        rlk_fail(detail, err, "the device does not answer");
        goto out;
    }
    d->target_blocks = (uint32_t)(sms > 0 ? sms : 1) * BLOCKS_PER_SM;
    code = d->cu.module_load_data(&d->module, kernel_code);
    if (code || d->cu.module_get_function(&d->tiny, d->module, "__rlkrec_digest_2") ||
        d->cu.module_get_function(&d->small, d->module, "__rlkrec_digest_8") ||
        d->cu.module_get_function(&d->large, d->module, "__rlkrec_digest_128")) {
        rlk_fail(detail, err, "the digest kernel does not load on this device (CUDA error %d)", code);
        goto out;
    }
    err = allocate(d, detail);
out:
    if (exchanged)
        d->cu.thread_exchange_capture_mode(&mode);
    if (err)
        rlk_gpu_digester_free(d, false);
    else
        *out = d;
    return err;
}

void rlk_gpu_digester_free(struct rlk_gpu_digester *d, bool lost)
{
    if (!d)
        return;
    if (!lost && d->cu.mem_free) {
        if (d->acc)
            d->cu.mem_free(d->acc);
        if (d->ring)
            d->cu.mem_free(d->ring);
        if (d->module)
            d->cu.module_unload(d->module);
    }
    if (d->records && d->ours) {
        if (!lost)
            d->cu.mem_host_unregister(d->records);
        munmap(d->records, d->host_bytes);
    } else if (d->records && !lost) {
        d->cu.mem_host_free(d->records);
    }
    pthread_mutex_destroy(&d->lock);
    free(d->void_ticket);
    free(d);
}

int rlk_gpu_digest_plan(const struct rlk_view *view, const struct rlk_place *place, struct rlk_detail *detail)
{
    struct rlkg_segment segments[RLKG_SEGMENTS];
    uint32_t n = 0;
    return rlki_segments(segments, &n, 0, view, place, detail);
}

static int reserve(struct rlk_gpu_digester *d, uint32_t n, bool captured, struct rlkg_params_head *head,
                   struct rlk_detail *detail)
{
    head->captured = captured;
    if (captured) {
        if (d->captured_next + n > d->captured_slots)
            return rlk_fail(detail, RLK_EFULL, "more than %u tensors captured", d->captured_slots);
        head->id = CAPTURED_TICKET + d->captured_next;
        head->acc = d->captured_acc;
        head->records = d->records_device + (uint64_t)d->slots * sizeof(struct rlkg_record);
        head->ring = d->ring;
        head->consumed = d->consumed_device;
        d->captured_next += n;
        return RLK_OK;
    }
    if (d->next + n - __atomic_load_n(&d->drained, __ATOMIC_ACQUIRE) > d->slots)
        return rlk_fail(detail, RLK_EFULL, "%u results are outstanding", d->slots);
    head->id = d->next;
    head->acc = d->acc;
    head->records = d->records_device;
    for (uint64_t t = d->next; t < d->next + n; t++)
        __atomic_store_n(&d->void_ticket[t & (d->slots - 1)], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&d->next, d->next + n, __ATOMIC_RELEASE);
    return RLK_OK;
}

static void give_up(struct rlk_gpu_digester *d, uint32_t n, const struct rlkg_params_head *head)
{
    if (head->captured)
        d->captured_next -= n;
    else
        for (uint64_t t = head->id; t < head->id + n; t++)
            __atomic_store_n(&d->void_ticket[t & (d->slots - 1)], 1, __ATOMIC_RELEASE);
}

int rlk_gpu_digest_enqueue(struct rlk_gpu_digester *d, const struct rlk_view *views,
                           const struct rlk_place *const *places, size_t n, void *stream, bool captured,
                           uint64_t *first, struct rlk_detail *detail)
{
    struct params p;
    uint32_t segments = 0, blocks;
    void *arguments[1] = {&p}, *kernel;
    int err = RLK_OK, code;
    if (n == 0 || n > RLK_GPU_MAX_TENSORS)
        return rlk_fail(detail, RLK_EINVAL, "%zu tensors: 1 to %u a launch", n, RLK_GPU_MAX_TENSORS);
    for (size_t i = 0; i < n && !err; i++)
        err = rlki_segments(p.segment, &segments, (uint16_t)i, &views[i], places ? places[i] : NULL, detail);
    if (err)
        return err;
    blocks = rlki_segments_blocks(p.segment, segments, d->target_blocks);

    pthread_mutex_lock(&d->lock);
    err = reserve(d, (uint32_t)n, captured, &p.head, detail);
    if (err)
        goto out;
    p.head.slots = d->slots;
    p.head.ntensors = (uint32_t)n;
    p.head.nsegments = segments;
    kernel = segments <= 2 ? d->tiny : segments <= 8 ? d->small : d->large;
    code = d->cu.launch(kernel, blocks, 1, 1, RLKG_THREADS, 1, 1, 0, stream, arguments, NULL);
    if (code) {
        give_up(d, (uint32_t)n, &p.head);
        err = rlk_fail(detail, RLK_ESTATE, "the digest kernel did not launch (CUDA error %d)", code);
        goto out;
    }
    *first = p.head.id;
    __atomic_fetch_add(&d->launches, 1, __ATOMIC_RELAXED); /* stats() looks from anywhere */
    __atomic_fetch_add(&d->tensors, n, __ATOMIC_RELAXED);
out:
    pthread_mutex_unlock(&d->lock);
    return err;
}

uint64_t rlk_gpu_digest_next(const struct rlk_gpu_digester *d)
{
    return __atomic_load_n(&d->next, __ATOMIC_ACQUIRE);
}

/* Reads the record if all its words carry `seq`: the device writes them in any order. */
static bool read_record(const struct rlkg_record *r, uint64_t seq, uint64_t *ticket, struct rlk_sums *s)
{
    uint64_t w[RLKG_WORDS];
    for (int i = 0; i < RLKG_WORDS; i++) {
        if (__atomic_load_n(&r->word[i].seq, __ATOMIC_ACQUIRE) != seq)
            return false;
        w[i] = __atomic_load_n(&r->word[i].value, __ATOMIC_RELAXED);
    }
    *ticket = w[RLKG_ID];
    *s = (struct rlk_sums){.positional = {w[RLKG_POS_LO], w[RLKG_POS_HI]},
                           .multiset = w[RLKG_MULTISET],
                           .nan = w[RLKG_NAN],
                           .inf = w[RLKG_INF],
                           .negzero = w[RLKG_NEGZERO]};
    s->value = rlk_u128_add(s->positional, (rlk_u128){w[RLKG_DIFF_LO], w[RLKG_DIFF_HI]});
    return true;
}

size_t rlk_gpu_digest_drain(struct rlk_gpu_digester *d,
                            void (*sink)(void *context, uint64_t ticket, const struct rlk_sums *sums), void *context)
{
    const uint64_t next = __atomic_load_n(&d->next, __ATOMIC_ACQUIRE);
    struct rlk_sums sums;
    uint64_t ticket, t = d->drained;
    size_t got = 0;
    for (; t < next; t++) {
        const uint64_t slot = t & (d->slots - 1);
        if (__atomic_load_n(&d->void_ticket[slot], __ATOMIC_ACQUIRE))
            continue;
        if (!read_record(&d->records[slot], t + 1, &ticket, &sums))
            break;
        sink(context, ticket, &sums);
        got++;
    }
    __atomic_store_n(&d->drained, t, __ATOMIC_RELEASE);
    const struct rlkg_record *captured = d->records + d->slots;
    const uint64_t before = d->captured_position;
    while (read_record(&captured[d->captured_position & (d->slots - 1)], d->captured_position + 1, &ticket, &sums)) {
        d->captured_position++;
        sink(context, ticket, &sums);
        got++;
    }
    if (d->captured_position != before)
        *d->consumed = d->captured_position;
    __atomic_fetch_add(&d->results, got, __ATOMIC_RELAXED);
    return got;
}

void rlk_gpu_digest_stats(struct rlk_gpu_digester *d, struct rlk_gpu_digest_stats *out)
{
    memset(out, 0, sizeof *out);
    out->device_bytes =
        ((uint64_t)d->slots + d->captured_slots) * sizeof(struct rlkg_acc) + sizeof(struct rlkg_captured);
    out->host_bytes = (uint64_t)d->slots * (2 * sizeof(struct rlkg_record) + 1) + 64;
    out->launches = __atomic_load_n(&d->launches, __ATOMIC_RELAXED);
    out->tensors = __atomic_load_n(&d->tensors, __ATOMIC_RELAXED);
    out->results = __atomic_load_n(&d->results, __ATOMIC_RELAXED);
}
