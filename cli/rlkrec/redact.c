#include "cli/rlkrec/redact.h"

#include "cli/common/rlk_output.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const secret_words[] = {"token",  "key",        "secret",    "password",
                                           "passwd", "credential", "signature", "authorization"};

/* Access tokens known by how they begin; at least 16 more characters follow. */
static const char *const token_shapes[] = {"hf_", "ghp_", "gho_",  "ghs_",  "github_pat_", "glpat-",
                                           "sk-", "AKIA", "xoxb-", "xoxp-", "eyJhbGciOi",  "nvapi-"};

/* Variables that say how a run computes. A trailing * stands for any rest. */
static const char *const allowed[] = {
    "ACCELERATE_*",
    "ATEN_*",
    "ATTN_*",
    "CUBLAS*",
    "CUDA_*",
    "CUDNN_*",
    "DEEPSPEED_*",
    "FI_*",
    "FLASH*",
    "GLOO_*",
    "GOMP_*",
    "GOTO_*",
    "GROUP_RANK",
    "HF_*",
    "HIP_*",
    "HSA_*",
    "KMP_*",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MALLOC_*",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MEGATRON_*",
    "MIOPEN_*",
    "MKL_*",
    "NCCL_*",
    "NODE_RANK",
    "NUMBA_*",
    "NVIDIA_*",
    "NVTE_*",
    "NVSHMEM_*",
    "OMP_*",
    "OMPI_*",
    "OPENBLAS_*",
    "PBS_JOBID",
    "PMIX_*",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "PYTORCH_*",
    "RANK",
    "RAY_*",
    "RLK*",
    "ROCR_*",
    "SGLANG_*",
    "SGL_*",
    "SLURM_*",
    "TE_*",
    "TOKENIZERS_*",
    "TORCH*",
    "TRANSFORMERS_*",
    "TRITON_*",
    "TZ",
    "UCX_*",
    "VIRTUAL_ENV",
    "VLLM_*",
    "WORLD_SIZE",
    "XLA_*",
};

