/* Every TP x CP placement of packed samples adds up to the whole, for the shapes of real model families. */
#include "store/rlk_digest.h"
#include "store/rlk_place.h"
#include "tests/store/fill.h"
#include "tests/store/lattice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define MAX_RANKS 64u
#define MAX_RUNS 512u
#define NO_DIM UINT32_MAX
#define SAMPLES_MAX 12u

static const struct packing {
    uint32_t n;
    uint64_t lengths[SAMPLES_MAX];
} packings[] = {
    {1, {1}},          {1, {15}},
    {1, {16}},         {1, {17}},
    {1, {255}},        {1, {256}},
    {1, {257}},        {4, {257, 1, 16, 255}},
    {3, {300, 0, 31}}, {7, {1, 15, 16, 17, 255, 256, 257}},
};
#define NPACKINGS (sizeof packings / sizeof packings[0])

/* A tensor of a model. tokens: the dimension that packed tokens run along; features: the one that TP cuts, in segments
 * (q, k, v heads; or one), each cut on its own. grain: shard borders are multiples of it (vocabulary padding). */
struct model_tensor {
    const char *name;
    enum rlk_dtype dtype;
    uint32_t ndim;
    uint64_t shape[3]; /* 0 in the token dimension */
    uint32_t tokens, features;
    uint32_t nsegments;
    uint64_t segments[3];
    uint64_t grain;
};

static const struct model_tensor tensors[] = {
    {"hidden 4096", RLK_BF16, 2, {0, 512}, 0, 1, 1, {512}, 1},
    {"sequence parallel", RLK_BF16, 2, {0, 128}, 0, NO_DIM, 0, {0}, 1},
    {"log-sum-exp [T, heads]", RLK_FP32, 2, {0, 32}, 0, 1, 1, {32}, 1},
    {"qkv [T, q+2kv, 128]", RLK_BF16, 3, {0, 48, 32}, 0, 1, 3, {32, 8, 8}, 1},
    {"heads of 64", RLK_FP16, 3, {0, 16, 64}, 0, 1, 1, {16}, 1},
    {"heads of 128", RLK_FP8_E4M3, 3, {0, 8, 128}, 0, 1, 1, {8}, 1},
    {"gate/up [T, 2, I]", RLK_BF16, 3, {0, 2, 192}, 0, 2, 1, {192}, 1},
    {"per-token log-probs", RLK_FP32, 1, {0}, 0, NO_DIM, 0, {0}, 1},
    {"token ids", RLK_INT64, 1, {0}, 0, NO_DIM, 0, {0}, 1},
    {"row-parallel weight", RLK_BF16, 2, {24, 256}, NO_DIM, 1, 1, {256}, 1},
    {"column-parallel weight", RLK_BF16, 2, {88, 96}, NO_DIM, 0, 1, {88}, 1},
    {"LoRA B, rank 16", RLK_BF16, 2, {40, 16}, NO_DIM, 1, 1, {16}, 1},
    {"GPT-2 vocabulary, padded to 64", RLK_BF16, 2, {2, 50257}, NO_DIM, 1, 1, {50257}, 64},
    {"GPT-2 vocabulary, padded to 128", RLK_FP32, 2, {2, 50257}, NO_DIM, 1, 1, {50257}, 128},
    {"Qwen vocabulary", RLK_BF16, 2, {2, 151936}, NO_DIM, 1, 1, {151936}, 1},
    {"Qwen2 vocabulary padded", RLK_BF16, 2, {1, 152576}, NO_DIM, 1, 1, {152576}, 1},
    {"router logits, int32 bins", RLK_INT32, 2, {0, 64}, 0, 1, 1, {64}, 1},
};
#define NTENSORS (sizeof tensors / sizeof tensors[0])

/* One rank's part, bytes included. */
struct part {
    uint64_t shape[3], logical[3];
    uint32_t nruns[3];
    struct rlk_run runs[MAX_RUNS];
    struct rlk_place place;
    unsigned char *bytes;
    size_t size;
};

