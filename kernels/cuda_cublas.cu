/* cuda_cublas.cu - the provider's GEMM: cuBLAS by its default choice. Loaded when first used, so that nothing else needs it. */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <pthread.h>

#include "kernels/cuda_common.cuh"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cublasStatus_t (*create)(cublasHandle_t *);
static cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
typedef cublasStatus_t (*gemm_ex_fn)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *, cudaDataType,
                                     int, const void *, cudaDataType, int, const void *, void *, cudaDataType, int, cublasComputeType_t,
                                     cublasGemmAlgo_t);
static gemm_ex_fn gemm_ex;
static cublasHandle_t handle;
static const char *fault = "";

template <typename F> static void symbol(void *lib, const char *name, F *out)
{
    void *p = dlsym(lib, name);
    memcpy(out, &p, sizeof p);
}

static void load(void)
{
    void *lib = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        lib = dlopen("libcublas.so", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        fault = "libcublas.so.13 is not found: put its folder on LD_LIBRARY_PATH";
        return;
    }
    symbol(lib, "cublasCreate_v2", &create);
    symbol(lib, "cublasSetStream_v2", &set_stream);
    symbol(lib, "cublasGemmEx", &gemm_ex);
    if (!create || !set_stream || !gemm_ex || create(&handle) != CUBLAS_STATUS_SUCCESS)
        fault = "cuBLAS does not start";
}

extern "C" int rlki_cublas_gemm(struct rlk_exec *x, const struct rlki_gemm *g)
{
    const float one = 1.0f, beta = g->resume ? 1.0f : 0.0f;
    const bool at = g->a.out == 1 && g->a.red != 1, bt = g->b.out == 1 && g->b.red != 1;
    const cudaDataType_t type = g->a.type == RLK_K_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t ctype = g->c_type == RLK_K_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    pthread_once(&once, load);
    if (fault[0])
        return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "provider gemm: %s", fault);
    if (g->a.index || g->b.index)
        return rlk_kfail(&x->detail, RLK_K_EUNSUPPORTED, "provider gemm: indexed rows");
    if (g->m <= 0 || g->n <= 0)
        return 0;
    if (g->k == 0) {
        if (!g->resume)
            cudaMemset2DAsync(g->c, (size_t)g->ldc * rlk_ktype_bytes(g->c_type), 0, (size_t)g->n * rlk_ktype_bytes(g->c_type), (size_t)g->m,
                              stream_of(x));
        return checked(x, "provider gemm");
    }
    /* Row-major c = a b^T is column-major c^T = b a^T. */
    if (set_stream(handle, stream_of(x)) != CUBLAS_STATUS_SUCCESS ||
        gemm_ex(handle, bt ? CUBLAS_OP_N : CUBLAS_OP_T, at ? CUBLAS_OP_T : CUBLAS_OP_N, (int)g->n, (int)g->m, (int)g->k, &one, g->b.p, type,
                (int)(bt ? g->b.red : g->b.out), g->a.p, type, (int)(at ? g->a.red : g->a.out), &beta, g->c, ctype, (int)g->ldc,
                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
        return rlk_kfail(&x->detail, RLK_K_EINTERNAL, "provider gemm: cuBLAS refused m %lld n %lld k %lld", (long long)g->m, (long long)g->n,
                         (long long)g->k);
    return 0;
}
