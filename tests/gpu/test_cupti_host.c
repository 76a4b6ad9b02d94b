/* What the launch plane keeps on the host: allocations, graphs, images. No device, no CUPTI. */
#include "recorder/cupti/alloc_map.h"
#include "recorder/cupti/cupti_api.h"
#include "recorder/cupti/graphs.h"
#include "recorder/cupti/guest.h"
#include "recorder/cupti/image_map.h"
#include "recorder/cupti/param_block.h"

#include <elf.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_alloc_find(void **state)
{
    (void)state;
    uint64_t ordinal = 0, offset = 0;
    assert_false(rlki_alloc_find(0x1000, &ordinal, &offset));
    const uint64_t a = rlki_alloc_add(0x10000, 0x1000), b = rlki_alloc_add(0x20000, 0x1000);
    assert_true(a && b == a + 1);
    assert_true(rlki_alloc_find(0x10000, &ordinal, &offset) && ordinal == a && offset == 0);
    assert_true(rlki_alloc_find(0x10fff, &ordinal, &offset) && ordinal == a && offset == 0xfff);
    assert_false(rlki_alloc_find(0x11000, &ordinal, &offset)); /* the end is outside */
    assert_false(rlki_alloc_find(0xffff, &ordinal, &offset));
    assert_true(rlki_alloc_find(0x20800, &ordinal, &offset) && ordinal == b && offset == 0x800);
    rlki_alloc_remove(0x10000);
    assert_false(rlki_alloc_find(0x10000, &ordinal, &offset));
    /* a recycled address is another epoch */
    const uint64_t c = rlki_alloc_add(0x10000, 0x10);
    assert_true(c > b && rlki_alloc_find(0x1000f, &ordinal, &offset) && ordinal == c);
    assert_false(rlki_alloc_find(0x10010, &ordinal, &offset));
    assert_int_equal(rlki_alloc_add(0, 5), 0);
    assert_int_equal(rlki_alloc_add(UINT64_MAX - 3, 8), 0);
    rlki_alloc_remove(0x10000);
    rlki_alloc_remove(0x20000);
    rlki_alloc_remove(0x20000); /* twice: nothing */
}

static int stop;
static void *writer(void *arg)
{
    const uint64_t base = (uint64_t)(uintptr_t)arg;
    for (int round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 300; i++)
            rlki_alloc_add(base + i * 0x1000, 0x1000);
        for (uint64_t i = 0; i < 300; i++)
            rlki_alloc_remove(base + i * 0x1000);
    }
    return NULL;
}
static void *reader(void *arg)
{
    uint64_t *wrong = arg, ordinal, offset;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        for (uint64_t address = 0x5000000; address < 0x5001000; address += 0x100) /* lives all the time */
            if (!rlki_alloc_find(address, &ordinal, &offset) || offset != address - 0x5000000)
                ++*wrong;
    return NULL;
}

static void test_alloc_threads(void **state)
{
    (void)state;
    pthread_t w[2], r[2];
    uint64_t wrong[2] = {0, 0};
    assert_true(rlki_alloc_add(0x5000000, 0x1000) > 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&r[i], NULL, reader, &wrong[i]), 0);
    assert_int_equal(pthread_create(&w[0], NULL, writer, (void *)(uintptr_t)0x1000000), 0);
    assert_int_equal(pthread_create(&w[1], NULL, writer, (void *)(uintptr_t)0x9000000), 0);
    pthread_join(w[0], NULL);
    pthread_join(w[1], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(r[0], NULL);
    pthread_join(r[1], NULL);
    assert_int_equal(wrong[0] + wrong[1], 0);
    rlki_alloc_remove(0x5000000);
    assert_int_equal(rlki_alloc_count(), 0);
}

struct seen {
    uint32_t n;
    uint64_t version, ordinal;
    uint32_t grid[8];
};
static void look(void *context, struct rlki_exec *e)
{
    struct seen *s = context;
    s->n = e->nnodes;
    s->version = e->version;
    s->ordinal = e->ordinal;
    for (uint32_t i = 0; i < e->nnodes && i < 8; i++) {
        s->grid[i] = e->nodes[i].grid[0];
        assert_int_equal(e->nodes[i].node, i);
        assert_int_equal(e->nodes[i].graph, e->ordinal);
    }
}