static void cut_features(const struct model_tensor *t, uint32_t T, uint32_t tp, struct rlk_run *runs, uint64_t *held)
{
    uint64_t base = 0;
    *held = 0;
    for (uint32_t s = 0; s < t->nsegments; s++) {
        uint64_t n = t->segments[s], quantum = t->grain * T, width = (n + quantum - 1) / quantum * t->grain;
        uint64_t from = tp * width < n ? tp * width : n, to = from + width < n ? from + width : n;
        runs[s] = (struct rlk_run){base + from, to - from};
        *held += to - from;
        base += n;
    }
}

static void describe(struct part *p, const struct model_tensor *t, const struct packing *pack, enum zigzag kind,
                     const uint32_t layout[2], const uint32_t at[2])
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < t->ndim; i++) {
        p->logical[i] = p->shape[i] = t->shape[i];
        p->nruns[i] = RLK_WHOLE;
        if (i == t->tokens) {
            p->logical[i] = 0;
            for (uint32_t s = 0; s < pack->n; s++)
                p->logical[i] += pack->lengths[s];
            p->nruns[i] = zigzag_runs(p->runs + total, kind, layout[1], at[1], pack->lengths, pack->n, &p->shape[i]);
            total += p->nruns[i];
        } else if (i == t->features) {
            cut_features(t, layout[0], at[0], p->runs + total, &p->shape[i]);
            p->nruns[i] = t->nsegments;
            total += p->nruns[i];
        }
    }
    assert_true(total <= MAX_RUNS);
    p->place = (struct rlk_place){.ndim = t->ndim, .shape = p->logical, .nruns = p->nruns, .runs = p->runs};
}

/* Copies the part's elements out of the whole, in local row-major order. */
static void take(struct part *p, size_t size, const unsigned char *whole)
{
    uint64_t stride[3] = {1, 1, 1}, n = 1;
    const struct rlk_run *run_of[3] = {p->runs, p->runs, p->runs};
    for (uint32_t i = p->place.ndim; i-- > 0;) {
        stride[i] = i + 1 < p->place.ndim ? stride[i + 1] * p->logical[i + 1] : 1;
        n *= p->shape[i];
    }
    for (uint32_t i = 1; i < p->place.ndim; i++)
        run_of[i] = run_of[i - 1] + (p->nruns[i - 1] == RLK_WHOLE ? 0 : p->nruns[i - 1]);
    uint64_t *map[3];
    for (uint32_t i = 0; i < p->place.ndim; i++) { /* local index -> offset in the whole */
        map[i] = malloc((p->shape[i] + 1) * sizeof *map[i]);
        assert_non_null(map[i]);
        uint64_t k = 0;
        for (uint32_t r = 0; p->nruns[i] != RLK_WHOLE && r < p->nruns[i]; r++)
            for (uint64_t e = 0; e < run_of[i][r].extent; e++)
                map[i][k++] = (run_of[i][r].start + e) * stride[i];
        for (; p->nruns[i] == RLK_WHOLE && k < p->shape[i]; k++)
            map[i][k] = k * stride[i];
    }
    p->size = n * size;
    p->bytes = malloc(p->size + 1);
    assert_non_null(p->bytes);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t rest = k, from = 0;
        for (uint32_t i = p->place.ndim; i-- > 0;) {
            from += map[i][rest % p->shape[i]];
            rest /= p->shape[i];
        }
        memcpy(p->bytes + k * size, whole + from * size, size);
    }
    for (uint32_t i = 0; i < p->place.ndim; i++)
        free(map[i]);
}

static void digest_part(struct rlk_sums *out, bool *composable, const struct part *p, enum rlk_dtype dtype)
{
    struct rlk_detail detail;
    struct rlk_view view = {
        .dtype = dtype, .ndim = p->place.ndim, .shape = p->shape, .storage = p->bytes, .storage_bytes = p->size};
    int rc = rlk_digest_view(out, composable, &view, &p->place, &detail);
    if (rc)
        fail_msg("%s", detail.text);
}

static struct part parts[MAX_RANKS];

