/* digest_tool.c - prints digests for tests/store/digest_doc.py.
 * Each line of the input is "DTYPE NDIM D0 .. HEX" ("-" for no bytes); each line of the output is
 * "PRINTED POSITIONAL VALUE MULTISET NAN INF NEGZERO". Exit 2 with the reason on the first line that is not of that
 * form. */
#include "store/rlk_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 20)

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of the hex text; -1 if it is none. */
static long unhex(const char *text, unsigned char *out)
{
    size_t n = 0;
    if (strcmp(text, "-") == 0)
        return 0;
    for (; text[0]; text += 2, n++) {
        int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
        if (low < 0 || n == MAX_BYTES)
            return -1;
        out[n] = (unsigned char)(high << 4 | low);
    }
    return (long)n;
}

static const char *one_line(char *line, unsigned char *bytes)
{
    uint64_t shape[RLK_MAX_DIMS];
    char *save = NULL, *word = strtok_r(line, " \n", &save);
    struct rlk_view view = {.dtype = word ? rlk_dtype_from_name(word) : RLK_DTYPE_NONE, .shape = shape};
    word = strtok_r(NULL, " \n", &save);
    view.ndim = word ? (uint32_t)strtoul(word, NULL, 10) : RLK_MAX_DIMS + 1;
    if (view.dtype == RLK_DTYPE_NONE || view.ndim > RLK_MAX_DIMS)
        return "dtype or ndim";
    for (uint32_t i = 0; i < view.ndim; i++) {
        word = strtok_r(NULL, " \n", &save);
        if (!word)
            return "shape";
        shape[i] = strtoull(word, NULL, 10);
    }
    word = strtok_r(NULL, " \n", &save);
    long n = word ? unhex(word, bytes) : -1;
    if (n < 0)
        return "bytes";
    view.storage = bytes;
    view.storage_bytes = (uint64_t)n;
    struct rlk_sums sums;
    bool composable;
    static struct rlk_detail detail;
    if (rlk_digest_view(&sums, &composable, &view, NULL, &detail) != RLK_OK)
        return detail.text;
    char printed[33], positional[33], value[33];
    rlk_digest_print(printed, &sums, view.dtype, view.ndim, shape);
    rlk_u128_print(positional, sums.positional);
    rlk_u128_print(value, sums.value);
    printf("%s %s %s %016" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", printed, positional, value, sums.multiset,
           sums.nan, sums.inf, sums.negzero);
    return NULL;
}

int main(void)
{
    const size_t room = 2 * MAX_BYTES + 4096;
    char *line = malloc(room);
    unsigned char *bytes = malloc(MAX_BYTES);
    int rc = line && bytes ? 0 : 2;
    while (rc == 0 && fgets(line, (int)room, stdin)) {
        const char *wrong = one_line(line, bytes);
        if (wrong) {
            fprintf(stderr, "digest_tool: %s\n", wrong);
            rc = 2;
        }
    }
    free(line);
    free(bytes);
    return rc;
}