static void test_graphs(void **state)
{
    (void)state;
    static char h[16]; /* handles */
    struct seen s;
    struct rlk_launch l = {.kernel = "k", .grid = {1, 1, 1}};
    assert_false(rlki_exec_with(&h[9], look, &s));
    rlki_graph_node_created(&h[0], &h[1]);
    rlki_graph_node_describe(&h[1], &l);
    rlki_graph_node_created(&h[0], &h[2]); /* a memset node: no description */
    rlki_graph_node_created(&h[0], &h[3]);
    l.grid[0] = 2;
    rlki_graph_node_describe(&h[3], &l);
    rlki_exec_created(&h[4], &h[0]);
    assert_true(rlki_exec_with(&h[4], look, &s));
    assert_int_equal(s.n, 2);
    assert_int_equal(s.grid[0], 1);
    assert_int_equal(s.grid[1], 2);
    /* the graph changes: the exec keeps its own until it is updated */
    l.grid[0] = 7;
    rlki_graph_node_describe(&h[1], &l);
    const uint64_t before = s.version;
    assert_true(rlki_exec_with(&h[4], look, &s));
    assert_true(s.grid[0] == 1 && s.version == before);
    rlki_exec_updated(&h[4], &h[0]);
    assert_true(rlki_exec_with(&h[4], look, &s));
    assert_true(s.grid[0] == 7 && s.version > before);
    /* one node of one exec */
    l.grid[0] = 9;
    rlki_exec_node_describe(&h[4], &h[3], &l);
    assert_true(rlki_exec_with(&h[4], look, &s));
    assert_int_equal(s.grid[1], 9);
    /* a clone runs in its original's order */
    rlki_graph_node_cloned(&h[5], &h[6], &h[3]);
    rlki_graph_node_cloned(&h[5], &h[7], &h[1]);
    rlki_exec_created(&h[8], &h[5]);
    assert_true(rlki_exec_with(&h[8], look, &s));
    assert_int_equal(s.n, 2);
    assert_int_equal(s.grid[0], 7);
    assert_int_equal(s.ordinal, 1);
    rlki_graph_destroyed(&h[5]);
    rlki_exec_destroyed(&h[8]);
    assert_false(rlki_exec_with(&h[8], look, &s));
    rlki_graph_node_destroyed(&h[1]);
    rlki_exec_updated(&h[4], &h[0]);
    assert_true(rlki_exec_with(&h[4], look, &s));
    assert_int_equal(s.n, 1);
    for (int i = 0; i < 3000; i++) { /* the tables grow and forget */
        static char many[3000];
        rlki_graph_node_created(&h[10], &many[i]);
        rlki_graph_node_describe(&many[i], &l);
        if (i % 3)
            rlki_graph_node_destroyed(&many[i]);
    }
    rlki_exec_created(&h[11], &h[10]);
    assert_true(rlki_exec_with(&h[11], look, &s));
    assert_int_equal(s.n, 1000);
}

static void test_params(void **state)
{
    (void)state;
    static const struct rlki_param layout[] = {{0, 8}, {8, 4}, {16, 16}};
    const struct rlki_func f = {
        .name = "k", .image = "", .layout_known = true, .nparams = 3, .block_bytes = 32, .params = layout};
    const uint64_t ordinal = rlki_alloc_add(0x7000000, 0x100);
    uint64_t pointer = 0x7000010, in_struct[2] = {5, 0x70000f8};
    int32_t number = -3;
    void *params[] = {&pointer, &number, in_struct};
    unsigned char a[RLKI_MAX_PARAM_BLOCK], b[RLKI_MAX_PARAM_BLOCK];
    uint64_t w[4];
    assert_int_equal(rlki_param_block(a, &f, params, NULL), 32);
    memcpy(w, a, sizeof w);
    assert_true(w[0] == (UINT64_C(1) << 63 | ordinal << 40 | 0x10));
    assert_true(w[1] == 0xfffffffd); /* the padding after it is zero */
    assert_true(w[2] == 5 && w[3] == (UINT64_C(1) << 63 | ordinal << 40 | 0xf8));
    /* the same launch by `extra` has the same block */
    struct {
        uint64_t p;
        int32_t n, pad;
        uint64_t s[2];
    } packed = {pointer, number, 0, {5, 0x70000f8}};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_END};
    assert_int_equal(rlki_param_block(b, &f, NULL, extra), 32);
    assert_memory_equal(a, b, 32);
    size = RLKI_MAX_PARAM_BLOCK + 1;
    assert_int_equal(rlki_param_block(b, &f, NULL, extra), 0);
    assert_int_equal(rlki_param_block(b, &f, NULL, NULL), 0);
    rlki_alloc_remove(0x7000000);
}