/* One tensor under one layout: covers, composes, adds up; and with a part missing or doubled it does not. */
static void check_layout(const struct model_tensor *t, const struct packing *pack, enum zigzag kind,
                         const uint32_t layout[2], const unsigned char *bytes, const struct rlk_sums *whole)
{
    const struct rlk_place *places[MAX_RANKS + 1];
    uint32_t n = 0, cp = t->tokens == NO_DIM ? 1 : layout[1], tp = t->features == NO_DIM ? 1 : layout[0];
    struct rlk_sums sum = {.elements = 0}, part = {.elements = 0};
    struct rlk_detail detail = {""};
    bool composable;
    for (uint32_t c = 0; c < cp; c++)
        for (uint32_t f = 0; f < tp; f++, n++) {
            describe(&parts[n], t, pack, kind, layout, (uint32_t[]){f, c});
            take(&parts[n], rlk_dtype_bytes(t->dtype), bytes);
            digest_part(&part, &composable, &parts[n], t->dtype);
            if (!composable)
                fail_msg("%s: tp%ucp%u: part %u is not composable", t->name, layout[0], layout[1], n);
            rlk_sums_add(&sum, &part);
            places[n] = &parts[n].place;
        }
    int rc = rlk_place_cover(places, n, &detail);
    if (rc)
        fail_msg("%s: tp%ucp%u: %s", t->name, layout[0], layout[1], detail.text);
    if (!rlk_u128_equal(sum.positional, whole->positional) || !rlk_u128_equal(sum.value, whole->value) ||
        sum.multiset != whole->multiset || sum.elements != whole->elements)
        fail_msg("%s: tp%ucp%u zigzag %d, %u samples: the parts do not add up", t->name, layout[0], layout[1],
                 (int)kind, pack->n);
    if (n > 1 && part.elements) { /* the last part holds something: without it there is a hole, twice an overlap */
        assert_int_equal(rlk_place_cover(places, n - 1, &detail), RLK_ECOVER);
        assert_non_null(strstr(detail.text, "no part"));
        places[n] = places[n - 1];
        assert_int_equal(rlk_place_cover(places, n + 1, &detail), RLK_ECOVER);
        assert_non_null(strstr(detail.text, "parts "));
        if (parts[n - 1].size > 1) {
            parts[n - 1].bytes[parts[n - 1].size / 2] ^= 0x10;
            struct rlk_sums changed;
            digest_part(&changed, &composable, &parts[n - 1], t->dtype);
            assert_false(rlk_u128_equal(changed.positional, part.positional));
        }
    }
    for (uint32_t i = 0; i < n; i++)
        free(parts[i].bytes);
}

static void check_tensor(const struct model_tensor *t, const struct packing *pack, uint32_t seed)
{
    uint64_t shape[3], n = 1;
    struct rlk_sums whole;
    bool composable;
    for (uint32_t i = 0; i < t->ndim; i++) {
        shape[i] = t->shape[i];
        for (uint32_t s = 0; i == t->tokens && s < pack->n; s++)
            shape[i] += pack->lengths[s];
        n *= shape[i];
    }
    size_t size = rlk_dtype_bytes(t->dtype);
    unsigned char *bytes = malloc(n * size + 1);
    assert_non_null(bytes);
    if (rlk_dtype_is_integer(t->dtype))
        fill(t->dtype, bytes, n, FILL_INT, seed, 0, 1 << 30);
    else
        fill(t->dtype, bytes, n, FILL_NORMAL, seed, 0, 0);
    struct rlk_view view = {
        .dtype = t->dtype, .ndim = t->ndim, .shape = shape, .storage = bytes, .storage_bytes = n * size};
    assert_int_equal(rlk_digest_view(&whole, &composable, &view, NULL, NULL), RLK_OK);
    for (uint32_t tp = 1; tp <= 8; tp *= 2)
        for (uint32_t cp = 1; cp <= 8; cp *= 2) {
            check_layout(t, pack, ZIGZAG_LATTICE, (uint32_t[]){tp, cp}, bytes, &whole);
            if (t->tokens != NO_DIM)
                check_layout(t, pack, ZIGZAG_MEGATRON, (uint32_t[]){tp, cp}, bytes, &whole);
        }
    free(bytes);
}

