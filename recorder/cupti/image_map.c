#include "recorder/cupti/image_map.h"

#include "store/rlk_digest.h"

#include <elf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct name {
    uint64_t hash; /* of the kernel's name */
    const char *image;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct name *table; /* open addressing, by hash; hash 0 = free */
static size_t used, capacity;

static uint64_t hash_of(const char *s, size_t n)
{
    const uint64_t h = rlk_content_id(s, n).lo;
    return h ? h : 1;
}

static struct name *slot_of(struct name *t, size_t cap, uint64_t hash)
{
    size_t i = hash & (cap - 1);
    while (t[i].hash && t[i].hash != hash)
        i = (i + 1) & (cap - 1);
    return &t[i];
}

static void put(uint64_t hash, const char *image)
{
    if (2 * (used + 1) > capacity) {
        const size_t more = capacity ? 2 * capacity : 1024;
        struct name *t = calloc(more, sizeof *t);
        if (!t)
            return; /* the name stays unknown: "" */
        for (size_t i = 0; i < capacity; i++)
            if (table[i].hash)
                *slot_of(t, more, table[i].hash) = table[i];
        free(table);
        table = t;
        capacity = more;
    }
    struct name *s = slot_of(table, capacity, hash);
    used += s->hash == 0;
    *s = (struct name){hash, image};
}

static bool inside(size_t bytes, uint64_t offset, uint64_t size)
{
    return offset <= bytes && size <= bytes - offset;
}

/* Every function symbol of the image; a device function is never launched, so it does no harm. */
static void put_names(const unsigned char *b, size_t bytes, const char *image)
{
    Elf64_Ehdr e;
    if (bytes < sizeof e || memcmp(b, ELFMAG, SELFMAG) != 0 || b[EI_CLASS] != ELFCLASS64)
        return;
    memcpy(&e, b, sizeof e);
    if (e.e_shentsize != sizeof(Elf64_Shdr) || !inside(bytes, e.e_shoff, (uint64_t)e.e_shnum * sizeof(Elf64_Shdr)))
        return;
    for (unsigned i = 0; i < e.e_shnum; i++) {
        Elf64_Shdr sym, str;
        memcpy(&sym, b + e.e_shoff + i * sizeof sym, sizeof sym);
        if (sym.sh_type != SHT_SYMTAB || sym.sh_link >= e.e_shnum || !inside(bytes, sym.sh_offset, sym.sh_size))
            continue;
        memcpy(&str, b + e.e_shoff + sym.sh_link * sizeof str, sizeof str);
        if (!inside(bytes, str.sh_offset, str.sh_size))
            continue;
        const char *names = (const char *)b + str.sh_offset;
        for (uint64_t k = 0; k < sym.sh_size / sizeof(Elf64_Sym); k++) {
            Elf64_Sym s;
            memcpy(&s, b + sym.sh_offset + k * sizeof s, sizeof s);
            if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_name >= str.sh_size)
                continue;
            const size_t n = strnlen(names + s.st_name, str.sh_size - s.st_name);
            put(hash_of(names + s.st_name, n), image);
        }
    }
}

void rlki_image_loaded(const void *image, size_t bytes)
{
    char text[33];
    if (!image || !bytes)
        return;
    rlk_u128_print(text, rlk_content_id(image, bytes));
    char *kept = strdup(text);
    if (!kept)
        return;
    pthread_mutex_lock(&lock);
    put_names(image, bytes, kept);
    pthread_mutex_unlock(&lock);
}

const char *rlki_image_of(const char *kernel)
{
    const char *image = NULL;
    pthread_mutex_lock(&lock);
    if (capacity)
        image = slot_of(table, capacity, hash_of(kernel, strlen(kernel)))->image;
    pthread_mutex_unlock(&lock);
    return image ? image : "";
}