static void test_images(void **state)
{
    (void)state;
    struct {
        Elf64_Ehdr e;
        Elf64_Shdr s[3];
        Elf64_Sym y[2];
        char names[32];
    } image;
    memset(&image, 0, sizeof image);
    memcpy(image.e.e_ident, ELFMAG, SELFMAG);
    image.e.e_ident[EI_CLASS] = ELFCLASS64;
    image.e.e_shoff = offsetof(__typeof__(image), s);
    image.e.e_shnum = 3;
    image.e.e_shentsize = sizeof(Elf64_Shdr);
    image.s[1] = (Elf64_Shdr){
        .sh_type = SHT_SYMTAB, .sh_link = 2, .sh_offset = offsetof(__typeof__(image), y), .sh_size = sizeof image.y};
    image.s[2] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(__typeof__(image), names), .sh_size = sizeof image.names};
    strcpy(image.names + 1, "my_kernel");
    image.y[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    assert_string_equal(rlki_image_of("my_kernel"), "");
    rlki_image_loaded(&image, sizeof image);
    char first[33];
    strcpy(first, rlki_image_of("my_kernel"));
    assert_int_equal(strlen(first), 32);
    image.names[20] ^= 1; /* another image with the same name: the later one counts */
    rlki_image_loaded(&image, sizeof image);
    assert_string_not_equal(rlki_image_of("my_kernel"), first);
    /* hostile ones: every truncation, and offsets that point anywhere */
    for (size_t n = 0; n <= sizeof image; n++) {
        void *copy = malloc(n ? n : 1);
        memcpy(copy, &image, n);
        rlki_image_loaded(copy, n);
        free(copy);
    }
    unsigned seed = 1;
    for (int i = 0; i < 20000; i++) {
        __typeof__(image) *bad = malloc(sizeof image);
        *bad = image;
        for (int k = 0; k < 3; k++)
            ((unsigned char *)bad)[(size_t)rand_r(&seed) % sizeof image] = (unsigned char)rand_r(&seed);
        rlki_image_loaded(bad, sizeof *bad);
        free(bad);
    }
}

/* ---- another subscriber (guest.h); CUPTI is played here */
static CUpti_SubscriberHandle unsubscribed;
static unsigned asked[16], heard;
static CUptiResult fake_unsubscribe(CUpti_SubscriberHandle handle)
{
    unsubscribed = handle;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_enable(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                               CUpti_CallbackId id)
{
    assert_int_equal(enable, 1); /* never taken from us */
    assert_ptr_equal(handle, (void *)asked);
    asked[domain]++;
    return id < 1000 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

static void hear(void *userdata, int domain, uint32_t cbid, const void *data)
{
    assert_ptr_equal(userdata, &heard);
    assert_ptr_equal(data, asked);
    heard += (unsigned)domain * 1000 + cbid;
}

static unsigned hears(int domain, uint32_t cbid)
{
    heard = 0;
    if (rlki_guest_wants)
        rlki_guest_forward(domain, cbid, asked);
    return heard;
}

static void test_guest(void **state)
{
    (void)state;
    static const struct rlki_cupti cupti = {.unsubscribe = fake_unsubscribe, .enable_callback = fake_enable};
    const struct rlk_cupti_guest_api *g = &rlk_cupti_guest;
    void *first = NULL, *second = NULL;
    int result = -1, real = 0;
    /* before the launch plane: CUPTI is asked, and what it gave is known */
    assert_false(g->subscribe(&first, hear, &heard, &result));
    g->adopted(&real, hear, &heard);
    assert_false(g->enable_callback(1, &real, 3, 1, &result));
    assert_int_equal(hears(3, 1), 0);
    /* the launch plane takes over, and serves it */
    rlki_guest_yield(&cupti);
    assert_ptr_equal(unsubscribed, &real);
    rlki_guest_serve(&cupti, asked);
    assert_int_equal(asked[3], 1);
    assert_int_equal(hears(3, 1), 3001);
    assert_int_equal(hears(3, 2), 0);
    assert_int_equal(hears(1, 1), 0);
    assert_true(g->enable_callback(0, &real, 3, 1, &result));
    assert_int_equal(result, CUPTI_SUCCESS);
    assert_int_equal(hears(3, 1), 0);
    /* one at a time */
    assert_true(g->subscribe(&second, hear, &heard, &result));
    assert_int_equal(result, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    assert_true(g->unsubscribe(&real, &result));
    assert_true(g->subscribe(&second, hear, &heard, &result));
    assert_int_equal(result, CUPTI_SUCCESS);
    assert_false(g->enable_callback(1, &real, 3, 1, &result)); /* a handle of nobody: CUPTI says so */
    assert_true(g->enable_domain(1, second, 2, &result));
    assert_int_equal(hears(2, 77), 2077);
    assert_true(g->enable_callback(1, second, 1, 1500, &result)); /* CUPTI's own refusal */
    assert_int_equal(result, CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(hears(1, 1500), 0);
    assert_int_equal(hears(99, 99999), 0);
    assert_true(g->enable_domain(0, second, 2, &result));
    assert_int_equal(rlki_guest_wants, 0);
    assert_true(g->enable_callback(1, second, 2, 5, &result));
    assert_true(g->finalize(&result)); /* ours stays */
    assert_int_equal(result, CUPTI_SUCCESS);
    assert_int_equal(hears(2, 5), 0);
    assert_true(g->subscribe(&second, NULL, NULL, &result));
    assert_int_equal(result, CUPTI_ERROR_INVALID_PARAMETER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_find), cmocka_unit_test(test_alloc_threads), cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_params),     cmocka_unit_test(test_images),        cmocka_unit_test(test_guest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
