/* observer_ops.h - what is known of each operator from its schema and kernels. A part of observer.cpp, included there
 * alone. */
#ifndef RECORDER_TORCH_OBSERVER_OPS_H
#define RECORDER_TORCH_OBSERVER_OPS_H

#include "recorder/torch/observer_tensors.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace
{

/* Operators */

enum : uint8_t {
    ARG_PLAIN = 0,
    ARG_WRITE = 1,
    ARG_OVERWRITE = 2,
    ARG_TRAINING = 3
}; /* the last: written in training */

struct OpInfo {
    std::string name, overload; /* "aten::add", "Tensor" */
    const char *at = nullptr;   /* the name that torch passes for it */
    std::string ns;
    bool composite_cpu, composite_cuda, autocast_cpu, autocast_cuda, view, alloc, resize, alias, random, writes,
        scalar_out;
    bool c10d, functional_collective, wait;
    bool internal;         /* of torch itself: not the program's */
    bool attention;        /* "attention" is in its name */
    int non_blocking = -1; /* the argument of that name */
    int dropout = -1;      /* the argument `dropout_p` */
    int training = -1; /* the argument `training`, which decides over ARG_TRAINING; -1: there is none, it is written */
    std::vector<uint8_t> args;
    std::vector<bool>
        quiet; /* the argument is no attribute: the outputs show it, or it says where and when, not what */
    std::vector<std::string> arg_names, out_names;
    std::vector<IValue> defaults;
};

bool one_of(const std::string &s, std::initializer_list<const char *> names)
{
    for (const char *n : names)
        if (s == n)
            return true;
    return false;
}

bool starts(const std::string &s, const char *prefix)
{
    return s.compare(0, std::strlen(prefix), prefix) == 0;
}

bool own_kernel(const c10::OperatorHandle &op, DispatchKey key)
{
    return op.hasKernelForDispatchKey(key) && !op.isKernelFallthroughKernel(key);
}

bool composite_on(const c10::OperatorHandle &op, DispatchKey backend, DispatchKey autograd)
{
    return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) && !op.hasKernelForDispatchKey(backend) &&
           !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
           !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) &&
           !op.hasKernelForDispatchKey(autograd); /* the alias Autograd gives way to it */
}

/* Forms of batch normalization that write the running statistics without their schema saying so. */
bool writes_statistics(const std::string &base)
{
    return one_of(base, {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit",
                         "_batch_norm_with_update", "batch_norm_update_stats", "batch_norm_gather_stats",
                         "batch_norm_gather_stats_with_counts"});
}

uint8_t training_role(const OpInfo *info, c10::ArrayRef<const IValue> args)
{
    if (info->training < 0)
        return ARG_WRITE;
    const IValue &v = args[static_cast<size_t>(info->training)];
    return v.isBool() && !v.toBool() ? ARG_PLAIN : ARG_WRITE;
}

/* Does fused attention drop anything, for all we know? */
bool drops(const OpInfo *info, c10::ArrayRef<const IValue> args)
{
    if (info->dropout < 0 || static_cast<size_t>(info->dropout) >= args.size())
        return true;
    const IValue &v = args[static_cast<size_t>(info->dropout)];
    return !v.isDouble() || v.toDouble() != 0;
}

