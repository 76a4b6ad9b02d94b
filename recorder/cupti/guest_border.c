/* guest_border.c - librlkrec_cupti.so: four of CUPTI's functions, put in front of CUPTI's own (sitecustomize.py opens
 * this library before torch is loaded). Each asks the recorder first (guest.h), and CUPTI itself where that does not
 * answer or is not there. Nothing else is in here, for whatever is would be in front of everybody's. */
#include "recorder/cupti/guest.h"
#include "recorder/rlk_env.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))
#define NOT_INITIALIZED 15 /* CUPTI_ERROR_NOT_INITIALIZED */

SHOWN int cuptiSubscribe(void **subscriber, rlk_guest_callback callback, void *userdata);
SHOWN int cuptiUnsubscribe(void *subscriber);
SHOWN int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t cbid);
SHOWN int cuptiEnableDomain(uint32_t enable, void *subscriber, int domain);
SHOWN int cuptiFinalize(void);

static const struct rlk_cupti_guest_api *recorder(void)
{
    const char *path = getenv(RLK_ENV_LIBRARY);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library ? dlsym(library, RLK_CUPTI_GUEST) : NULL;
}

/* CUPTI's own function, stored through `f`; false: there is no CUPTI in this process. */
static bool own(const char *name, void *f)
{
    static const char *const sonames[] = {"libcupti.so.13", "libcupti.so.12"};
    void *found = NULL;
    for (size_t i = 0; i < sizeof sonames / sizeof sonames[0] && !found; i++) {
        void *library = dlopen(sonames[i], RTLD_NOW | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    memcpy(f, &found, sizeof found);
    return found != NULL;
}

int cuptiSubscribe(void **subscriber, rlk_guest_callback callback, void *userdata)
{
    const struct rlk_cupti_guest_api *r = recorder();
    int (*f)(void **, rlk_guest_callback, void *), result = NOT_INITIALIZED;
    if (r && r->subscribe(subscriber, callback, userdata, &result))
        return result;
    if (!own("cuptiSubscribe", &f))
        return NOT_INITIALIZED;
    result = f(subscriber, callback, userdata);
    if (r && !result)
        r->adopted(*subscriber, callback, userdata);
    return result;
}

int cuptiUnsubscribe(void *subscriber)
{
    const struct rlk_cupti_guest_api *r = recorder();
    int (*f)(void *), result = NOT_INITIALIZED;
    if (r && r->unsubscribe(subscriber, &result))
        return result;
    return own("cuptiUnsubscribe", &f) ? f(subscriber) : NOT_INITIALIZED;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t cbid)
{
    const struct rlk_cupti_guest_api *r = recorder();
    int (*f)(uint32_t, void *, int, uint32_t), result = NOT_INITIALIZED;
    if (r && r->enable_callback(enable, subscriber, domain, cbid, &result))
        return result;
    return own("cuptiEnableCallback", &f) ? f(enable, subscriber, domain, cbid) : NOT_INITIALIZED;
}

int cuptiEnableDomain(uint32_t enable, void *subscriber, int domain)
{
    const struct rlk_cupti_guest_api *r = recorder();
    int (*f)(uint32_t, void *, int), result = NOT_INITIALIZED;
    if (r && r->enable_domain(enable, subscriber, domain, &result))
        return result;
    return own("cuptiEnableDomain", &f) ? f(enable, subscriber, domain) : NOT_INITIALIZED;
}

int cuptiFinalize(void)
{
    const struct rlk_cupti_guest_api *r = recorder();
    int (*f)(void), result = NOT_INITIALIZED;
    if (r && r->finalize(&result))
        return result;
    return own("cuptiFinalize", &f) ? f() : NOT_INITIALIZED;
}
