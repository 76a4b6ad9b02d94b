/* cupti_api.h - CUPTI and the few driver functions of the launch plane, opened at run time. docs/launch-plane.md.
 *
 * CUPTI is never linked: a second copy of it in the process would fight the program's own profiler. The copy that is
 * already mapped is used, else the one beside the program's own CUDA libraries, else the toolkit's.
 */
#ifndef RECORDER_CUPTI_CUPTI_API_H
#define RECORDER_CUPTI_CUPTI_API_H

#include "store/rlk_error.h"

#include <cupti.h>
#include <stdbool.h>

struct rlki_cupti {
    CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
    CUptiResult (*subscribe_v2)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *, CUpti_SubscriberParams *);
    CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
    CUptiResult (*enable_callback)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
    CUptiResult (*callback_name)(CUpti_CallbackDomain, uint32_t, const char **);
    CUptiResult (*version)(uint32_t *);
    CUptiResult (*result_string)(CUptiResult, const char **);
    CUptiResult (*graph_id)(CUgraph, uint32_t *);
    CUptiResult (*graph_exec_id)(CUgraphExec, uint32_t *);
    CUptiResult (*graph_node_id)(CUgraphNode, uint64_t *);
    /* driver */
    CUresult (*kernel_param_info)(CUkernel, size_t, size_t *, size_t *);
    CUresult (*func_param_info)(CUfunction, size_t, size_t *, size_t *);
    CUresult (*kernel_name)(const char **, CUkernel);
    CUresult (*func_name)(const char **, CUfunction);
    char path[512]; /* of the CUPTI in use */
};

/* RLK_EUNSUPPORTED with the reason in one sentence. */
int rlki_cupti_open(struct rlki_cupti *out, struct rlk_detail *detail);

#endif
