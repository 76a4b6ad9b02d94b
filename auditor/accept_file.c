/* accept_file.c - reading, checking and making acceptance files. */
#include "auditor/accept.h"
#include "auditor/mapfile.h"
#include "store/rlk_format.h"
#include "store/rlk_json_file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_ENTRIES 10000u
#define MAX_TEXT 1000u

static const char *const file_keys[] = {"schema", "accepted", "comment", NULL};
static const char *const entry_keys[] = {"scope", "reason", "owner", "accepted", "expires", "bound", "seen", NULL};
static const char *const scope_keys[] = {"step", "phase", "pass", "module", "op", "role", "index", "name", NULL};
static const char *const bound_keys[] = {"max_ulp", "any", NULL};

bool rlki_accept_day(int64_t *out, const char *text)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    char rest;
    if (strlen(text) != 10 || text[4] != '-' || text[7] != '-' || strspn(text, "0123456789-") != 10 ||
        sscanf(text, "%4d-%2d-%2d%c", &year, &month, &day, &rest) != 3)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days[month - 1] + (month == 2 && leap))
        return false;
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    *out = (int64_t)timegm(&tm) / 86400;
    return true;
}

int64_t rlki_accept_today(void)
{
    return (int64_t)time(NULL) / 86400;
}

static int bad_entry(const char *path, size_t i, struct rlk_detail *detail, const char *what)
{
    return rlk_fail(detail, RLK_EPARSE, "%.250s: accepted[%zu]: %.150s", path, i, what);
}

static int check_scope(const json_t *scope, const char *path, size_t i, struct rlk_detail *detail)
{
    static const char *const texts[] = {"phase", "pass", "module", "op", "name"};
    if (!json_is_object(scope))
        return bad_entry(path, i, detail, "scope is no object");
    if (rlk_json_stranger(scope, scope_keys))
        return bad_entry(path, i, detail, "an unknown key in scope");
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        const json_t *value = json_object_get(scope, texts[k]);
        if (value && (!json_is_string(value) || json_string_length(value) > 4096))
            return bad_entry(path, i, detail, "scope: phase, pass, module, op and name are texts");
    }
    const json_t *step = json_object_get(scope, "step"), *index = json_object_get(scope, "index");
    const json_t *role = json_object_get(scope, "role");
    const char *role_text = json_string_value(role);
    if ((step && !json_is_integer(step)) || (index && !json_is_integer(index)))
        return bad_entry(path, i, detail, "scope: step and index are integers");
    if (role && (!role_text || (strcmp(role_text, "in") != 0 && strcmp(role_text, "out") != 0)))
        return bad_entry(path, i, detail, "scope: role is in or out");
    if (!*(json_string_value(json_object_get(scope, "op")) ? json_string_value(json_object_get(scope, "op")) : ""))
        return bad_entry(path, i, detail, "scope names no op");
    return RLK_OK;
}

static int check_bound(const json_t *bound, const char *path, size_t i, struct rlk_detail *detail)
{
    const json_t *ulp = json_object_get(bound, "max_ulp"), *any = json_object_get(bound, "any");
    if (!json_is_object(bound) || rlk_json_stranger(bound, bound_keys) || json_object_size(bound) != 1)
        return bad_entry(path, i, detail, "bound is {\"max_ulp\": n} or {\"any\": true}");
    if (ulp ? !json_is_integer(ulp) || json_integer_value(ulp) < 0 : !json_is_true(any))
        return bad_entry(path, i, detail, "bound is {\"max_ulp\": n} or {\"any\": true}");
    return RLK_OK;
}

int rlki_accept_check(const json_t *file, const char *path, struct rlk_detail *detail)
{
    const json_t *list = json_object_get(file, "accepted"), *entry;
    size_t i;
    int rc = RLK_OK;
    if (rlk_json_stranger(file, file_keys))
        return rlk_fail(detail, RLK_EPARSE, "%.300s: unknown key \"%.60s\"", path, rlk_json_stranger(file, file_keys));
    if (!json_is_array(list) || json_array_size(list) > MAX_ENTRIES)
        return rlk_fail(detail, RLK_EPARSE, "%.300s: \"accepted\" is no list of at most %u entries", path, MAX_ENTRIES);
    json_array_foreach(list, i, entry)
    {
        int64_t day;
        const char *expires = rlk_json_line(entry, "expires", 10);
        if (!json_is_object(entry) || rlk_json_stranger(entry, entry_keys))
            return bad_entry(path, i, detail, "no object, or an unknown key");
        if (!rlk_json_line(entry, "reason", MAX_TEXT) || !rlk_json_line(entry, "owner", MAX_TEXT))
            return bad_entry(path, i, detail, "reason and owner are lines of text, and required");
        if (!expires || !rlki_accept_day(&day, expires))
            return bad_entry(path, i, detail, "expires is a day, YYYY-MM-DD");
        rc = check_scope(json_object_get(entry, "scope"), path, i, detail);
        if (rc == RLK_OK)
            rc = check_bound(json_object_get(entry, "bound"), path, i, detail);
        if (rc)
            return rc;
    }
    return RLK_OK;
}

