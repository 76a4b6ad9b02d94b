#include "recorder/cupti/guest.h"

#include "recorder/cupti/cupti_api.h"

#include <pthread.h>

#define DOMAINS 16u
#define IDS 2048u

int rlki_guest_wants;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct rlki_cupti *cupti; /* set once the launch plane holds CUPTI */
static CUpti_SubscriberHandle ours;
static int token; /* the handle of a guest that CUPTI does not know */
static struct {
    void *handle; /* NULL: no guest */
    rlk_guest_callback callback;
    void *userdata;
    uint64_t ids[DOMAINS][IDS / 64]; /* what it enabled; words are atomic */
} guest;

static bool enabled(int domain, uint32_t cbid)
{
    if ((unsigned)domain >= DOMAINS || cbid >= IDS)
        return false;
    return __atomic_load_n(&guest.ids[domain][cbid / 64], __ATOMIC_ACQUIRE) >> cbid % 64 & 1;
}

static void mark(uint32_t on, int domain, uint32_t cbid)
{
    uint64_t *word = &guest.ids[domain][cbid / 64], bit = UINT64_C(1) << cbid % 64;
    if (on)
        __atomic_fetch_or(word, bit, __ATOMIC_RELEASE);
    else
        __atomic_fetch_and(word, ~bit, __ATOMIC_RELEASE);
}

/* Under the lock. */
static void sum_up(void)
{
    uint64_t any = 0;
    for (unsigned d = 0; d < DOMAINS; d++)
        for (unsigned i = 0; i < IDS / 64; i++)
            any |= guest.ids[d][i];
    __atomic_store_n(&rlki_guest_wants, cupti && guest.handle && any, __ATOMIC_RELEASE);
}

static void forget(void)
{
    guest.handle = NULL;
    for (unsigned d = 0; d < DOMAINS; d++)
        for (unsigned i = 0; i < IDS / 64; i++)
            __atomic_store_n(&guest.ids[d][i], 0, __ATOMIC_RELEASE);
    sum_up();
}

/* callback and userdata stay after an unsubscribe: a callback may be under way. */
static void remember(void *handle, rlk_guest_callback callback, void *userdata)
{
    forget();
    __atomic_store_n(&guest.userdata, userdata, __ATOMIC_RELEASE);
    __atomic_store_n(&guest.callback, callback, __ATOMIC_RELEASE);
    guest.handle = handle;
}

/* ---- the guest's calls */
static bool subscribe(void **handle, rlk_guest_callback callback, void *userdata, int *result)
{
    bool answered = false;
    pthread_mutex_lock(&lock);
    if (cupti) {
        answered = true;
        *result = guest.handle ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
        if (!callback || !handle)
            *result = CUPTI_ERROR_INVALID_PARAMETER;
        if (*result == CUPTI_SUCCESS) {
            remember(&token, callback, userdata);
            *handle = &token;
        }
    }
    pthread_mutex_unlock(&lock);
    return answered;
}

static void adopted(void *handle, rlk_guest_callback callback, void *userdata)
{
    pthread_mutex_lock(&lock);
    if (!cupti && handle)
        remember(handle, callback, userdata);
    pthread_mutex_unlock(&lock);
}

static bool unsubscribe(void *handle, int *result)
{
    bool answered = false;
    pthread_mutex_lock(&lock);
    if (guest.handle && guest.handle == handle) {
        answered = cupti != NULL;
        *result = CUPTI_SUCCESS;
        forget();
    }
    pthread_mutex_unlock(&lock);
    return answered;
}

static bool enable_callback(uint32_t enable, void *handle, int domain, uint32_t cbid, int *result)
{
    bool answered = false;
    pthread_mutex_lock(&lock);
    if (guest.handle && guest.handle == handle && (unsigned)domain < DOMAINS && cbid < IDS) {
        /* What it disables may be one that we need: it stays enabled and is no longer passed on. */
        *result = CUPTI_SUCCESS;
        if (cupti && enable)
            *result = (int)cupti->enable_callback(1, ours, (CUpti_CallbackDomain)domain, cbid);
        if (*result == CUPTI_SUCCESS)
            mark(enable, domain, cbid);
        answered = cupti != NULL;
        sum_up();
    }
    pthread_mutex_unlock(&lock);
    return answered;
}

static bool enable_domain(uint32_t enable, void *handle, int domain, int *result)
{
    bool answered = false;
    pthread_mutex_lock(&lock);
    if (guest.handle && guest.handle == handle && (unsigned)domain < DOMAINS) {
        *result = CUPTI_SUCCESS;
        for (uint32_t id = 1; id < IDS; id++)
            mark(enable, domain, id);
        for (uint32_t id = 1; cupti && enable && id < IDS; id++) /* ids that do not exist are refused: no matter */
            (void)cupti->enable_callback(1, ours, (CUpti_CallbackDomain)domain, id);
        answered = cupti != NULL;
        sum_up();
    }
    pthread_mutex_unlock(&lock);
    return answered;
}

static bool finalize(int *result)
{
    pthread_mutex_lock(&lock);
    const bool held = cupti != NULL;
    if (held)
        forget();
    pthread_mutex_unlock(&lock);
    *result = CUPTI_SUCCESS;
    return held;
}

__attribute__((visibility("default"))) const struct rlk_cupti_guest_api rlk_cupti_guest = {
    subscribe, adopted, unsubscribe, enable_callback, enable_domain, finalize};

/* ---- the launch plane's */
void rlki_guest_yield(const struct rlki_cupti *c)
{
    pthread_mutex_lock(&lock);
    if (guest.handle && !cupti)
        c->unsubscribe((CUpti_SubscriberHandle)guest.handle);
    pthread_mutex_unlock(&lock);
}

void rlki_guest_serve(const struct rlki_cupti *c, void *subscriber)
{
    pthread_mutex_lock(&lock);
    cupti = c;
    ours = subscriber;
    for (unsigned d = 0; d < DOMAINS; d++)
        for (uint32_t id = 0; id < IDS; id++)
            if (enabled((int)d, id))
                (void)c->enable_callback(1, ours, (CUpti_CallbackDomain)d, id);
    sum_up();
    pthread_mutex_unlock(&lock);
}

void rlki_guest_forward(int domain, uint32_t cbid, const void *data)
{
    if (enabled(domain, cbid))
        __atomic_load_n(&guest.callback, __ATOMIC_ACQUIRE)(__atomic_load_n(&guest.userdata, __ATOMIC_ACQUIRE), domain,
                                                           cbid, data);
}
