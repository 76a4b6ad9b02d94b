/* rlk_error.h - the error codes of every library here: 0 = ok, negative = error.
 *
 * Each code has a name and one sentence that says what the caller can do. The particulars (a path, a record, a JSON
 * path) go to a caller-owned struct rlk_detail, which may be NULL wherever one is taken.
 */
#ifndef STORE_RLK_ERROR_H
#define STORE_RLK_ERROR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RLK_ERRORS(X)                                                                                                  \
    X(RLK_ENOMEM, -1, "out of memory: free some, or record less")                                                      \
    X(RLK_EINVAL, -2, "an argument is outside what the function accepts")                                              \
    X(RLK_EIO, -3, "reading or writing failed: check the disk and the permissions")                                    \
    X(RLK_ENOSPC, -4, "the disk is full: free space, or record with --max-size")                                       \
    X(RLK_EEXIST, -5, "it exists already: choose another name, or remove it with rlkrec rm")                           \
    X(RLK_ENOENT, -6, "there is no such recording, file or record")                                                    \
    X(RLK_ECORRUPT, -7, "the recording is damaged: see rlkrec verify")                                                 \
    X(RLK_EVERSION, -8, "the recording has a newer format: use a newer rlkrec")                                        \
    X(RLK_ELIMIT, -9, "a bound of the format is exceeded (docs/format.md)")                                            \
    X(RLK_ESTATE, -10, "the call does not fit the state of the object")                                                \
    X(RLK_EAGAIN, -11, "not ready yet: call again later")                                                              \
    X(RLK_EFULL, -12, "a queue or ring is full: the event was dropped and counted")                                    \
    X(RLK_ECOVER, -13, "the parts do not cover the whole exactly once")                                                \
    X(RLK_EPARSE, -14, "the input is not well-formed: see the detail for the place")                                   \
    X(RLK_EUNSUPPORTED, -15, "not supported here: see the detail")                                                     \
    X(RLK_EPERM, -16, "permission denied")                                                                             \
    X(RLK_EINTERNAL, -17, "a fault of rlkrec itself: please report it")

enum rlk_error {
    RLK_OK = 0,
#define X(name, code, sentence) name = code,
    RLK_ERRORS(X)
#undef X
};

/* The particulars of the last error, e.g. "rank-00000.pid-7/data.mdb: chunk 12: checksum". */
struct rlk_detail {
    char text[512];
};

const char *rlk_error_name(int code);     /* "RLK_ENOMEM"; "RLK_OK"; "RLK_?" for an unknown code */
const char *rlk_error_sentence(int code); /* what the caller can do; never NULL */

/* Fills *detail (if not NULL) and returns code, so that a failing path reads: return rlk_fail(d, RLK_EIO, "..."). */
int rlk_fail(struct rlk_detail *detail, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Maps an errno value to the nearest code. */
int rlk_error_from_errno(int err);

#ifdef __cplusplus
}
#endif

#endif