int rlk_accept_read(json_t **out, const char *path, struct rlk_detail *detail)
{
    int rc = rlk_json_file(out, path, RLK_ACCEPT_SCHEMA, RLK_ACCEPT_BYTES, detail);
    if (rc == RLK_OK)
        rc = rlki_accept_check(*out, path, detail);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- making one ---- */

/* An output root stands for all outputs of its event, so it has neither index nor name. */
static json_t *scope_of(const json_t *root)
{
    static const char *const keys[] = {"phase", "pass", "module", "op", "role", "index", "name"};
    const char *role = json_string_value(json_object_get(root, "role"));
    size_t n = role && strcmp(role, "in") == 0 ? 7 : 5;
    json_t *scope = json_object();
    for (size_t i = 0; i < n && scope; i++) {
        json_t *value = json_object_get(root, keys[i]);
        if (value)
            rlki_set(scope, keys[i], json_incref(value));
    }
    return scope;
}

static int bound_of(json_t **out, const json_t *root, const struct rlk_accept_request *request,
                    struct rlk_detail *detail)
{
    const json_t *difference = json_object_get(root, "difference"), *ulp = json_object_get(difference, "max_ulp");
    const char *module = json_string_value(json_object_get(root, "module"));
    const char *op = json_string_value(json_object_get(root, "op"));
    *out = NULL;
    if (request->any) {
        *out = json_pack("{s:b}", "any", 1);
    } else if (request->max_ulp >= 0) {
        *out = json_pack("{s:I}", "max_ulp", (json_int_t)request->max_ulp);
    } else if (json_is_integer(ulp) && json_integer_value(ulp) >= 0 &&
               json_integer_value(json_object_get(difference, "nan")) == 0) {
        *out = json_pack("{s:I}", "max_ulp", json_integer_value(ulp));
    } else {
        return rlk_fail(detail, RLK_EINVAL,
                        "how much %.150s of %.150s differs is not known: keep its bytes (first-diff --plan, rlkrec run "
                        "--plan), or say --bound N or --bound any",
                        op ? op : "?", module && *module ? module : "(root)");
    }
    return *out ? RLK_OK : RLK_ENOMEM;
}

static int make_entry(json_t **out, const json_t *root, const struct rlk_accept_request *request, const char *today,
                      struct rlk_detail *detail)
{
    json_t *bound = NULL;
    int rc = bound_of(&bound, root, request, detail);
    if (rc)
        return rc;
    const json_t *difference = json_object_get(root, "difference");
    *out =
        json_pack("{s:o,s:o,s:o,s:s,s:s,s:o,s:o}", "scope", scope_of(root), "reason", rlki_json_text(request->reason),
                  "owner", rlki_json_text(request->owner), "accepted", today, "expires", request->expires, "bound",
                  bound, "seen", difference ? json_deep_copy(difference) : json_null());
    return *out ? RLK_OK : RLK_ENOMEM;
}

/* Replaces the entry of the same scope, or adds one. Steals `entry`. */
static void put_entry(json_t *list, json_t *entry)
{
    size_t i;
    const json_t *old;
    json_array_foreach(list, i, old) if (json_equal(json_object_get(old, "scope"), json_object_get(entry, "scope")))
    {
        rlki_replace(list, i, entry);
        return;
    }
    rlki_add(list, entry);
}

static int check_request(const json_t *result, const struct rlk_accept_request *request, struct rlk_detail *detail)
{
    int64_t day;
    json_t *lines = json_pack("{s:s%,s:s%}", "reason", request->reason, strlen(request->reason), "owner",
                              request->owner, strlen(request->owner));
    bool good = rlk_json_line(lines, "reason", MAX_TEXT) && rlk_json_line(lines, "owner", MAX_TEXT);
    bool text = rlki_utf8((const uint8_t *)request->reason, strlen(request->reason)) &&
                rlki_utf8((const uint8_t *)request->owner, strlen(request->owner));
    if (!lines && text)
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    json_decref(lines);
    if (!good)
        return rlk_fail(detail, RLK_EINVAL, "reason and owner are lines of at most %u bytes of UTF-8", MAX_TEXT);
    if (!rlki_accept_day(&day, request->expires))
        return rlk_fail(detail, RLK_EINVAL, "expires is a day, YYYY-MM-DD");
    if (day < rlki_accept_today())
        return rlk_fail(detail, RLK_EINVAL, "that day is over: %.20s", request->expires);
    if (!json_array_size(json_object_get(result, "roots")))
        return rlk_fail(detail, RLK_EINVAL, "the result has no root: nothing to accept");
    return RLK_OK;
}

int rlk_accept_make(json_t **out, size_t *nroots, const json_t *file, const json_t *result,
                    const struct rlk_accept_request *request, struct rlk_detail *detail)
{
    char today[16];
    time_t now = time(NULL);
    struct tm tm;
    size_t i;
    const json_t *root;
    *out = NULL;
    *nroots = 0;
    rlki_json_begin();
    int rc = check_request(result, request, detail);
    if (rc)
        return rc;
    gmtime_r(&now, &tm);
    strftime(today, sizeof today, "%Y-%m-%d", &tm);
    json_t *made = file ? json_deep_copy(file) : json_pack("{s:s,s:[]}", "schema", RLK_ACCEPT_SCHEMA, "accepted");
    if (!made)
        return rlk_fail(detail, RLK_ENOMEM, "out of memory");
    json_array_foreach(json_object_get(result, "roots"), i, root)
    {
        const char *module = json_string_value(json_object_get(root, "module"));
        json_t *entry = NULL;
        if (request->modules && !rlki_pattern_fits(request->modules, module ? module : ""))
            continue;
        rc = make_entry(&entry, root, request, today, detail);
        if (rc)
            break;
        put_entry(json_object_get(made, "accepted"), entry);
        ++*nroots;
    }
    if (rc == RLK_OK && !*nroots)
        rc = rlk_fail(detail, RLK_EINVAL, "no root is in a module that fits %.200s", request->modules);
    if (rc == RLK_OK && rlki_json_failed())
        rc = rlk_fail(detail, RLK_ENOMEM, "out of memory");
    if (rc == RLK_OK)
        rc = rlki_accept_check(made, "the acceptance", detail); /* what is written can be read */
    if (rc)
        json_decref(made);
    else
        *out = made;
    return rc;
}