OpInfo *op_make(const c10::OperatorHandle &op)
{
    const c10::FunctionSchema &schema = op.schema();
    auto *info = new OpInfo();
    info->name = schema.name();
    info->overload = schema.overload_name();
    info->ns = info->name.substr(0, info->name.find("::"));
    info->internal = one_of(info->ns, {"prim", "profiler"});
    std::string base = info->name.substr(info->ns.size() + 2);
    info->attention = info->name.find("attention") != std::string::npos;
    info->composite_cpu = composite_on(op, DispatchKey::CPU, DispatchKey::AutogradCPU);
    info->composite_cuda = composite_on(op, DispatchKey::CUDA, DispatchKey::AutogradCUDA);
    info->autocast_cpu = own_kernel(op, DispatchKey::AutocastCPU);
    info->autocast_cuda = own_kernel(op, DispatchKey::AutocastCUDA);
    info->random = op.hasTag(at::Tag::nondeterministic_seeded);
    info->c10d = info->ns == "c10d";
    info->functional_collective = info->ns == "_c10d_functional";
    info->wait = info->functional_collective && base == "wait_tensor";
    /* Overwriting calls: what `self` held is no input. */
    bool overwrites = one_of(base, {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "exponential_",
                                    "geometric_", "cauchy_", "log_normal_", "bernoulli_", "set_", "_foreach_copy_",
                                    "_foreach_zero_", "_foreach_fill_", "eye_", "randperm_"});
    bool allocates = starts(base, "empty") || starts(base, "new_empty") || starts(base, "resize") ||
                     one_of(base, {"_empty_affine_quantized", "_resize_output_", "_efficientzerotensor"});
    info->alloc = allocates && info->ns == "aten";
    info->resize = info->alloc && base.find("resize") != std::string::npos;
    info->alias = info->ns == "aten" && base == "set_"; /* gives a tensor other bytes, writes none */
    bool statistics = writes_statistics(base), noise = one_of(base, {"rrelu_with_noise", "rrelu_with_noise_"});
    size_t tensors_out = 0, aliases_out = 0;
    for (const c10::Argument &a : schema.arguments()) {
        bool writes = a.alias_info() && a.alias_info()->isWrite();
        info->writes |= writes;
        uint8_t role = !writes ? ARG_PLAIN : overwrites || a.is_out() ? ARG_OVERWRITE : ARG_WRITE;
        if (statistics && one_of(a.name(), {"running_mean", "running_var"}))
            role = ARG_TRAINING;
        if (noise && a.name() == "noise")
            role = ARG_TRAINING;
        if (a.name() == "non_blocking")
            info->non_blocking = static_cast<int>(info->args.size());
        if (a.name() == "dropout_p")
            info->dropout = static_cast<int>(info->args.size());
        if (a.name() == "training")
            info->training = static_cast<int>(info->args.size());
        const std::string &n = a.name();
        info->quiet.push_back((n.size() >= 5 && n.compare(n.size() - 5, 5, "dtype") == 0) ||
                              one_of(n, {"layout", "device", "memory_format", "pin_memory", "non_blocking"}));
        info->args.push_back(role);
        info->arg_names.push_back(a.name());
        info->defaults.push_back(a.default_value() ? *a.default_value() : IValue());
    }
    for (const c10::Argument &r : schema.returns()) {
        info->out_names.push_back(r.name());
        bool tensor =
            r.type()->isSubtypeOf(*c10::TensorType::get()) || r.type()->isSubtypeOf(*c10::ListType::ofTensors());
        tensors_out += tensor;
        aliases_out += tensor && r.alias_info() && !r.alias_info()->isWrite();
        info->scalar_out |= r.type()->kind() == c10::TypeKind::NumberType;
    }
    info->view = !info->writes && tensors_out > 0 && aliases_out == tensors_out;
    info->view |= one_of(base, {"_unsafe_view", "lift"}); /* views in all but their schema */
    /* In place on the geometry only. */
    info->view |= one_of(base, {"detach_", "t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", "swapaxes_",
                                "swapdims_", "swapaxis_", "rename_", "requires_grad_", "_fw_primal"});
    return info;
}

struct OpCache {
    std::mutex lock;
    std::unordered_map<const char *, OpInfo *> map;
};
OpCache &op_cache = *new OpCache;

/* NULL: not an operator (autograd's and dynamo's own marks). */
const OpInfo *op_find(const at::RecordFunction &fn, const char *name)
{
    std::lock_guard<std::mutex> hold(op_cache.lock);
    auto it = op_cache.map.find(name);
    if (it != op_cache.map.end() && it->second->name == name)
        return it->second;
    std::optional<c10::OperatorName> full = fn.operator_name();
    if (!full)
        return nullptr;
    std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema(*full);
    if (!op)
        return nullptr;
    OpInfo *info = op_make(*op);
    info->at = name;
    op_cache.map[name] = info; /* an older one may be in use: it stays */
    return info;
}

