#include "recorder/cupti/launch_plane.h"

#include "recorder/cupti/alloc_map.h"
#include "recorder/cupti/graphs.h"
#include "recorder/cupti/guest.h"
#include "recorder/cupti/image_map.h"
#include "recorder/cupti/param_block.h"
#include "recorder/rec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a callback id means to us. */
enum action {
    NOTHING = 0,
    LAUNCH,      /* cuLaunchKernel */
    LAUNCH_COOP, /* the same without `extra` */
    LAUNCH_EX,
    LAUNCH_COOP_MULTI,
    LAUNCH_LEGACY, /* cuLaunch, cuLaunchGrid*: parameters were set by other calls */
    GRAPH_LAUNCH,
    COPY, /* memcpy, memset: the entry point's name says it */
    ALLOC,
    ALLOC_PITCH,
    FREE,
    MAP,
    UNMAP,
    NODE_ADD_V1,
    NODE_ADD,
    NODE_ADD_ANY,
    NODE_SET,
    EXEC_SET,
    EXEC_SET_ANY,
    EXEC_UPDATE,
    UNLOAD,
};

const struct rlk_tap_api *rlk_tap_table(uint32_t abi); /* rec_table.c */

static struct rlki_cupti cupti;
static CUpti_SubscriberHandle subscriber;
static uint8_t action_of[1024]; /* by driver callback id */
static const char *entry_of[1024];
static bool running;

static __thread bool inside;           /* our own calls below a callback */
static __thread const void *made_node; /* the graph node that the present API call made */

/* ---- from a launch to its description */
static void describe(struct rlk_launch *l, const struct rlki_func *f, const unsigned grid[3], const unsigned block[3],
                     unsigned smem, const void *stream)
{
    *l = (struct rlk_launch){
        .kernel = f->name, .image = f->image, .config = "", .smem = smem, .graph = RLK_NO_NODE, .node = RLK_NO_NODE};
    for (int i = 0; i < 3; i++) {
        l->grid[i] = grid[i];
        l->block[i] = block[i];
    }
    l->stream = rlki_stream_number(stream);
}

static void attach_params(struct rlk_launch *l, const struct rlki_func *f, void *const *params, void *const *extra)
{
    unsigned char block[RLKI_MAX_PARAM_BLOCK];
    const size_t n = rlki_param_block(block, f, params, extra);
    l->has_params = rlki_store_params(block, n, &l->params);
}

/* Counts and records one kernel launch that the driver accepted, or notes it as the node that it became. */
static void finish(const CUpti_CallbackData *data, CUpti_CallbackId cbid, const struct rlk_launch *l,
                   const struct rlki_func *f)
{
    const void *node = made_node;
    if (f->own)
        rlki_count_launches(RLKI_FATE_OWN, 1);
    else if (*(const CUresult *)data->functionReturnValue != CUDA_SUCCESS)
        rlki_count_launches(RLKI_FATE_FAILED, 1);
    else if (node)
        rlki_count_launches(RLKI_FATE_CAPTURED, 1);
    else
        rlki_count_launches(rlki_record_launch(entry_of[cbid], l, 1), 1);
    if (node)
        rlki_graph_node_describe(node, l);
}

static void on_launch(const CUpti_CallbackData *data, CUpti_CallbackId cbid, bool coop)
{
    const cuLaunchKernel_params *p = data->functionParams; /* the cooperative form is a prefix of it */
    const struct rlki_func *f = rlki_func_get(&cupti, (const void *)p->f, data->symbolName);
    struct rlk_launch l;
    const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ},
                   block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    describe(&l, f, grid, block, p->sharedMemBytes, (const void *)p->hStream);
    const struct rlk_attr mark = {.key = "cooperative", .type = RLK_ATTR_INT, .i = 1};
    if (coop) {
        l.nattrs = 1;
        l.attrs = &mark;
    }
    attach_params(&l, f, p->kernelParams, coop ? NULL : p->extra);
    finish(data, cbid, &l, f);
}

