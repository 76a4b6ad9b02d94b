/* rlk_recording.h - a whole recording NAME.rlk: manifest, environments, seal, and where recordings live. (rlk_archive:
 * jansson and OpenSSL; not linked into a watched process.)
 */
#ifndef STORE_RLK_RECORDING_H
#define STORE_RLK_RECORDING_H

#include "store/rlk_reader.h"

#include <jansson.h>

#define RLK_FORMAT_MAJOR 1
#define RLK_FORMAT_MINOR 1

/* "@1" = newest of rlk-recordings/, "@2" the one before, NULL or "" = newest, else a path (with or without .rlk). */
int rlk_recording_resolve(char *path, size_t size, const char *name, struct rlk_detail *detail);

/* Creates NAME.rlk (0700) with a manifest; RLK_EEXIST if it is there. *path gets the directory. */
int rlk_recording_create(const char *dir, const json_t *manifest, struct rlk_detail *detail);
/* Replaces the manifest atomically. */
int rlk_recording_write_manifest(const char *dir, const json_t *manifest, struct rlk_detail *detail);
/* rank-RRRRR.pid-P */
int rlk_recording_env_name(char *out, size_t size, uint32_t rank, int64_t pid);
/* Points rlk-recordings/latest at dir, atomically. */
int rlk_recording_set_latest(const char *dir, struct rlk_detail *detail);

struct rlk_recording;
int rlk_recording_open(struct rlk_recording **out, const char *dir, struct rlk_detail *detail);
void rlk_recording_close(struct rlk_recording *recording);
const char *rlk_recording_path(const struct rlk_recording *recording);
const json_t *rlk_recording_manifest(const struct rlk_recording *recording);
size_t rlk_recording_envs(const struct rlk_recording *recording);
struct rlk_env *rlk_recording_env(const struct rlk_recording *recording, size_t i);
const char *rlk_recording_env_dir(const struct rlk_recording *recording, size_t i);
/* Every rank that the manifest or a process group names has an END. *why (may be NULL) says what is missing. */
bool rlk_recording_complete(const struct rlk_recording *recording, struct rlk_detail *why);
/* How many ranks there were: with an event, named by a process group, or with a directory, an empty one too. */
int rlk_recording_world(const struct rlk_recording *recording, uint32_t *out, struct rlk_detail *detail);
int rlk_recording_coverage(const struct rlk_recording *recording, struct rlk_coverage *out, struct rlk_detail *detail);

/* SEAL: SHA-256 tree over records and file pages; leaves kept, so that verify names the place. */
enum rlk_seal_state {
    RLK_SEAL_ABSENT = 0,
    RLK_SEAL_GOOD = 1,
    RLK_SEAL_TAMPERED = 2,
};
int rlk_recording_seal(const char *dir, struct rlk_detail *detail);
/* Compares; `visit` (may be NULL) is called for each place that differs, most telling first: a record of an
 * environment, or a file and page. */
int rlk_recording_verify(const char *dir, enum rlk_seal_state *state, int (*visit)(void *context, const char *place),
                         void *context, struct rlk_detail *detail);

/* Is a recording still what was recorded? Whoever concludes something from one, or makes something of it, asks first.
 * With a seal every sealed file is read and compared (files that were added are nobody's business here); without one
 * every value of each ended process is compared with its checksum. RLK_ECORRUPT: it changed, the detail says where.
 * More than `most` bytes in all, or no seal and a process without END: *how is UNKNOWN, which the asker has to say. */
enum rlk_intact {
    RLK_INTACT_UNKNOWN = 0,
    RLK_INTACT_SEAL = 1,
    RLK_INTACT_CHECKSUMS = 2,
};
#define RLK_INTACT_MOST (UINT64_C(1) << 30) /* under a second, read from memory */
int rlk_recording_intact(const struct rlk_recording *recording, uint64_t most, enum rlk_intact *how,
                         struct rlk_detail *detail);
const char *rlk_intact_name(enum rlk_intact how); /* "seal", "checksums", "not-checked" */

#endif
