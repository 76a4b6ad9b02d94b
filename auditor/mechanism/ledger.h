/* ledger.h - all weights events of one recording: which versions the trainer made, what the rollout was given. */
#ifndef AUDITOR_LEDGER_H
#define AUDITOR_LEDGER_H

#include "auditor/audit.h"

struct rlki_ledger_sums {
    bool known;                /* the recording was small enough to look through */
    uint32_t syncs;            /* weights events of the rollout on the rank that has the most */
    uint32_t tensors, changed; /* distinct tensors of them; those whose bits ever changed */
    uint32_t trainer, trainer_changed;
    uint32_t without; /* the trainer's that the rollout never got */
};
/* Of a rollout tensor's bits: which of the trainer's versions of that name is it? */
struct rlki_origin_version {
    bool found;
    uint32_t nth, newest; /* 1-based among the trainer's versions of that tensor; the newest up to the step */
    int64_t step;
    uint32_t label; /* a name: of its first publication */
    bool
        other_label; /* the label given is one that the trainer gave to other bits of that tensor, and never to these */
};

int rlki_sync_sums(struct rlki_audit *audit, int side, struct rlki_ledger_sums *out);
/* The step in which the rollout of that rank was first given these bits; `step` if not before it. */
int rlki_sync_given(struct rlki_audit *audit, int side, uint32_t rank, const struct rlk_tensor *t, int64_t step,
                    int64_t *first);
/* Of the ranks of the rollout that were given this tensor in this step: how many got bits that they had in an earlier
 * one, the lowest of them, and how many got new ones. */
struct rlki_kept {
    uint64_t kept, fresh;
    uint32_t rank;
};
int rlki_sync_kept(struct rlki_audit *audit, int side, const char *name, int64_t step, struct rlki_kept *out);
int rlki_sync_version(struct rlki_audit *audit, int side, const char *name, const struct rlk_sums *sums, int64_t step,
                      const char *label, struct rlki_origin_version *out);

#endif