#define MAX_ATTRS 24
static uint32_t launch_attrs(struct rlk_launch *l, struct rlk_attr *out, const CUlaunchConfig *config)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < config->numAttrs && n < MAX_ATTRS; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        struct rlk_attr x = {.type = RLK_ATTR_INT};
        switch (a->id) {
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            l->cluster[0] = a->value.clusterDim.x;
            l->cluster[1] = a->value.clusterDim.y;
            l->cluster[2] = a->value.clusterDim.z;
            continue;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            x.key = "cooperative";
            x.i = a->value.cooperative;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            x.key = "programmatic_stream_serialization";
            x.i = a->value.programmaticStreamSerializationAllowed;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            x.key = "programmatic_event";
            x.i = a->value.programmaticEvent.triggerAtBlockStart;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            x.key = "priority";
            x.i = a->value.priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            x.key = "device_updatable"; /* its parameters may be rewritten on the device, unseen */
            x.i = a->value.deviceUpdatableKernelNode.deviceUpdatable;
            break;
        default: {
            static const char *const numbered[] = {"attr.0",  "attr.1",  "attr.2",  "attr.3",  "attr.4",  "attr.5",
                                                   "attr.6",  "attr.7",  "attr.8",  "attr.9",  "attr.10", "attr.11",
                                                   "attr.12", "attr.13", "attr.14", "attr.15", "attr.16", "attr.17"};
            if ((unsigned)a->id >= sizeof numbered / sizeof numbered[0])
                continue;
            x.key = numbered[a->id];
            memcpy(&x.i, &a->value, sizeof x.i);
        }
        }
        out[n++] = x;
    }
    return n;
}

static void on_launch_ex(const CUpti_CallbackData *data, CUpti_CallbackId cbid)
{
    const cuLaunchKernelEx_params *p = data->functionParams;
    const CUlaunchConfig *c = p->config;
    if (!c) {
        rlki_count_launches(RLKI_FATE_FAILED, 1);
        return;
    }
    const struct rlki_func *f = rlki_func_get(&cupti, (const void *)p->f, data->symbolName);
    struct rlk_launch l;
    struct rlk_attr attrs[MAX_ATTRS];
    const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ},
                   block[3] = {c->blockDimX, c->blockDimY, c->blockDimZ};
    describe(&l, f, grid, block, c->sharedMemBytes, (const void *)c->hStream);
    l.nattrs = launch_attrs(&l, attrs, c);
    l.attrs = attrs;
    attach_params(&l, f, p->kernelParams, p->extra);
    finish(data, cbid, &l, f);
}

static void on_coop_multi(const CUpti_CallbackData *data, CUpti_CallbackId cbid)
{
    const cuLaunchCooperativeKernelMultiDevice_params *p = data->functionParams;
    for (unsigned i = 0; p->launchParamsList && i < p->numDevices; i++) {
        const CUDA_LAUNCH_PARAMS *x = &p->launchParamsList[i];
        const struct rlki_func *f = rlki_func_get(&cupti, (const void *)x->function, NULL);
        struct rlk_launch l;
        const unsigned grid[3] = {x->gridDimX, x->gridDimY, x->gridDimZ},
                       block[3] = {x->blockDimX, x->blockDimY, x->blockDimZ};
        describe(&l, f, grid, block, x->sharedMemBytes, (const void *)x->hStream);
        attach_params(&l, f, x->kernelParams, NULL);
        finish(data, cbid, &l, f);
    }
}

static void on_legacy(const CUpti_CallbackData *data, CUpti_CallbackId cbid)
{
    const cuLaunch_params *p = data->functionParams; /* each form begins with the function */
    const struct rlki_func *f = rlki_func_get(&cupti, (const void *)p->f, data->symbolName);
    struct rlk_launch l;
    const unsigned unknown[3] = {0, 0, 0};
    describe(&l, f, unknown, unknown, 0, NULL);
    finish(data, cbid, &l, f);
}

