/* observer_tensors.h - tensors and their storages as the tap sees them. A part of observer.cpp, included there alone.
 */
#ifndef RECORDER_TORCH_OBSERVER_TENSORS_H
#define RECORDER_TORCH_OBSERVER_TENSORS_H

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <torch/version.h>

#include "recorder/torch/spans.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{

using c10::DispatchKey;
using c10::IValue;

std::atomic<bool> g_on{false};
std::atomic<uint64_t> g_compiled{1}; /* raised by each compiled region: what it wrote is not known */

void fault(const char *code, const char *text)
{
    g_on = false;
    if (const rlk_tap_api *tap = rlk_tap())
        tap->fault(code, text);
}

/* Storages: generation and version */

struct StorageEntry {
    c10::weak_intrusive_ptr<c10::StorageImpl> weak; /* keeps the address from being used again, not the bytes */
    uint64_t generation, version, compiled;
    const void *data;
    /* Version counters of the tensors that look at it, as last seen: a change that no recorded operator made is a write
     * that was not seen. A counter is known by its address only; a recycled one costs a digest, never a wrong
     * reference. */
    struct {
        const void *id;
        uint32_t value;
    } counters[3];
    int pending;           /* collectives that are still writing it */
    bool torn;             /* and something else wrote it meanwhile */
    bool async;            /* a copy from a device is still writing it, for all we know */
    const char *undefined; /* what is in it is nobody's: why; NULL once it was written */
    uint64_t sample;       /* of its bytes then: a write that nothing tells of shows there, as a rule */
    /* On a device, since it was allocated: bytes that recorded operators wrote, each counted as often as it was. While
     * no launch was made that we did not see, who reads more than that reads what nobody wrote. */
    bool fresh;
    uint64_t filled, unseen;
};

/* Something may have been launched that no recorded operator stands for. */
std::atomic<uint64_t> g_doubts{0};

bool on_device(const c10::StorageImpl *s)
{
#ifdef RLKT_HOST_AS_CUDA
    (void)s;
    return true;
#endif
    return s->device().is_cuda();
}

/* Stands still while all that runs on a device is recorded; false: nobody counts. */
bool unseen_now(uint64_t *value)
{
    const uint64_t n = rlk_tap()->unseen_launches();
    *value = n + g_doubts.load(std::memory_order_relaxed);
    return n != UINT64_MAX;
}

struct StorageTable {
    std::mutex lock;
    std::unordered_map<const c10::StorageImpl *, StorageEntry> map;
    size_t sweep_at = 4096;
};
StorageTable &storages = *new StorageTable; /* never destroyed: callbacks may run while the process ends */

/* `lock` is held. */
StorageEntry &storage_entry(c10::StorageImpl *s)
{
    auto it = storages.map.find(s);
    if (it != storages.map.end() && !it->second.weak.expired())
        return it->second;
    const rlk_tap_api *tap = rlk_tap();
    if (it != storages.map.end()) {
        tap->storage_free(it->second.generation);
        storages.map.erase(it);
    }
    if (storages.map.size() >= storages.sweep_at) {
        for (auto i = storages.map.begin(); i != storages.map.end();) {
            if (i->second.weak.expired()) {
                tap->storage_free(i->second.generation);
                i = storages.map.erase(i);
            } else {
                ++i;
            }
        }
        storages.sweep_at = std::max<size_t>(4096, 2 * storages.map.size());
    }
    StorageEntry fresh{c10::weak_intrusive_ptr<c10::StorageImpl>(
                           c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(s)),
                       tap->generation(),
                       1,
                       g_compiled.load(),
                       nullptr,
                       {},
                       0,
                       false,
                       false,
                       nullptr,
                       0,
                       false,
                       0,
                       0};
    return storages.map.emplace(s, std::move(fresh)).first->second;
}

const void *counter_id(const at::Tensor &t, uint32_t *value)
{
    const c10::VariableVersion &v = t.unsafeGetTensorImpl()->version_counter();
    if (!v.enabled())
        return nullptr;
    static_assert(sizeof(c10::VariableVersion) == sizeof(void *), "a version counter is one pointer");
    const void *id;
    std::memcpy(&id, static_cast<const void *>(&v), sizeof id);
    *value = v.current_version();
    return id;
}

void counter_store(StorageEntry &e, const void *id, uint32_t value)
{
    for (auto &c : e.counters)
        if (c.id == id || !c.id) {
            c = {id, value};
            return;
        }
    std::memmove(&e.counters[0], &e.counters[1], 2 * sizeof e.counters[0]);
    e.counters[2] = {id, value};
}

