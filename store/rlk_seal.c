#include "store/rlk_seal_impl.h"

#include <stdio.h>

int rlk_recording_seal(const char *dir, struct rlk_detail *detail)
{
    struct rlki_seal seal = {0};
    struct rlki_sha *sha = rlki_sha_new();
    if (!sha)
        return rlk_fail(detail, RLK_ENOMEM, "SHA-256 cannot be set up");
    int rc = rlki_seal_take(&seal, dir, sha, NULL, detail);
    if (rc == RLK_OK)
        rc = rlki_seal_write(&seal, dir, sha, detail);
    rlki_seal_release(&seal);
    rlki_sha_free(sha);
    return rc;
}

struct report {
    int (*visit)(void *context, const char *place);
    void *context;
    bool tampered;
    int answer;
};

static void tell(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct report *r, const char *format, ...)
{
    char place[1024];
    va_list ap;
    r->tampered = true;
    if (!r->visit || r->answer)
        return;
    va_start(ap, format);
    vsnprintf(place, sizeof place, format, ap);
    va_end(ap);
    r->answer = r->visit(r->context, place);
}

/* Order of a record of one seal and of one of another. */
static int order(const struct rlki_seal *a, size_t i, const struct rlki_seal *b, size_t k)
{
    if (i == a->nrecords || k == b->nrecords)
        return i < a->nrecords ? -1 : k < b->nrecords;
    int by_env = strcmp(a->envs[a->records[i].env], b->envs[b->records[k].env]);
    if (by_env)
        return by_env;
    return a->records[i].key < b->records[k].key ? -1 : a->records[i].key > b->records[k].key;
}

static void tell_record(struct report *r, const struct rlki_seal *seal, size_t i, const char *what)
{
    const struct rlki_seal_record *record = &seal->records[i];
    tell(r, "%s: events %llu to %llu: %s", seal->envs[record->env], (unsigned long long)record->key,
         (unsigned long long)(record->key + record->count - (record->count != 0)), what);
}

static void compare_records(struct report *r, const struct rlki_seal *sealed, const struct rlki_seal *now)
{
    for (size_t i = 0, k = 0; (i < sealed->nrecords || k < now->nrecords) && !r->answer;) {
        int o = order(sealed, i, now, k);
        if (o < 0) {
            tell_record(r, sealed, i++, "missing or not readable");
        } else if (o > 0) {
            tell_record(r, now, k++, "not sealed");
        } else {
            if (memcmp(sealed->records[i].hash, now->records[k].hash, RLKI_HASH) != 0)
                tell_record(r, sealed, i, "changed");
            i++;
            k++;
        }
    }
}

static void compare_pages(struct report *r, const struct rlki_seal_file *sealed, const struct rlki_seal_file *now)
{
    if (sealed->size != now->size)
        tell(r, "%.900s: %llu bytes, %llu sealed", sealed->path, (unsigned long long)now->size,
             (unsigned long long)sealed->size);
    uint64_t both = sealed->npages < now->npages ? sealed->npages : now->npages;
    for (uint64_t i = 0; i < both && !r->answer; i++)
        if (memcmp(sealed->pages + i * RLKI_HASH, now->pages + i * RLKI_HASH, RLKI_HASH) != 0)
            tell(r, "%.900s: page %llu (bytes %llu and on): changed", sealed->path, (unsigned long long)i,
                 (unsigned long long)(i * RLKI_SEAL_PAGE));
}

static void compare_files(struct report *r, const struct rlki_seal *sealed, const struct rlki_seal *now)
{
    for (size_t i = 0, k = 0; (i < sealed->nfiles || k < now->nfiles) && !r->answer;) {
        int o = i == sealed->nfiles ? 1 : k == now->nfiles ? -1 : strcmp(sealed->files[i].path, now->files[k].path);
        if (o < 0)
            tell(r, "%.900s: removed", sealed->files[i++].path);
        else if (o > 0)
            tell(r, "%.900s: added after sealing", now->files[k++].path);
        else
            compare_pages(r, &sealed->files[i++], &now->files[k++]);
    }
}

int rlk_recording_verify(const char *dir, enum rlk_seal_state *state, int (*visit)(void *context, const char *place),
                         void *context, struct rlk_detail *detail)
{
    struct rlki_seal sealed = {0}, now = {0};
    struct report report = {visit, context, false, 0};
    struct rlk_detail why = {""};
    char *odd = NULL;
    *state = RLK_SEAL_ABSENT;
    struct rlki_sha *sha = rlki_sha_new();
    if (!sha)
        return rlk_fail(detail, RLK_ENOMEM, "SHA-256 cannot be set up");
    int rc = rlki_seal_read(&sealed, dir, sha, &why);
    if (rc == RLK_ENOENT) {
        rc = RLK_OK;
        goto out;
    }
    if (rc == RLK_ECORRUPT) {
        tell(&report, "%s", why.text);
        rc = RLK_OK;
        goto out;
    }
    if (rc) {
        if (detail)
            *detail = why;
        goto out;
    }
    rc = rlki_seal_take(&now, dir, sha, &odd, detail);
    if (rc)
        goto out;
    compare_records(&report, &sealed, &now);
    if (odd)
        tell(&report, "%.900s: neither a file nor a directory", odd);
    compare_files(&report, &sealed, &now);
    if (!report.tampered)
        *state = RLK_SEAL_GOOD;
out:
    if (rc == RLK_OK && report.tampered)
        *state = RLK_SEAL_TAMPERED;
    rlki_seal_release(&sealed);
    rlki_seal_release(&now);
    rlki_sha_free(sha);
    free(odd);
    return rc ? rc : report.answer;
}
