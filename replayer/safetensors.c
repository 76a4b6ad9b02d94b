/* safetensors.c - reads one safetensors file that may hold anything. */
#include "replayer/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER (UINT64_C(100) << 20) /* as other readers bound it */
#define MAX_CONFIG (UINT64_C(64) << 20)

static int malformed(const char *path, const char *what, struct rlk_kdetail *detail)
{
    return rlk_kfail(detail, RLK_K_EINVAL, "%.300s: %.150s", path, what);
}

static int read_at(int fd, const char *path, uint64_t at, void *to, size_t n, struct rlk_kdetail *detail)
{
    char *p = to;
    while (n) {
        const ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return malformed(path, strerror(errno), detail);
        if (got == 0)
            return malformed(path, "the file ends early", detail);
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int open_regular(const char *path, int *fd, uint64_t *size, struct rlk_kdetail *detail)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO does not block */
    if (*fd < 0)
        return malformed(path, strerror(errno), detail);
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0)
        return malformed(path, "not a regular file", detail);
    *size = (uint64_t)st.st_size;
    return 0;
}

static json_t *parse(const char *path, const char *text, size_t n, int *rc, struct rlk_kdetail *detail)
{
    json_error_t error;
    char what[140];
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!o && json_error_code(&error) == json_error_out_of_memory) {
        *rc = rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for %.300s", path);
    } else if (!o) {
        snprintf(what, sizeof what, "not JSON: line %d: %.90s", error.line, error.text);
        *rc = malformed(path, what, detail);
    } else if (!json_is_object(o)) {
        *rc = malformed(path, "a JSON object was expected", detail);
        json_decref(o);
        o = NULL;
    }
    return o;
}

static json_t *load(int fd, const char *path, uint64_t at, uint64_t n, int *rc, struct rlk_kdetail *detail)
{
    char *text = malloc((size_t)n + 1);
    json_t *o = NULL;
    *rc = text ? read_at(fd, path, at, text, (size_t)n, detail)
               : rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for %.300s", path);
    if (!*rc)
        o = parse(path, text, (size_t)n, rc, detail);
    free(text);
    return o;
}

json_t *rlki_json_file(const char *path, int *rc, struct rlk_kdetail *detail)
{
    int fd = -1;
    uint64_t size = 0;
    json_t *o = NULL;
    *rc = open_regular(path, &fd, &size, detail);
    if (!*rc && size > MAX_CONFIG)
        *rc = malformed(path, "too large for a configuration", detail);
    if (!*rc)
        o = load(fd, path, 0, size, rc, detail);
    if (fd >= 0)
        close(fd);
    return o;
}

static size_t bytes_of(const char *dtype)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"BF16", 2}, {"F16", 2}, {"F32", 4},  {"F64", 8},     {"I8", 1},
                 {"U8", 1},   {"I16", 2}, {"U16", 2},  {"I32", 4},     {"U32", 4},
                 {"I64", 8},  {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, dtype) == 0)
            return types[i].bytes;
    return 0;
}

struct range {
    uint64_t first, last;
};

/* One entry of the header: its bytes are as many as its shape and type need, and lie in the file. */
static const char *check_entry(const json_t *e, uint64_t size, struct range *out)
{
    const char *dtype = json_string_value(json_object_get(e, "dtype"));
    const json_t *shape = json_object_get(e, "shape"), *at = json_object_get(e, "data_offsets");
    const json_t *first = json_array_get(at, 0), *last = json_array_get(at, 1);
    uint64_t bytes = bytes_of(dtype);
    if (!json_is_object(e) || !dtype || !json_is_array(shape) || json_array_size(at) != 2 || !json_is_integer(first) ||
        !json_is_integer(last))
        return "an entry lacks dtype, shape or data_offsets";
    if (!bytes)
        return "an unknown dtype";
    for (size_t d = 0; d < json_array_size(shape); d++) {
        const json_t *n = json_array_get(shape, d);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return "a shape that is none";
        if (__builtin_mul_overflow(bytes, (uint64_t)json_integer_value(n), &bytes))
            return "a shape that is too large";
    }
    if (json_integer_value(first) < 0 || json_integer_value(last) < json_integer_value(first) ||
        (uint64_t)json_integer_value(last) > size)
        return "data_offsets outside the file";
    *out = (struct range){(uint64_t)json_integer_value(first), (uint64_t)json_integer_value(last)};
    return out->last - out->first == bytes ? NULL : "data_offsets that do not fit the shape";
}