bool rlki_is_secret_name(const char *name, size_t n)
{
    for (size_t w = 0; w < sizeof secret_words / sizeof secret_words[0]; w++) {
        size_t len = strlen(secret_words[w]);
        for (size_t i = 0; i + len <= n; i++)
            if (strncasecmp(name + i, secret_words[w], len) == 0)
                return true;
    }
    return false;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* Length of an access token of a known shape at p, 0 if there is none. */
static size_t token_at(const char *p)
{
    for (size_t i = 0; i < sizeof token_shapes / sizeof token_shapes[0]; i++) {
        size_t n = strlen(token_shapes[i]), more = 0;
        if (strncmp(p, token_shapes[i], n) != 0)
            continue;
        while (is_name(p[n + more]))
            more++;
        if (more >= 16)
            return n + more;
    }
    return 0;
}

/* Length of the user part at p, just behind "://", up to but without '@'; 0 if there is none. */
static size_t user_at(const char *p)
{
    size_t n = strcspn(p, "/?# \t\n\"'<>"), at = 0;

    for (size_t i = 0; i < n; i++)
        if (p[i] == '@')
            at = i;
    return at;
}

/* Where the value of the name that ends at p begins, NULL if none follows. `option` = the name began with '-'. */
static const char *value_after(const char *p, bool option)
{
    const char *q = p;

    if (*q == '\\')
        q++;
    if (*q == '"' || *q == '\'')
        q++;
    if (*q == ']') /* cfg["key"] = */
        q++;
    while (*q == ' ' || *q == '\t')
        q++;
    if (*q == '=' || *q == ':') {
        while (*q == '=' || *q == ':' || *q == '>')
            q++;
        while (*q == ' ' || *q == '\t')
            q++;
        return *q ? q : NULL;
    }
    return option && q > p && *q && *q != '-' ? q : NULL;
}

/* Bytes of the value at p: to the closing quote, or to what ends a word in a shell, JSON or a URL. "Bearer x" is one.
 */
static size_t value_length(const char *p, const char **inside)
{
    size_t n = 0;

    if (*p == '\\' && (p[1] == '"' || p[1] == '\''))
        p++;
    if (*p == '"' || *p == '\'') {
        char quote = *p++;
        *inside = p;
        while (p[n] && p[n] != quote && !(p[n] == '\\' && p[n + 1] == quote))
            n++;
        return n;
    }
    *inside = p;
    if (strncasecmp(p, "bearer ", 7) == 0 || strncasecmp(p, "basic ", 6) == 0)
        n = strcspn(p, " ") + 1;
    return n + strcspn(p + n, " \t\n&;,)}|\"'");
}

char *rlki_redact_text(const char *text)
{
    /* Each replacement ends a piece of at least one byte. */
    char *out = malloc(strlen(text) * (sizeof RLKI_REDACTED + 1) + 1), *q = out;
    const char *p = text;
    size_t n;

    if (!out)
        return NULL;
    while (*p) {
        bool starts = p == text || !is_name(p[-1]);
        if (strncmp(p, "://", 3) == 0 && (n = user_at(p + 3)) > 0) {
            q += sprintf(q, "://%s", RLKI_REDACTED);
            p += 3 + n;
        } else if (starts && (n = token_at(p)) > 0) {
            q += sprintf(q, "%s", RLKI_REDACTED);
            p += n;
        } else if (starts && is_name(*p)) {
            const char *value, *inside = NULL;
            for (n = 0; is_name(p[n]);)
                n++;
            value = rlki_is_secret_name(p, n) ? value_after(p + n, *p == '-') : NULL;
            size_t length = value ? value_length(value, &inside) : 0;
            if (length) {
                memcpy(q, p, (size_t)(inside - p));
                q += inside - p;
                q += sprintf(q, "%s", RLKI_REDACTED);
                p = inside + length;
            } else {
                memcpy(q, p, n);
                q += n;
                p += n;
            }
        } else {
            *q++ = *p++;
        }
    }
    *q = 0;
    return out;
}

static json_t *redacted_json(const char *text)
{
    char *clean = rlki_redact_text(text);
    json_t *json = clean ? rlki_json_string(clean) : NULL;

    free(clean);
    return json;
}

/* NAME=[redacted] when `word` is NAME=VALUE with a secret name (whatever the value holds), else NULL. */
static char *whole_value(const char *word)
{
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : 0;
    char *out = NULL;

    if (!n || strcspn(word, " \t\n\"'") < n || strstr(word, "://") || !rlki_is_secret_name(word, n))
        return NULL;
    if (asprintf(&out, "%.*s=%s", (int)n, word, RLKI_REDACTED) < 0)
        return NULL;
    return out;
}

json_t *rlki_redact_argv(char *const *argv)
{
    json_t *list = json_array();
    bool next = false; /* the word before was a secret option without a value */

    for (size_t i = 0; list && argv[i]; i++) {
        const char *word = argv[i];
        char *whole = whole_value(word);
        json_t *json = next && strncmp(word, "--", 2) != 0 ? json_string(RLKI_REDACTED)
                       : whole                             ? rlki_json_string(whole)
                                                           : redacted_json(word);
        free(whole);
        next = i > 0 && word[0] == '-' && !strchr(word, '=') && rlki_is_secret_name(word, strlen(word));
        if (!json || json_array_append_new(list, json)) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static bool is_allowed(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        size_t len = strlen(allowed[i]);
        bool prefix = allowed[i][len - 1] == '*';
        if (prefix ? n >= len - 1 && memcmp(name, allowed[i], len - 1) == 0
                   : n == len && memcmp(name, allowed[i], len) == 0)
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

json_t *rlki_redact_environment(char *const *envp)
{
    json_t *object = json_object();
    const char **sorted = NULL;
    size_t n = 0;

    while (envp[n])
        n++;
    sorted = malloc((n + 1) * sizeof *sorted);
    if (!object || !sorted)
        goto fail;
    for (size_t i = 0; i < n; i++)
        sorted[i] = envp[i];
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n; i++) {
        const char *equals = strchr(sorted[i], '=');
        size_t len = equals ? (size_t)(equals - sorted[i]) : 0;
        if (!len || len > 256 || !is_allowed(sorted[i], len))
            continue;
        char name[257];
        memcpy(name, sorted[i], len);
        name[len] = 0;
        json_t *value = rlki_is_secret_name(name, len) ? json_string(RLKI_REDACTED) : redacted_json(equals + 1);
        if (!value || json_object_set_new(object, name, value))
            goto fail;
    }
    free(sorted);
    return object;
fail:
    free(sorted);
    json_decref(object);
    return NULL;
}