static void on_copy(const CUpti_CallbackData *data, CUpti_CallbackId cbid)
{
    const struct rlk_launch l = {.kernel = "", .image = "", .config = "", .graph = RLK_NO_NODE, .node = RLK_NO_NODE};
    if (*(const CUresult *)data->functionReturnValue == CUDA_SUCCESS && !made_node)
        rlki_record_launch(entry_of[cbid], &l, 0);
}

/* ---- graphs made or changed by API calls */
static bool node_launch(struct rlk_launch *l, const CUDA_KERNEL_NODE_PARAMS *n, bool has_kern)
{
    const void *handle = n->func ? (const void *)n->func : has_kern ? (const void *)n->kern : NULL;
    if (!handle)
        return false;
    const struct rlki_func *f = rlki_func_get(&cupti, handle, NULL);
    const unsigned grid[3] = {n->gridDimX, n->gridDimY, n->gridDimZ},
                   block[3] = {n->blockDimX, n->blockDimY, n->blockDimZ};
    describe(l, f, grid, block, n->sharedMemBytes, NULL);
    attach_params(l, f, n->kernelParams, n->extra);
    return true;
}

static void on_graph_call(enum action action, const CUpti_CallbackData *data)
{
    struct rlk_launch l;
    const void *params = data->functionParams;
    if (*(const CUresult *)data->functionReturnValue != CUDA_SUCCESS)
        return;
    switch (action) {
    case NODE_ADD_V1: {
        const cuGraphAddKernelNode_params *p = params;
        if (node_launch(&l, (const CUDA_KERNEL_NODE_PARAMS *)(const void *)p->nodeParams, false))
            rlki_graph_node_describe((const void *)*p->phGraphNode, &l);
        break;
    }
    case NODE_ADD: {
        const cuGraphAddKernelNode_v2_params *p = params;
        if (node_launch(&l, p->nodeParams, true))
            rlki_graph_node_describe((const void *)*p->phGraphNode, &l);
        break;
    }
    case NODE_ADD_ANY: { /* both versions keep the node first; the parameters are last */
        const CUgraphNodeParams *any = strstr(data->functionName, "_v2")
                                           ? ((const cuGraphAddNode_v2_params *)params)->nodeParams
                                           : ((const cuGraphAddNode_params *)params)->nodeParams;
        if (any && any->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            node_launch(&l, (const CUDA_KERNEL_NODE_PARAMS *)(const void *)&any->kernel, true))
            rlki_graph_node_describe((const void *)*((const cuGraphAddNode_params *)params)->phGraphNode, &l);
        break;
    }
    case NODE_SET: {
        const cuGraphKernelNodeSetParams_v2_params *p = params;
        if (node_launch(&l, p->nodeParams, true))
            rlki_graph_node_describe((const void *)p->hNode, &l);
        break;
    }
    case EXEC_SET: {
        const cuGraphExecKernelNodeSetParams_v2_params *p = params;
        if (node_launch(&l, p->nodeParams, true))
            rlki_exec_node_describe((const void *)p->hGraphExec, (const void *)p->hNode, &l);
        break;
    }
    case EXEC_SET_ANY: {
        const cuGraphExecNodeSetParams_params *p = params;
        if (p->nodeParams && p->nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            node_launch(&l, (const CUDA_KERNEL_NODE_PARAMS *)(const void *)&p->nodeParams->kernel, true))
            rlki_exec_node_describe((const void *)p->hGraphExec, (const void *)p->hNode, &l);
        break;
    }
    default: {
        const cuGraphExecUpdate_v2_params *p = params;
        rlki_exec_updated((const void *)p->hGraphExec, (const void *)p->hGraph);
    }
    }
}