static int by_place(const void *x, const void *y)
{
    const struct range *a = x, *b = y;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->last < b->last ? -1 : a->last > b->last;
}

/* Every byte belongs to one tensor. */
static int check_header(const struct rlki_tensors *f, uint64_t size, struct rlk_kdetail *detail)
{
    struct range *all = calloc(json_object_size(f->header) + 1, sizeof *all);
    const char *name, *wrong = NULL;
    json_t *e;
    char what[150] = "";
    size_t n = 0;
    if (!all)
        return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for %.300s", f->path);
    json_object_foreach(f->header, name, e)
    {
        wrong = check_entry(e, size, &all[n++]);
        if (wrong) {
            snprintf(what, sizeof what, "%.80s: %s", name, wrong);
            break;
        }
    }
    if (n)
        qsort(all, n, sizeof *all, by_place);
    uint64_t end = 0;
    for (size_t i = 0; i < n && !wrong; end = all[i++].last)
        wrong = all[i].first != end ? "tensors overlap, or bytes belong to none" : NULL;
    if (!wrong && end != size)
        wrong = "bytes at the end belong to no tensor";
    free(all);
    return wrong ? malformed(f->path, what[0] ? what : wrong, detail) : 0;
}

int rlki_tensors_open(struct rlki_tensors *f, const char *path, struct rlk_kdetail *detail)
{
    unsigned char length[8];
    uint64_t size = 0, n = 0;
    *f = (struct rlki_tensors){.fd = -1};
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return malformed(path, "the path is too long", detail);
    int rc = open_regular(path, &f->fd, &size, detail);
    if (!rc)
        rc = size < 8 ? malformed(path, "the file ends early", detail) : read_at(f->fd, path, 0, length, 8, detail);
    for (int b = 0; !rc && b < 8; b++)
        n |= (uint64_t)length[b] << (8 * b);
    if (!rc && (n > MAX_HEADER || n > size - 8))
        rc = malformed(path, "not safetensors: the header is longer than the file", detail);
    if (!rc)
        f->header = load(f->fd, path, 8, n, &rc, detail);
    if (!rc) {
        f->data = 8 + n;
        json_object_del(f->header, "__metadata__");
        rc = check_header(f, size - f->data, detail);
    }
    if (rc)
        rlki_tensors_close(f);
    return rc;
}

void rlki_tensors_close(struct rlki_tensors *f)
{
    json_decref(f->header);
    f->header = NULL;
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

static bool has_shape(const json_t *shape, int ndim, int64_t rows, int64_t cols)
{
    const int64_t want[2] = {ndim == 2 ? rows : cols, cols};
    bool same = json_array_size(shape) == (size_t)ndim;
    for (int d = 0; d < ndim && same; d++)
        same = json_integer_value(json_array_get(shape, (size_t)d)) == want[d];
    return same;
}

int rlki_tensors_read(struct rlki_tensors *f, const char *name, int ndim, int64_t rows, int64_t cols, void **bytes,
                      size_t *size, const char **dtype, struct rlk_kdetail *detail)
{
    const json_t *e = json_object_get(f->header, name), *at = json_object_get(e, "data_offsets");
    char what[150];
    *bytes = NULL;
    if (!e || (ndim && !has_shape(json_object_get(e, "shape"), ndim, rows, cols))) {
        if (!e)
            snprintf(what, sizeof what, "there is no %.90s", name);
        else if (ndim == 1)
            snprintf(what, sizeof what, "%.80s has not the shape [%lld]", name, (long long)cols);
        else
            snprintf(what, sizeof what, "%.80s has not the shape [%lld, %lld]", name, (long long)rows, (long long)cols);
        return malformed(f->path, what, detail);
    }
    const uint64_t first = (uint64_t)json_integer_value(json_array_get(at, 0));
    *size = (size_t)((uint64_t)json_integer_value(json_array_get(at, 1)) - first);
    *dtype = json_string_value(json_object_get(e, "dtype"));
    *bytes = malloc(*size + 1);
    if (!*bytes)
        return rlk_kfail(detail, RLK_K_ENOMEM, "out of memory for %.90s", name);
    const int rc = read_at(f->fd, f->path, f->data + first, *bytes, *size, detail);
    if (rc) {
        free(*bytes);
        *bytes = NULL;
    }
    return rc;
}
