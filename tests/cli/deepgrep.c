/* deepgrep NEEDLE FILE... - does a text stand in the bytes of the files, or in a zstd frame anywhere inside, at any
 * depth? 0 = it does, 1 = nowhere, 2 = a fault. A test that says "the secret is gone" needs one that finds it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define DEPTH 4

static int look(const char *p, size_t n, const char *needle, int depth)
{
    static const unsigned char magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    if (memmem(p, n, needle, strlen(needle)))
        return 1;
    for (const char *at = p; depth && (at = memmem(at, n - (size_t)(at - p), magic, sizeof magic)); at++) {
        ZSTD_DCtx *ctx = ZSTD_createDCtx();
        size_t room = 1u << 20;
        char *out = malloc(room);
        ZSTD_inBuffer in = {at, n - (size_t)(at - p), 0};
        ZSTD_outBuffer to = {out, room, 0};
        size_t left = 1;
        while (out && left && !ZSTD_isError(left)) {
            left = ZSTD_decompressStream(ctx, &to, &in);
            if (to.pos == room && left && !ZSTD_isError(left)) {
                char *more = room < (1u << 30) ? realloc(out, room *= 2) : NULL;
                if (!more)
                    break;
                to.dst = out = more;
                to.size = room;
            } else if (in.pos == in.size) {
                break;
            }
        }
        int found = out && to.pos ? look(out, to.pos, needle, depth - 1) : 0;
        free(out);
        ZSTD_freeDCtx(ctx);
        if (found)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int found = 0;
    if (argc < 3)
        return 2;
    for (int i = 2; i < argc && !found; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f || fseek(f, 0, SEEK_END))
            return 2;
        long n = ftell(f);
        char *bytes = n < 0 ? NULL : malloc((size_t)n + 1);
        rewind(f);
        if (!bytes || fread(bytes, 1, (size_t)n, f) != (size_t)n)
            return 2;
        fclose(f);
        found = look(bytes, (size_t)n, argv[1], DEPTH);
        free(bytes);
    }
    return !found;
}