/* ---- memory */
static void on_memory(enum action action, const CUpti_CallbackData *data, bool enter)
{
    const bool ok = !enter && *(const CUresult *)data->functionReturnValue == CUDA_SUCCESS;
    const void *params = data->functionParams;
    switch (action) {
    case ALLOC: { /* every plain form begins with dptr, bytesize */
        const cuMemAlloc_v2_params *p = params;
        if (ok)
            rlki_alloc_add(*p->dptr, p->bytesize);
        break;
    }
    case ALLOC_PITCH: {
        const cuMemAllocPitch_v2_params *p = params;
        if (ok)
            rlki_alloc_add(*p->dptr, *p->pPitch * p->Height);
        break;
    }
    case MAP: {
        const cuMemMap_params *p = params;
        if (ok)
            rlki_alloc_add(p->ptr, p->size);
        break;
    }
    default: /* FREE, UNMAP begin with the address; at the beginning, since another thread may get it before the end */
        if (enter)
            rlki_alloc_remove(((const cuMemFree_v2_params *)params)->dptr);
    }
}

static void on_driver(CUpti_CallbackId cbid, const CUpti_CallbackData *data)
{
    const enum action action = cbid < 1024 ? (enum action)action_of[cbid] : NOTHING;
    const bool enter = data->callbackSite == CUPTI_API_ENTER;
    if (action == ALLOC || action == ALLOC_PITCH || action == FREE || action == MAP || action == UNMAP) {
        on_memory(action, data, enter);
        return;
    }
    if (enter) {
        made_node = NULL;
        return;
    }
    if (action >= LAUNCH && action <= COPY)
        rlki_launch_made();
    switch (action) {
    case NOTHING:
        break;
    case LAUNCH:
        on_launch(data, cbid, false);
        break;
    case LAUNCH_COOP:
        on_launch(data, cbid, true);
        break;
    case LAUNCH_EX:
        on_launch_ex(data, cbid);
        break;
    case LAUNCH_COOP_MULTI:
        on_coop_multi(data, cbid);
        break;
    case LAUNCH_LEGACY:
        on_legacy(data, cbid);
        break;
    case GRAPH_LAUNCH: {
        const cuGraphLaunch_params *p = data->functionParams;
        if (*(const CUresult *)data->functionReturnValue == CUDA_SUCCESS && !made_node)
            rlki_record_replay((const void *)p->hGraph, entry_of[cbid], rlki_stream_number((const void *)p->hStream));
        break;
    }
    case COPY:
        on_copy(data, cbid);
        break;
    case UNLOAD:
        rlki_func_forget_all();
        break;
    default:
        on_graph_call(action, data);
    }
    made_node = NULL;
}

static void on_resource(CUpti_CallbackId cbid, const CUpti_ResourceData *data)
{
    const CUpti_GraphData *g = data->resourceDescriptor;
    switch (cbid) {
    case CUPTI_CBID_RESOURCE_MODULE_LOADED: {
        const CUpti_ModuleResourceData *m = data->resourceDescriptor;
        rlki_image_loaded(m->pCubin, m->cubinSize);
        break;
    }
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
        rlki_func_forget_all();
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
        made_node = (const void *)g->node;
        rlki_graph_node_created((const void *)g->graph, (const void *)g->node);
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
        rlki_graph_node_cloned((const void *)g->graph, (const void *)g->node, (const void *)g->originalNode);
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING:
        rlki_graph_node_destroyed((const void *)g->node);
        break;
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
        rlki_graph_destroyed((const void *)g->graph);
        break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
        rlki_exec_created((const void *)g->graphExec, (const void *)g->graph);
        break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
        rlki_exec_destroyed((const void *)g->graphExec);
        break;
    default:
        break;
    }
}

/* The recorder's own calls: its kernels are counted as such, nothing else of it is looked at. */
static __thread bool own_calls;

static void set_own(bool on)
{
    own_calls = on;
}

static void on_own(CUpti_CallbackId cbid, const CUpti_CallbackData *data)
{
    const enum action action = cbid < 1024 ? (enum action)action_of[cbid] : NOTHING;
    if (data->callbackSite == CUPTI_API_EXIT && action == LAUNCH &&
        *(const CUresult *)data->functionReturnValue == CUDA_SUCCESS)
        rlki_count_launches(RLKI_FATE_OWN, 1);
}

