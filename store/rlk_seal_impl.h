/* rlk_seal_impl.h - the contents of a SEAL in memory (internal to rlk_archive; docs/format.md, "SEAL").
 *
 * rlk_seal_take.c   from a recording: lists, reads and hashes it
 * rlk_seal_file.c   to and from the file SEAL
 * rlk_seal.c        sealing and verifying
 */
#ifndef STORE_RLK_SEAL_IMPL_H
#define STORE_RLK_SEAL_IMPL_H

#include "store/rlk_codec.h"
#include "store/rlk_mdb_read.h"
#include "store/rlk_recording.h"

#define RLKI_SEAL_FILE "SEAL"
#define RLKI_SEAL_TEMPORARY "SEAL.tmp"
#define RLKI_SEAL_PAGE 4096u
#define RLKI_SEAL_DEPTH 16u
#define RLKI_HASH 32u

struct rlki_seal_file {
    char *path; /* relative; a directory ends in '/' */
    uint64_t size, npages;
    uint8_t *pages; /* npages hashes */
};

struct rlki_seal_record {
    uint32_t env; /* index into envs */
    uint32_t count;
    uint64_t key;
    uint8_t hash[RLKI_HASH];
};

struct rlki_seal {                /* zero-initialised = empty */
    struct rlki_seal_file *files; /* by ascending path */
    size_t nfiles, cap_files;
    char **envs; /* directory names, ascending */
    size_t nenvs, cap_envs;
    struct rlki_seal_record *records; /* by environment, then key */
    size_t nrecords, cap_records;
};

struct rlki_sha; /* a hashing context, reused */
struct rlki_sha *rlki_sha_new(void);
void rlki_sha_free(struct rlki_sha *sha);
void rlki_sha_start(struct rlki_sha *sha, uint8_t tag);
void rlki_sha_add(struct rlki_sha *sha, const void *p, size_t n);
/* False if any step since the start failed. */
bool rlki_sha_end(struct rlki_sha *sha, uint8_t hash[RLKI_HASH]);

/* Lists, reads and hashes everything below dir. A thing that is neither file nor directory: RLK_EUNSUPPORTED, or, where
 * `odd` is given, its path goes there (malloc'ed, the first one only) and it is left out. */
int rlki_seal_take(struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, char **odd,
                   struct rlk_detail *detail);
void rlki_seal_release(struct rlki_seal *seal);

int rlki_seal_root(const struct rlki_seal *seal, struct rlki_sha *sha, uint8_t root[RLKI_HASH]);
int rlki_seal_write(const struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, struct rlk_detail *detail);
/* RLK_ENOENT: no SEAL. RLK_ECORRUPT: damaged, the detail says where. */
int rlki_seal_read(struct rlki_seal *seal, const char *dir, struct rlki_sha *sha, struct rlk_detail *detail);

struct rlki_seal_file *rlki_seal_add_file(struct rlki_seal *seal, const char *path, size_t n); /* NULL = no memory */
int rlki_seal_add_env(struct rlki_seal *seal, const char *name, size_t n, uint32_t *index);
struct rlki_seal_record *rlki_seal_add_record(struct rlki_seal *seal);

#endif
