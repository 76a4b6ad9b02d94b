/* fake_cupti.c - a stand-in for libcupti.so.13, and with FAKE_TWELVE for libcupti.so.12, which has no
 * cuptiSubscribe_v2. FAKE_CUPTI=held NAME: the one place is taken by NAME; =refused: no rights. fake_launch() makes the
 * driver's callback for one launch. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUpti_CallbackFunc callback;
static void *userdata;
static uint8_t enabled[16];

static CUptiResult answer(char *holder, size_t room)
{
    const char *how = getenv("FAKE_CUPTI");
    if (how && !strncmp(how, "held", 4)) {
        if (holder && how[4])
            snprintf(holder, room, "%s", how + 5);
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    return how && !strcmp(how, "refused") ? CUPTI_ERROR_INSUFFICIENT_PRIVILEGES : CUPTI_SUCCESS;
}

static CUptiResult take(CUptiResult r, CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *value)
{
    if (r == CUPTI_SUCCESS) {
        callback = f;
        userdata = value;
        *out = (CUpti_SubscriberHandle)(void *)enabled;
    }
    return r;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *value)
{
    return take(answer(NULL, 0), out, f, value);
}

#ifndef FAKE_TWELVE
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *value, CUpti_SubscriberParams *p)
{
    return take(answer(p->oldSubscriberName, p->oldSubscriberSize), out, f, value);
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle)
{
    (void)handle;
    callback = NULL;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id)
{
    if ((void *)handle != (void *)enabled)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && id < sizeof enabled)
        enabled[id] = enable != 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **name)
{
    static const char *const names[] = {"", "cuInit", "cuMemcpyHtoD_v2", "cuLaunchKernel", "cuGraphLaunch"};
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id >= sizeof names / sizeof names[0])
        return CUPTI_ERROR_INVALID_PARAMETER;
    *name = names[id];
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *out)
{
#ifdef FAKE_TWELVE
    *out = 26;
#else
    *out = 130001;
#endif
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult r, const char **text)
{
    *text = r == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "an error";
    return CUPTI_SUCCESS;
}

/* Whether anybody heard of it. */
int fake_launch(void);
int fake_launch(void)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t scratch = 0;
    cuLaunchKernel_params p;
    CUpti_CallbackData data;
    memset(&p, 0, sizeof p);
    p.f = (CUfunction)(void *)&scratch;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 2;
    memset(&data, 0, sizeof data);
    data.functionName = "cuLaunchKernel";
    data.symbolName = "a_kernel";
    data.functionParams = &p;
    data.functionReturnValue = &result;
    data.correlationData = &scratch;
    for (int site = 0; callback && enabled[3] && site < 2; site++) {
        data.callbackSite = site ? CUPTI_API_EXIT : CUPTI_API_ENTER;
        callback(userdata, CUPTI_CB_DOMAIN_DRIVER_API, 3, &data);
    }
    return callback != NULL;
}