static void CUPTIAPI callback(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
    (void)context;
    if (inside)
        return;
    if (own_calls) {
        if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
            on_own(cbid, data);
        return;
    }
    inside = true;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        on_driver(cbid, data);
    else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        on_resource(cbid, data);
    inside = false;
    if (__atomic_load_n(&rlki_guest_wants, __ATOMIC_RELAXED))
        rlki_guest_forward((int)domain, cbid, data);
}

/* ---- start */
static enum action classify(const char *name)
{
    static const struct {
        const char *name;
        enum action action;
    } exact[] = {{"cuLaunchKernel", LAUNCH},
                 {"cuLaunchKernelEx", LAUNCH_EX},
                 {"cuLaunchCooperativeKernel", LAUNCH_COOP},
                 {"cuLaunchCooperativeKernelMultiDevice", LAUNCH_COOP_MULTI},
                 {"cuLaunch", LAUNCH_LEGACY},
                 {"cuLaunchGrid", LAUNCH_LEGACY},
                 {"cuLaunchGridAsync", LAUNCH_LEGACY},
                 {"cuGraphLaunch", GRAPH_LAUNCH},
                 {"cuMemAlloc_v2", ALLOC},
                 {"cuMemAllocManaged", ALLOC},
                 {"cuMemAllocAsync", ALLOC},
                 {"cuMemAllocFromPoolAsync", ALLOC},
                 {"cuMemAllocPitch_v2", ALLOC_PITCH},
                 {"cuMemFree_v2", FREE},
                 {"cuMemFreeAsync", FREE},
                 {"cuMemMap", MAP},
                 {"cuMemUnmap", UNMAP},
                 {"cuGraphAddKernelNode", NODE_ADD_V1},
                 {"cuGraphAddKernelNode_v2", NODE_ADD},
                 {"cuGraphAddNode", NODE_ADD_ANY},
                 {"cuGraphAddNode_v2", NODE_ADD_ANY},
                 {"cuGraphKernelNodeSetParams_v2", NODE_SET},
                 {"cuGraphExecKernelNodeSetParams_v2", EXEC_SET},
                 {"cuGraphExecNodeSetParams", EXEC_SET_ANY},
                 {"cuGraphExecUpdate", EXEC_UPDATE},
                 {"cuGraphExecUpdate_v2", EXEC_UPDATE},
                 {"cuModuleUnload", UNLOAD},
                 {"cuLibraryUnload", UNLOAD}};
    char plain[128];
    snprintf(plain, sizeof plain, "%s", name);
    char *twin = strstr(plain, "_pts"); /* _ptsz, _ptds: the per-thread default stream, same parameters */
    if (twin)
        *twin = '\0';
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        if (strcmp(plain, exact[i].name) == 0)
            return exact[i].action;
    /* every version and shape of the copies; the cu64* ones are dead on Linux */
    if (strncmp(plain, "cuMemcpy", 8) == 0 || strncmp(plain, "cuMemset", 8) == 0)
        return COPY;
    return NOTHING;
}

static int enable(struct rlk_detail *detail)
{
    static const CUpti_CallbackId resources[] = {CUPTI_CBID_RESOURCE_MODULE_LOADED,
                                                 CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
                                                 CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                                 CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                                                 CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
                                                 CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
                                                 CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
                                                 CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING};
    unsigned launches = 0;
    for (CUpti_CallbackId id = 1; id < 1024; id++) {
        const char *name = NULL;
        if (cupti.callback_name(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS || !name)
            continue;
        const enum action action = classify(name);
        if (action == NOTHING)
            continue;
        if (cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id) != CUPTI_SUCCESS) {
            if (action <= GRAPH_LAUNCH)
                return rlk_fail(detail, RLK_EUNSUPPORTED, "CUPTI does not enable %s", name);
            continue;
        }
        action_of[id] = (uint8_t)action;
        entry_of[id] = name;
        launches += action <= GRAPH_LAUNCH;
    }
    for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++)
        if (cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, resources[i]) != CUPTI_SUCCESS)
            rlki_fault("cupti-resource", "CUPTI does not announce modules or graphs: some names will be missing");
    return launches ? RLK_OK : rlk_fail(detail, RLK_EUNSUPPORTED, "this CUPTI names no launch entry point");
}

