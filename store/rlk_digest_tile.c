/* Copying a tile of a strided tensor into row-major order. Transposed tensors of 2- and 4-byte elements, the common and
 * the slow case, go through registers in blocks of 16 bytes by 16 bytes: that keeps several cache lines on their way at
 * once, where element by element each line is waited for. */
#include "store/rlk_digest_gather.h"

#include <string.h>

#define GATHER(SIZE)                                                                                                   \
    static void gather_##SIZE(unsigned char *restrict out, const unsigned char *restrict in, size_t rows,              \
                              size_t columns, size_t pitch, int64_t row_stride, int64_t column_stride)                 \
    {                                                                                                                  \
        for (size_t c = 0; c < columns; c++, in += column_stride) {                                                    \
            const unsigned char *from = in;                                                                            \
            unsigned char *to = out + c * SIZE;                                                                        \
            for (size_t r = 0; r < rows; r++, from += row_stride, to += pitch)                                         \
                memcpy(to, from, SIZE);                                                                                \
        }                                                                                                              \
    }
GATHER(1)
GATHER(2)
GATHER(4)
GATHER(8)
GATHER(16)

typedef uint16_t v8x16 __attribute__((vector_size(16)));
typedef uint32_t v4x32 __attribute__((vector_size(16)));
typedef uint64_t v2x64 __attribute__((vector_size(16)));

#define LOW16(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH16(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW32(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW64(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH64(a, b) __builtin_shufflevector(a, b, 1, 3)

/* Eight columns of eight rows: column c lies at in + c * stride, row r goes to out + r * pitch. */
static void block_2(unsigned char *out, const unsigned char *in, size_t pitch, int64_t stride)
{
    v8x16 a[8];
    v4x32 b[8];
    v2x64 c[8];
    for (int i = 0; i < 8; i++)
        memcpy(&a[i], in + i * stride, 16);
    for (int i = 0; i < 4; i++) { /* pairs of columns: rows 0..3, rows 4..7 */
        b[2 * i] = (v4x32)LOW16(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = (v4x32)HIGH16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) { /* columns 4i..4i+3: rows 0-1, 2-3, 4-5, 6-7 */
        c[4 * i] = (v2x64)LOW32(b[4 * i], b[4 * i + 2]);
        c[4 * i + 1] = (v2x64)HIGH32(b[4 * i], b[4 * i + 2]);
        c[4 * i + 2] = (v2x64)LOW32(b[4 * i + 1], b[4 * i + 3]);
        c[4 * i + 3] = (v2x64)HIGH32(b[4 * i + 1], b[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v2x64 low = LOW64(c[i], c[i + 4]), high = HIGH64(c[i], c[i + 4]);
        memcpy(out + (size_t)(2 * i) * pitch, &low, 16);
        memcpy(out + (size_t)(2 * i + 1) * pitch, &high, 16);
    }
}

/* Four columns of four rows. */
static void block_4(unsigned char *out, const unsigned char *in, size_t pitch, int64_t stride)
{
    v4x32 a[4];
    v2x64 b[4];
    for (int i = 0; i < 4; i++)
        memcpy(&a[i], in + i * stride, 16);
    for (int i = 0; i < 2; i++) {
        b[2 * i] = (v2x64)LOW32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = (v2x64)HIGH32(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        v2x64 low = LOW64(b[i], b[i + 2]), high = HIGH64(b[i], b[i + 2]);
        memcpy(out + (size_t)(2 * i) * pitch, &low, 16);
        memcpy(out + (size_t)(2 * i + 1) * pitch, &high, 16);
    }
}

/* Rows are contiguous in memory along a column: whole blocks; returns the columns done. */
static size_t transpose(unsigned char *restrict out, const unsigned char *restrict in, size_t size, size_t rows,
                        size_t columns, int64_t column_stride)
{
    const size_t edge = 16 / size, pitch = columns * size, whole = columns / edge * edge;
    for (size_t c = 0; c < whole; c += edge)
        for (size_t r = 0; r < rows; r += edge) {
            unsigned char *to = out + r * pitch + c * size;
            const unsigned char *from = in + (int64_t)c * column_stride + (int64_t)(r * size);
            if (size == 2)
                block_2(to, from, pitch, column_stride);
            else
                block_4(to, from, pitch, column_stride);
        }
    return whole;
}

void rlki_gather(unsigned char *restrict out, const unsigned char *restrict in, size_t size, size_t rows,
                 size_t columns, int64_t row_stride, int64_t column_stride)
{
    const size_t pitch = columns * size;
    if (column_stride == (int64_t)size) {
        for (size_t r = 0; r < rows; r++)
            memcpy(out + r * pitch, in + (int64_t)r * row_stride, pitch);
        return;
    }
    if ((size == 2 || size == 4) && row_stride == (int64_t)size && rows % (16 / size) == 0) {
        size_t done = transpose(out, in, size, rows, columns, column_stride);
        out += done * size;
        in += (int64_t)done * column_stride;
        columns -= done;
    }
    switch (size) {
    case 1:
        gather_1(out, in, rows, columns, pitch, row_stride, column_stride);
        break;
    case 2:
        gather_2(out, in, rows, columns, pitch, row_stride, column_stride);
        break;
    case 4:
        gather_4(out, in, rows, columns, pitch, row_stride, column_stride);
        break;
    case 8:
        gather_8(out, in, rows, columns, pitch, row_stride, column_stride);
        break;
    default:
        gather_16(out, in, rows, columns, pitch, row_stride, column_stride);
        break;
    }
}