static void sixteen_placements_of_packed_samples(void **state)
{
    (void)state;
    for (size_t k = 0; k < NPACKINGS; k++)
        for (size_t i = 0; i < 3; i++) /* the token tensors that exercise rows, columns and both */
            check_tensor(&tensors[(size_t[]){0, 2, 6}[i]], &packings[k], (uint32_t)(k * 31 + i));
}

static void model_families(void **state)
{
    (void)state;
    const struct packing small = {3, {37, 1, 70}};
    for (size_t i = 0; i < NTENSORS; i++)
        check_tensor(&tensors[i], &small, (uint32_t)i);
}

/* Negative controls: borders inside a unit do not compose, and then the digest is the part's own. */
static void borders_inside_a_unit(void **state)
{
    (void)state;
    const uint64_t packed[2] = {4, 2 * 100}, vocabulary[2] = {4, 50257}, shard[2] = {4, 6283};
    const uint32_t nruns[2] = {RLK_WHOLE, 1};
    const struct rlk_run flat = {0, 100}, odd = {6283, 6283}, unit = {16, 100}, end = {50256, 1};
    struct rlk_place place = {.ndim = 2, .shape = packed, .nruns = nruns, .runs = &flat};
    assert_int_equal(rlk_unit_length(RLK_BF16, 2, packed), 1); /* 200/8 = 25: any cut */
    assert_true(rlk_place_composable(&place, RLK_BF16));
    place.shape = vocabulary;
    place.runs = &odd; /* an unpadded vocabulary cut in eight: 6283 is no multiple of 16 */
    assert_false(rlk_place_composable(&place, RLK_BF16));
    assert_true(rlk_place_composable(&place, RLK_INT32));
    place.runs = &end;
    assert_true(rlk_place_composable(&place, RLK_BF16)); /* 50256 = 16 * 3141, and D is a border */
    place.runs = &unit;
    assert_false(rlk_place_composable(&place, RLK_BF16)); /* ends inside */

    uint16_t x[4 * 6283];
    struct rlk_sums s;
    bool composable;
    fill(RLK_BF16, x, 4 * 6283, FILL_NORMAL, 3, 0, 0);
    struct rlk_view view = {.dtype = RLK_BF16, .ndim = 2, .shape = shard, .storage = x, .storage_bytes = sizeof x};
    place.runs = &odd;
    assert_int_equal(rlk_digest_view(&s, &composable, &view, &place, NULL), RLK_OK);
    assert_false(composable);
    rlk_u128 id = rlk_content_id(x, sizeof x);
    assert_true(rlk_u128_equal(s.positional, id) && rlk_u128_equal(s.value, id) && s.multiset == id.lo);
    assert_int_equal(s.elements, 4 * 6283);
}

/* A kv head that two ranks hold overlaps: such a tensor is skipped, not composed. */
static void shared_heads_do_not_cover(void **state)
{
    (void)state;
    const uint64_t shape[3] = {10, 12, 64};
    const uint32_t nruns[3] = {RLK_WHOLE, 2, RLK_WHOLE};
    const struct rlk_run a[2] = {{0, 4}, {8, 4}}, b[2] = {{4, 4}, {8, 4}};
    const struct rlk_place x = {.ndim = 3, .shape = shape, .nruns = nruns, .runs = a};
    const struct rlk_place y = {.ndim = 3, .shape = shape, .nruns = nruns, .runs = b};
    const struct rlk_place *both[2] = {&x, &y};
    struct rlk_detail detail;
    assert_int_equal(rlk_place_cover(both, 2, &detail), RLK_ECOVER);
    assert_string_equal(detail.text, "element [0, 8, 0] belongs to parts 0 and 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_placements_of_packed_samples),
        cmocka_unit_test(model_families),
        cmocka_unit_test(borders_inside_a_unit),
        cmocka_unit_test(shared_heads_do_not_cover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