static int subscribe(struct rlk_detail *detail)
{
    char holder[CUPTI_SUBSCRIBER_NAME_MAX_LEN + 1] = "";
    CUptiResult r;
    if (cupti.subscribe_v2) {
        CUpti_SubscriberParams p;
        memset(&p, 0, sizeof p);
        p.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
        p.subscriberName = "rlkrec";
        p.oldSubscriberName = holder;
        p.oldSubscriberSize = sizeof holder;
        r = cupti.subscribe_v2(&subscriber, callback, NULL, &p);
    } else {
        r = cupti.subscribe(&subscriber, callback, NULL);
    }
    if (r == CUPTI_SUCCESS)
        return RLK_OK;
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return rlk_fail(detail, RLK_ESTATE, "another profiler holds CUPTI (%s): launches are not recorded",
                        holder[0] ? holder : "Nsight, compute-sanitizer or cuda-gdb");
    const char *why = "";
    cupti.result_string(r, &why);
    return rlk_fail(detail, RLK_EUNSUPPORTED, "CUPTI refuses (%s): launches are not recorded", why);
}

/* Called by the driver while CUDA starts up. Host state only; 1 = we were here. */
__attribute__((visibility("default"))) int InitializeInjection(void);
int InitializeInjection(void)
{
    struct rlk_detail detail = {""};
    uint32_t version = 0;
    char text[600];
    /* The driver may load us before any tap is used: this reads the options, once. */
    if (running || rlk_tap_table(RLK_TAP_ABI)->level == RLK_TAP_OFF)
        return 1;
    int err = rlki_cupti_open(&cupti, &detail);
    if (!err) {
        rlki_guest_yield(&cupti);
        err = subscribe(&detail);
    }
    if (!err) {
        err = enable(&detail);
        if (err)
            cupti.unsubscribe(subscriber);
    }
    if (err) {
        rlki_fault("launch-plane", detail.text);
        return 1;
    }
    running = true;
    rlki_guest_serve(&cupti, (void *)subscriber);
    static const struct rlki_launch_hooks hooks = {rlki_launches_begin, rlki_launches_end, rlki_launch_plane_close,
                                                   set_own, rlki_launches_unseen};
    __atomic_store_n(&rlki_launch_hooks, &hooks, __ATOMIC_RELEASE);
    cupti.version(&version);
    snprintf(text, sizeof text, "%u from %s", version, cupti.path);
    struct rlki_rec *state = rlki_rec_now();
    if (state)
        rlki_rec_meta(state, "lib.cupti", text);
    return 1;
}

void rlki_launch_plane_close(void)
{
    static const char *const names[] = {"seen", "recorded", "own", "failed", "captured", "skipped", "dropped"};
    struct rlki_launch_counts c;
    struct rlki_rec *state = rlki_rec_now();
    if (!running || !state)
        return;
    rlki_launch_counts(&c);
    const uint64_t value[] = {c.seen, c.recorded, c.own, c.failed, c.captured, c.skipped, c.dropped};
    for (size_t i = 0; i < sizeof value / sizeof value[0]; i++) {
        char key[64], text[32];
        snprintf(key, sizeof key, "launches.%s", names[i]);
        snprintf(text, sizeof text, "%llu", (unsigned long long)value[i]);
        rlki_rec_meta(state, key, text);
    }
    if (state->writer)
        rlk_writer_count_launches_seen(state->writer, c.seen);
}