/* The same, with what this thread asked lately: names are compared, for the address of one may be used again. */
const OpInfo *op_of(const at::RecordFunction &fn)
{
    static thread_local const OpInfo *lately[512];
    const char *name = fn.name();
    const OpInfo *&slot = lately[(reinterpret_cast<uintptr_t>(name) >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 55];
    const OpInfo *found = slot;
    if (!found || found->at != name || std::strcmp(found->name.c_str(), name) != 0) {
        found = op_find(fn, name);
        if (found)
            slot = found;
    }
    return found;
}

/* Whether the call only leads to others that will be seen: composite, or taken by a key that calls the operator again.
 */
bool transparent(const OpInfo *info, c10::ArrayRef<const IValue> args, bool *meta)
{
    c10::DispatchKeySet keys;
    bool any = false, all_meta = true;
    for (const IValue &v : args)
        each_tensor(v, [&](const at::Tensor &t) {
            keys = keys | t.key_set();
            any = true;
            all_meta &= t.device().is_meta();
        });
    *meta = any && all_meta;
    c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
    if (info->alloc && local.excluded_.has(DispatchKey::Python) &&
        local.excluded_.has(DispatchKey::FuncTorchDynamicLayerFrontMode))
        return true; /* torch.tensor() makes room for the values that it then writes itself */
    keys = (keys | local.included_) - local.excluded_;
    static const c10::DispatchKeySet recalls(
        {DispatchKey::Python, DispatchKey::Functionalize, DispatchKey::FuncTorchDynamicLayerFrontMode,
         DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchVmapMode,
         DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched, DispatchKey::VmapMode,
         DispatchKey::PythonDispatcher});
    if (keys.has_any(recalls))
        return true;
    bool cuda = keys.has_backend(c10::BackendComponent::CUDABit);
    if (cuda ? info->composite_cuda : info->composite_cpu)
        return true;
    return (info->autocast_cpu && keys.has(DispatchKey::AutocastCPU)) ||
           (info->autocast_cuda && keys.has(DispatchKey::AutocastCUDA));
}

void put_attr(rlk_tap_op *op, const std::string &key, const IValue &v, const IValue &standard)
{
    rlk_attr a = {};
    a.key = key.c_str();
    if (v.isInt() || v.isBool()) {
        a.type = RLK_ATTR_INT;
        a.i = v.isInt() ? v.toInt() : v.toBool();
        if ((standard.isInt() && standard.toInt() == a.i) || (standard.isBool() && standard.toBool() == (a.i != 0)))
            return;
    } else if (v.isDouble()) {
        a.type = RLK_ATTR_DOUBLE;
        a.d = v.toDouble();
        if (standard.isDouble() && standard.toDouble() == a.d)
            return;
    } else if (v.isString()) {
        a.type = RLK_ATTR_STRING;
        a.s = v.toStringRef().c_str();
    } else if (v.isIntList()) {
        std::string text = "[";
        c10::List<int64_t> list = v.toIntList();
        for (size_t i = 0; i < list.size() && i < 16; i++)
            text += (i ? "," : "") + std::to_string(static_cast<int64_t>(list[i]));
        text += list.size() > 16 ? ",...]" : "]";
        a.type = RLK_ATTR_STRING;
        a.s = text.c_str();
        rlk_tap()->op_attr(op, &a);
        return;
    } else {
        return;
    }
    rlk_tap()->op_attr(op, &a);
}

/* A number that was made a tensor on the way here is still a number: an attribute, no input. */
bool put_number(rlk_tap_op *op, const std::string &key, const at::Tensor &t)
{
    const c10::TensorImpl *i = t.unsafeGetTensorImpl();
    if (!i->is_wrapped_number() || !has_bytes(t) || t.dim() != 0 || !t.device().is_cpu())
        return false;
    const void *data = static_cast<const char *>(i->unsafe_storage().data()) +
                       static_cast<size_t>(t.storage_offset()) * t.dtype().itemsize();
    if (t.scalar_type() == at::kDouble)
        put_attr(op, key, IValue(*static_cast<const double *>(data)), IValue());
    else if (t.scalar_type() == at::kLong)
        put_attr(op, key, IValue(*static_cast<const int64_t *>(data)), IValue());
    else if (t.scalar_type() == at::kBool)
        put_attr(op, key, IValue(*static_cast<const bool *>(data)), IValue());
    else
        return false;
    return true;
}

uint64_t mix(uint64_t h, uint64_t w)
{
    h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* The state of the generator that the next operator draws from. */
void put_rng(rlk_tap_ctx *ctx, const OpInfo *info, c10::ArrayRef<const IValue> args)
{
    if (!drops(info, args))
        return;
    at::Generator gen = at::detail::getDefaultCPUGenerator();
    bool cpu = true;
    for (const IValue &v : args) {
        if (v.isGenerator())
            gen = v.toGenerator();
        each_tensor(v, [&](const at::Tensor &t) { cpu &= t.device().is_cpu(); });
    }
    rlk_event e = {};
    e.kind = RLK_EV_RNG;
    if (gen.device().is_cpu() && !cpu)
        return; /* a device's default generator: the launch plane has it */
    std::lock_guard<std::mutex> hold(gen.mutex());
    e.u.rng.seed = gen.current_seed();
    if (gen.device().is_cpu()) {
        auto *impl = at::check_generator<at::CPUGeneratorImpl>(gen);
        at::mt19937_data_pod s = impl->engine().data();
        /* apart: left + next is nearly constant, so that left ^ next stays the same across many draws */
        uint64_t h = mix(mix(0, static_cast<uint64_t>(static_cast<uint32_t>(s.left_))), s.next_);
        for (uint32_t w : s.state_)
            h = mix(h, w);
        h = mix(h, impl->next_float_normal_sample().has_value() * 2u + impl->next_double_normal_sample().has_value());
        e.u.rng.generator = "mt19937";
        e.u.rng.offset = h; /* a Mersenne twister has no offset: a hash of its state stands for it */
    } else {
        e.u.rng.generator = "philox";
        e.u.rng.offset = gen.get_offset();
    }
    rlk_tap()->event(ctx, &e);
}

} // namespace

#endif
