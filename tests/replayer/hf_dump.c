/* hf_dump DIR OUT: one step of a policy from a Hugging Face folder, for test_transformers.py to compare.
 *
 * OUT.json: tokens, prompt lengths, advantages, log-probabilities; OUT.logits: fp32 [tokens of all samples][vocab]
 * under the folder's weights; OUT.grads: fp32, every parameter's gradient of the step, one after the other as listed.
 */
#include "replayer/rlk_folder.h"
#include "replayer/run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct work {
    struct rlki_pass p;
    struct rlki_ptrs z;
};

static int logits(void *arg)
{
    struct work *k = arg;
    const int64_t V = k->p.run->opt.model.vocab;
    int rc = rlki_forward(&k->p);
    const struct rlk_logp l = rlki_head_args(&k->p);
    if (!rc)
        rc = rlki_frame_take(k->p.run, k->p.w, k->p.b, V, RLK_K_FP32, &k->z);
    return rc ? rc : rlk_logits(k->p.w, k->p.b, &l, RLKI_IN(&k->p.h), RLKI_F(&k->z));
}

static int write_all(const char *base, const char *end, const void *bytes, size_t n, const char *mode)
{
    char path[1000];
    snprintf(path, sizeof path, "%s%s", base, end);
    FILE *f = fopen(path, mode);
    const int rc = !f || fwrite(bytes, 1, n, f) != n;
    return (f && fclose(f) != 0) || rc;
}

/* All samples as one packed batch, under the weights of the folder (the reference policy's). */
static int dump_logits(struct rlk_train *run, const char *out)
{
    struct rlki_micro m;
    int rc = rlki_micro_new(run, 0, run->opt.samples, &m);
    if (rc)
        return rc;
    struct work k = {
        .p = {.run = run, .w = &run->train, .b = m.batch, .weight = run->ref, .ids = m.ids, .targets = m.targets}};
    const size_t n = (size_t)m.tokens * (size_t)run->opt.model.vocab * sizeof(float);
    float *host = malloc(n + 1);
    rc = host ? rlki_room(run, logits, &k) : RLK_K_ENOMEM;
    if (!rc)
        rc = logits(&k);
    if (!rc)
        rc = rlk_exec_download(&run->x, host, k.z.p[0], n) || write_all(out, ".logits", host, n, "wb");
    free(host);
    rlki_micro_free(run, &m);
    return rc;
}

static int dump_grads(struct rlk_train *run, const char *out, json_t *names)
{
    int rc = write_all(out, ".grads", "", 0, "wb");
    for (int p = 0; !rc && p < rlk_train_params(run); p++) {
        const struct rlk_param_info info = rlk_train_param(run, p);
        const size_t n = (size_t)(info.rows * info.cols) * sizeof(float);
        float *host = malloc(n);
        rc = host ? rlk_train_copy(run, RLK_TRAIN_GRAD, p, host, NULL) : RLK_K_ENOMEM;
        if (!rc)
            rc = write_all(out, ".grads", host, n, "ab") || json_array_append_new(names, json_string(info.name));
        free(host);
    }
    return rc;
}

static int dump_facts(const struct rlk_train_facts *f, const char *out, json_t *names)
{
    json_t *all = json_pack("{s:[],s:O}", "samples", "parameters", names);
    char path[1000];
    for (int s = 0; s < f->samples; s++) {
        json_t *ids = json_array(), *logp = json_array();
        for (int32_t i = 0; i < f->length[s]; i++)
            json_array_append_new(ids, json_integer(f->sequence[s][i]));
        for (int32_t i = 0; i < f->length[s] - f->prompt[s]; i++)
            json_array_append_new(logp, json_real((double)f->train_logp[s][i]));
        json_array_append_new(json_object_get(all, "samples"),
                              json_pack("{s:o,s:o,s:i,s:f}", "ids", ids, "logp", logp, "prompt", f->prompt[s],
                                        "advantage", f->advantage[s]));
    }
    snprintf(path, sizeof path, "%s.json", out);
    const int rc = json_dump_file(all, path, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(all);
    return rc;
}

int main(int argc, char **argv)
{
    struct rlk_train_options o;
    struct rlk_kdetail detail = {""};
    struct rlk_folder *folder = NULL;
    struct rlk_train *run = NULL;
    struct rlk_train_facts facts;
    json_t *names = json_array();
    rlk_train_options_init(&o);
    int rc = argc == 3 ? rlk_folder_open(&folder, argv[1], &detail) : -1;
    if (!rc) {
        o.model = *rlk_folder_shape(folder);
        o.folder = folder;
        o.samples = 4;
        o.group = 2;
        o.prompt = 16;
        o.fresh = 16;
        o.stop_ids = 0;
        o.tp = 2;
        o.cp = 2;
        o.micro_batches = 2;
        o.temperature = 1.0f;
        o.top_p = 1.0f;
        rc = rlk_train_new(&o, &run, &detail);
    }
    if (!rc)
        rc = rlk_train_step(run, &facts, &detail);
    if (!rc)
        rc = dump_grads(run, argv[2], names);
    if (!rc)
        rc = dump_facts(&facts, argv[2], names);
    if (run)
        rlk_train_free(run);
    o.tp = o.cp = o.micro_batches = 1; /* whole rows of logits; the same prompts and draws */
    if (!rc)
        rc = rlk_train_new(&o, &run, &detail);
    if (!rc)
        rc = rlk_train_step(run, NULL, &detail);
    if (!rc)
        rc = dump_logits(run, argv[2]);
    if (rc)
        fprintf(stderr, "hf_dump: %d: %s\n", rc, detail.text);
    if (!rc)
        rlk_train_free(run);
    rlk_folder_close(folder);
    json_decref(names);
    return rc != 0;
}