/* A hash over a few words of the storage. `s` holds bytes of the CPU, or it is 0. */
uint64_t sample_of(const c10::StorageImpl *s)
{
    const char *data = s->device().is_cpu() ? static_cast<const char *>(s->data()) : nullptr;
    size_t n = data ? s->nbytes() : 0;
    uint64_t h = n;
    for (size_t i = 0; i < 16 && n; i++) {
        uint64_t word = 0;
        size_t size = std::min<size_t>(n, sizeof word), at = (n - size) / 15 * i;
        std::memcpy(&word, data + at, size);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

/* Nobody has written it: `why` is a word that lives on. On a device, where no sample tells of a write that was not seen
 * (a Triton kernel fills what empty() made), only an operator's own word counts. `lock` is held. */
void set_undefined(StorageEntry &e, const c10::StorageImpl *s, const char *why)
{
    const bool sure = !on_device(s) || std::strcmp(why, "uninitialized");
    e.undefined = sure && s->nbytes() ? why : nullptr;
    e.sample = e.undefined ? sample_of(s) : 0;
}

/* Notices writes that no recorded operator made. `lock` is held. */
void storage_check(StorageEntry &e, const at::Tensor &t, const void *data)
{
    bool written = e.data != data || e.compiled != g_compiled.load();
    uint32_t value = 0;
    if (const void *id = counter_id(t, &value)) {
        for (auto &c : e.counters)
            written |= c.id == id && c.value != value;
        counter_store(e, id, value);
    }
    if (e.undefined &&
        (written || e.sample != sample_of(t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())))
        e.undefined = nullptr;
    e.fresh &= !written;
    if (written && e.data) {
        e.version++;
        rlk_tap()->storage_written(e.generation);
    }
    e.data = data;
    e.compiled = g_compiled.load();
}

/* The stream that the calling thread's operators use on a CUDA device. By torch's own C interface, looked up in the
 * library that is there: the observer is one for torch with and without CUDA, and needs none of CUDA's headers. */
typedef int (*StreamFunction)(int32_t device, void **stream);

StreamFunction stream_function()
{
    static const StreamFunction found = [] {
        StreamFunction f = nullptr;
        void *lib = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
        void *symbol = lib ? dlsym(lib, "aoti_torch_get_current_cuda_stream") : nullptr;
        std::memcpy(&f, &symbol, sizeof f);
        return f;
    }();
    return found;
}

/* Fills device, ordinal and stream; false: the tensor is nowhere that can be read. */
bool locate(const c10::Device &device, rlk_tap_tensor &t)
{
#ifdef RLKT_HOST_AS_CUDA /* a test: tensors of the CPU pass for a device's */
    t.device = RLK_TAP_CUDA;
    return true;
#endif
    if (device.is_cpu())
        return true;
    StreamFunction stream = device.is_cuda() ? stream_function() : nullptr;
    t.device = RLK_TAP_CUDA;
    t.ordinal = device.index();
    return stream && stream(device.index(), &t.stream) == 0;
}

/* Tensors as the tap sees them */

rlk_dtype dtype_of(c10::ScalarType t)
{
    switch (t) {
    case at::kBool:
        return RLK_BOOL;
    case at::kByte:
    case at::kQUInt8:
        return RLK_UINT8;
    case at::kChar:
    case at::kQInt8:
        return RLK_INT8;
    case at::kShort:
        return RLK_INT16;
    case at::kInt:
    case at::kQInt32:
        return RLK_INT32;
    case at::kLong:
        return RLK_INT64;
    case at::kHalf:
        return RLK_FP16;
    case at::kBFloat16:
        return RLK_BF16;
    case at::kFloat:
        return RLK_FP32;
    case at::kDouble:
        return RLK_FP64;
    case at::kComplexHalf:
        return RLK_COMPLEX32;
    case at::kComplexFloat:
        return RLK_COMPLEX64;
    case at::kComplexDouble:
        return RLK_COMPLEX128;
    case c10::ScalarType::Float8_e4m3fn:
        return RLK_FP8_E4M3;
    case c10::ScalarType::Float8_e5m2:
        return RLK_FP8_E5M2;
    case c10::ScalarType::Float8_e4m3fnuz:
        return RLK_FP8_E4M3FNUZ;
    case c10::ScalarType::Float8_e5m2fnuz:
        return RLK_FP8_E5M2FNUZ;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    case c10::ScalarType::UInt16:
        return RLK_UINT16;
    case c10::ScalarType::UInt32:
        return RLK_UINT32;
    case c10::ScalarType::UInt64:
        return RLK_UINT64;
#endif
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
    case c10::ScalarType::Float8_e8m0fnu:
        return RLK_FP8_E8M0;
#endif
    default:
        return RLK_DTYPE_NONE;
    }
}

struct TapTensor {
    rlk_tap_tensor t;
    uint64_t shape[RLK_MAX_DIMS];
    int64_t strides[RLK_MAX_DIMS];
    const char *name; /* for the next describe() */
    char buffer[96];
};

bool has_bytes(const at::Tensor &t)
{
    const c10::TensorImpl *i = t.unsafeGetTensorImpl();
    return i->layout() == c10::kStrided && i->has_storage() && !i->key_set().has(DispatchKey::Python) &&
           !i->key_set().has(DispatchKey::NestedTensor) && !i->has_symbolic_sizes_strides();
}

const char *no_digest(const char *reason, TapTensor &out)
{
    out.t.state = RLK_T_NOT_DIGESTED;
    out.t.reason = reason;
    return reason;
}

/* Everything but generation and version. Sets state NOT_DIGESTED with the reason where there are no bytes to read. */
void describe(const at::Tensor &t, TapTensor &out)
{
    out.t = {};
    out.t.name = out.name;
    const c10::TensorImpl *i = t.unsafeGetTensorImpl();
    out.t.view.dtype = dtype_of(t.scalar_type());
    if (out.t.view.dtype == RLK_DTYPE_NONE) {
        out.t.view.dtype = RLK_UINT8;
        no_digest("dtype", out);
    }
    if (!has_bytes(t)) {
        no_digest(i->layout() != c10::kStrided ? "layout" : "subclass", out);
        if (i->has_symbolic_sizes_strides() || i->key_set().has(DispatchKey::NestedTensor))
            return;
    }
    if (t.dim() > static_cast<int64_t>(RLK_MAX_DIMS)) {
        no_digest("dimensions", out);
        return;
    }
    out.t.view.ndim = static_cast<uint32_t>(t.dim());
    out.t.view.shape = out.shape;
    const c10::IntArrayRef sizes = i->sizes();
    for (uint32_t d = 0; d < out.t.view.ndim; d++)
        out.shape[d] = static_cast<uint64_t>(sizes[d]);
    if (out.t.state != RLK_T_DIGESTED)
        return;
    if (!i->is_contiguous()) {
        const c10::IntArrayRef strides = i->strides();
        for (uint32_t d = 0; d < out.t.view.ndim; d++)
            out.strides[d] = strides[d];
        out.t.view.strides = out.strides;
    }
    out.t.view.offset = static_cast<uint64_t>(t.storage_offset());
    out.t.view.conj = t.is_conj();
    out.t.view.neg = t.is_neg();
    if (!locate(t.device(), out.t)) {
        no_digest("device", out);
        return;
    }
    const c10::StorageImpl *s = i->unsafe_storage().unsafeGetStorageImpl();
    out.t.view.storage_bytes = s->nbytes();
    out.t.view.storage = s->data();
    if (!out.t.view.storage && t.numel() > 0)
        no_digest("no-storage", out);
}

/* Calls f(tensor) for each defined tensor in a value, lists of any depth included. */
template <class F> void each_tensor(const IValue &v, const F &f, int depth = 0)
{
    if (v.isTensor()) {
        if (v.toTensor().defined())
            f(v.toTensor());
    } else if (v.isList() && depth < 3) {
        if (v.isIntList() || v.isDoubleList() || v.isBoolList())
            return;
        for (const IValue &e : v.toListRef())
            each_tensor(e, f, depth + 1);
    } else if (v.isTuple() && depth < 3) {
        for (const IValue &e : v.toTupleRef().elements())
            each_tensor(e, f, depth + 1);
    }
}

void name_it(TapTensor &out, const std::string &name, int member)
{
    out.name = name.c_str();
    if (member < 0)
        return;
    snprintf(out.buffer, sizeof out.buffer, "%s.%d", out.name, member);
    out.name = out.buffer;
}

/* Of a tensor whose storage was allocated and not written: does it read bytes that nobody wrote? At least one, for
 * sure. `lock` is held. */
bool reads_fresh(StorageEntry &e, const at::Tensor &t)
{
    uint64_t now = 0;
    if (!e.fresh)
        return false;
    e.fresh = unseen_now(&now) && now == e.unseen;
    if (!e.fresh || at::has_internal_overlap(t) != at::MemOverlap::No)
        return false;
    return static_cast<uint64_t>(t.numel()) * t.element_size() > e.filled;
}

/* An operator that is not torch's own may write what its schema does not say. */
void storages_doubt(c10::ArrayRef<const c10::StorageImpl *> list)
{
    std::lock_guard<std::mutex> hold(storages.lock);
    for (const c10::StorageImpl *s : list) {
        auto it = storages.map.find(s);
        if (it != storages.map.end())
            it->second.fresh = false;
    }
}

/* An input. `always`: inside a compiled region, whose kernels write unseen. `later`: read in stream order, after the
 * call has returned. */
void put_in(rlk_tap_op *op, const at::Tensor &t, TapTensor &tt, bool always, bool later = false)
{
    describe(t, tt);
    if (has_bytes(t)) {
        c10::StorageImpl *s = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        std::lock_guard<std::mutex> hold(storages.lock);
        StorageEntry &e = storage_entry(s);
        storage_check(e, t, s->data_ptr().get());
        tt.t.generation = e.generation;
        tt.t.version = e.version;
        if ((e.pending || (e.async && later)) && tt.t.state == RLK_T_DIGESTED)
            no_digest("async", tt);
        e.async &= later; /* who reads it now has waited for it */
        if (e.undefined && !always && t.numel() > 0 && tt.t.state == RLK_T_DIGESTED) {
            tt.t.state = RLK_T_UNDEFINED;
            tt.t.reason = e.undefined;
        } else if (!always && tt.t.state == RLK_T_DIGESTED && reads_fresh(e, t)) {
            tt.t.state = RLK_T_UNDEFINED;
            tt.t.reason = "uninitialized";
        }
    }
    tt.t.always_digest = always;
    rlk_tap()->op_in(op, &tt.t);
}

/* The storage of `t` was written: a new version, once an event. `lock` is held. */
void written(StorageEntry &e, const at::Tensor &t)
{
    uint32_t value = 0;
    if (const void *id = counter_id(t, &value))
        counter_store(e, id, value);
    e.data = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr().get();
    e.compiled = g_compiled.load();
}

/* Outputs of events */

struct Output {
    at::Tensor tensor;
    const std::string *name; /* of the result or of the argument */
    int member;              /* of a list; -1: it is none */
    const char *reason;
    uint64_t generation, version; /* of its storage, once raised */

    std::string label() const
    {
        return member < 0 ? *name : *name + "." + std::to_string(member);
    }
};
using Outputs = c10::SmallVector<Output, 4>;

/* `known`: nothing but the event writes it. Its storage was raised before (raise_versions). */
void put_out(rlk_tap_op *op, const Output &o, TapTensor &tt, bool known, const char *reason)
{
    describe(o.tensor, tt);
    if (reason)
        no_digest(reason, tt);
    if (known) {
        tt.t.generation = o.generation;
        tt.t.version = o.version;
    }
    rlk_tap()->op_out(op, &tt.t);
}

/* Raises the version of each distinct storage once, and notes generation and version beside each tensor. unknown:
 * nobody's output (allocated, or written unseen as well). */
enum { WRITES = 0, ALLOCATES = 1, RESIZES = 2 };
void raise_versions(Outputs &outs, bool unknown, int what = WRITES)
{
    std::lock_guard<std::mutex> hold(storages.lock);
    c10::SmallVector<const c10::StorageImpl *, 8> done;
    for (auto &o : outs) {
        const at::Tensor &t = o.tensor;
        if (!has_bytes(t))
            continue;
        c10::StorageImpl *s = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        StorageEntry &e = storage_entry(s);
        if (std::find(done.begin(), done.end(), s) == done.end()) {
            e.version++;
            e.torn |= e.pending > 0;
            done.push_back(s);
        }
        written(e, t);
        if (what == ALLOCATES) {
            e.fresh = on_device(s) && unseen_now(&e.unseen);
            e.filled = 0;
        } else if (what == RESIZES) {
            e.fresh = false;
        } else if (e.fresh) {
            e.filled += static_cast<uint64_t>(t.numel()) * t.element_size();
        }
        o.generation = e.generation;
        o.version = e.version;
        if (what == ALLOCATES || (what == RESIZES && e.undefined))
            set_undefined(e, s, "uninitialized");
        else
            e.undefined = nullptr;
        if (unknown)
            rlk_tap()->storage_written(e.generation);
    }
}

/* A copy from a device was only enqueued: what the CPU's tensor holds now is not yet its output. */
void storage_async(const at::Tensor &t)
{
    if (!has_bytes(t))
        return;
    std::lock_guard<std::mutex> hold(storages.lock);
    storage_entry(t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()).async = true;
}

/* An operator's output that it left undefined: undefined for whom it is handed to as well. */
void storage_undefined(const at::Tensor &t, const char *why)
{
    if (!has_bytes(t))
        return;
    std::lock_guard<std::mutex> hold(storages.lock);
    c10::StorageImpl *s = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    set_undefined(storage_entry(s), s, why);
}

} // namespace

#endif
