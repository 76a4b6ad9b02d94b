#include "store/rlk_mdb_read.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file format of LMDB 0.9 (data version 1) on a 64-bit little-endian machine. */
#define MAGIC 0xbeefc0deu
#define PAGE_HEADER 16u
#define P_BRANCH 0x01u
#define P_LEAF 0x02u
#define P_OVERFLOW 0x04u
#define P_META 0x08u
#define P_KINDS 0x6fu /* the bits that say what a page is */
#define NODE_HEADER 8u
#define F_BIGDATA 0x01u
#define F_SUBDATA 0x02u
#define F_DUPDATA 0x04u
#define DB_REVERSEKEY 0x02u
#define DB_DUPSORT 0x04u
#define DB_INTEGERKEY 0x08u
#define DB_BYTES 48u
#define NO_PAGE UINT64_MAX
#define META_BYTES (PAGE_HEADER + 24u + 2u * DB_BYTES + 16u)

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static int damaged(struct rlk_detail *detail, uint64_t page, const char *what)
{
    return rlk_fail(detail, RLK_ECORRUPT, "page %llu: %s", (unsigned long long)page, what);
}

static int read_at(int fd, uint64_t at, uint8_t *p, size_t n, struct rlk_detail *detail)
{
    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rlk_fail(detail, RLK_EIO, "reading at %llu: %s", (unsigned long long)at, strerror(errno));
        if (got == 0)
            return rlk_fail(detail, RLK_ECORRUPT, "the file ends at %llu", (unsigned long long)at);
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return RLK_OK;
}

/* A database descriptor: depth and root fit each other and the file. */
static bool read_tree(const struct rlki_mdb *mdb, const uint8_t *p, struct rlki_tree *tree)
{
    uint16_t flags = u16(p + 4), depth = u16(p + 6);
    *tree = (struct rlki_tree){u64(p + 40), depth, u64(p + 32), (flags & DB_INTEGERKEY) != 0};
    if (flags & (DB_DUPSORT | DB_REVERSEKEY))
        return false;
    if (tree->root == NO_PAGE)
        return tree->depth == 0 && tree->entries == 0;
    return tree->depth >= 1 && tree->depth <= RLKI_MDB_DEPTH && tree->root >= 2 && tree->root < mdb->pages;
}

struct meta {
    bool good;
    uint32_t page_bytes;
    uint64_t txnid, last_page;
    struct rlki_tree main;
};

static void read_meta(struct rlki_mdb *mdb, uint64_t at, uint32_t want, struct meta *m)
{
    uint8_t p[META_BYTES];
    struct rlk_detail ignored;
    m->good = false;
    if (read_at(mdb->fd, at, p, sizeof p, &ignored))
        return;
    if (!(u16(p + 10) & P_META) || u32(p + 16) != MAGIC || u32(p + 20) != 1)
        return;
    const uint8_t *free_db = p + PAGE_HEADER + 24, *main_db = free_db + DB_BYTES, *tail = main_db + DB_BYTES;
    m->page_bytes = u32(free_db);
    m->last_page = u64(tail);
    m->txnid = u64(tail + 8);
    if (m->page_bytes < 512 || m->page_bytes > 65536 || (m->page_bytes & (m->page_bytes - 1)) ||
        (want && m->page_bytes != want))
        return;
    mdb->pages = m->last_page < UINT64_MAX / 65536 ? m->last_page + 1 : 0; /* for the check of the root only */
    m->good = read_tree(mdb, main_db, &m->main);
}

/* Picks the newer of the two meta pages that hold together. */
static int choose(struct rlki_mdb *mdb, struct rlk_detail *detail)
{
    struct meta m[2] = {{0}, {0}};
    struct stat st;
    if (fstat(mdb->fd, &st))
        return rlk_fail(detail, RLK_EIO, "%s", strerror(errno));
    if (st.st_size == 0)
        return rlk_fail(detail, RLK_ENOENT, "the file is empty");
    read_meta(mdb, 0, 0, &m[0]);
    if (m[0].good) {
        read_meta(mdb, m[0].page_bytes, m[0].page_bytes, &m[1]);
    } else { /* page 0 damaged: the page size has to be guessed */
        for (uint32_t size = 512; size <= 65536 && !m[1].good; size *= 2)
            read_meta(mdb, size, size, &m[1]);
    }
    const struct meta *best = &m[0];
    if (!m[0].good || (m[1].good && m[1].txnid > m[0].txnid))
        best = &m[1];
    if (!best->good)
        return rlk_fail(detail, RLK_ECORRUPT, "no LMDB header: page 0 and page 1 are damaged or of another kind");
    mdb->page_bytes = best->page_bytes;
    mdb->pages = (uint64_t)st.st_size / best->page_bytes;
    mdb->txnid = best->txnid;
    mdb->main_root = best->main.root;
    mdb->main_depth = best->main.depth;
    if (best->main.root != NO_PAGE && best->main.root >= mdb->pages)
        return rlk_fail(detail, RLK_ECORRUPT, "cut off: the root is page %llu and the file has %llu pages",
                        (unsigned long long)best->main.root, (unsigned long long)mdb->pages);
    return RLK_OK;
}

int rlki_mdb_open(struct rlki_mdb *mdb, int fd, struct rlk_detail *detail)
{
    *mdb = (struct rlki_mdb){.fd = fd};
    return choose(mdb, detail);
}

int rlki_mdb_refresh(struct rlki_mdb *mdb, bool *newer, struct rlk_detail *detail)
{
    struct rlki_mdb now = {.fd = mdb->fd};
    *newer = false;
    int rc = choose(&now, detail);
    if (rc)
        return rc;
    *newer = now.txnid != mdb->txnid;
    *mdb = now;
    return RLK_OK;
}

int rlki_mdb_compare(const struct rlki_tree *tree, const void *a, size_t na, const void *b, size_t nb)
{
    if (tree->integer) {
        uint64_t x = u64(a), y = u64(b);
        return x < y ? -1 : x > y;
    }
    int order = memcmp(a, b, na < nb ? na : nb);
    return order ? order : na < nb ? -1 : na > nb;
}

int rlki_mdb_cursor_init(struct rlki_mdb_cursor *c, const struct rlki_mdb *mdb, const struct rlki_tree *tree)
{
    memset(c, 0, sizeof *c);
    c->mdb = mdb;
    c->tree = *tree;
    if (tree->depth == 0)
        return RLK_OK;
    c->pages = malloc((size_t)tree->depth * mdb->page_bytes);
    return c->pages ? RLK_OK : RLK_ENOMEM;
}

void rlki_mdb_cursor_release(struct rlki_mdb_cursor *c)
{
    free(c->pages);
    c->pages = NULL;
}

static uint8_t *page_at(const struct rlki_mdb_cursor *c, uint32_t level)
{
    return c->pages + (size_t)level * c->mdb->page_bytes;
}

/* Reads page `pgno` into its level and checks its header. */
static int load(struct rlki_mdb_cursor *c, uint32_t level, uint64_t pgno, struct rlk_detail *detail)
{
    const struct rlki_mdb *mdb = c->mdb;
    uint8_t *p = page_at(c, level);
    if (pgno < 2 || pgno >= mdb->pages)
        return damaged(detail, pgno, "outside the file");
    int rc = read_at(mdb->fd, pgno * mdb->page_bytes, p, mdb->page_bytes, detail);
    if (rc)
        return rc;
    uint32_t kind = level + 1 == c->tree.depth ? P_LEAF : P_BRANCH, lower = u16(p + 12), upper = u16(p + 14);
    if (u64(p) != pgno)
        return damaged(detail, pgno, "its header names another page");
    if ((u16(p + 10) & P_KINDS) != kind)
        return damaged(detail, pgno, kind == P_LEAF ? "not a leaf" : "not a branch");
    if (lower < PAGE_HEADER + 2 || lower > upper || upper > mdb->page_bytes || (lower & 1))
        return damaged(detail, pgno, "offsets outside the page");
    c->pgno[level] = pgno;
    c->count[level] = (lower - PAGE_HEADER) / 2;
    if (kind == P_BRANCH && c->count[level] < 2)
        return damaged(detail, pgno, "a branch with one child");
    return RLK_OK;
}

struct node {
    const uint8_t *p, *key;
    uint32_t nkey;
};

static int get_node(const struct rlki_mdb_cursor *c, uint32_t level, uint32_t i, struct node *node,
                    struct rlk_detail *detail)
{
    const uint8_t *page = page_at(c, level);
    uint32_t size = c->mdb->page_bytes, at = u16(page + PAGE_HEADER + 2 * i);
    if (at < u16(page + 14) || (at & 1) || at > size - NODE_HEADER)
        return damaged(detail, c->pgno[level], "a node outside the page");
    node->p = page + at;
    node->nkey = u16(page + at + 6);
    node->key = node->p + NODE_HEADER;
    bool implicit = i == 0 && level + 1 < c->tree.depth; /* the first key of a branch stands for "less than all" */
    if (node->nkey > size - NODE_HEADER - at || node->nkey > RLKI_MDB_MAX_KEY ||
        (c->tree.integer && !implicit && node->nkey != 8) || (node->nkey == 0 && !implicit))
        return damaged(detail, c->pgno[level], "a key of an impossible size");
    return RLK_OK;
}

/* Takes key and value of the leaf node the cursor is at. */
static int take(struct rlki_mdb_cursor *c, struct rlk_detail *detail)
{
    uint32_t level = c->tree.depth - 1;
    uint64_t pgno = c->pgno[level];
    struct node node = {0};
    int rc = get_node(c, level, c->index[level], &node, detail);
    if (rc)
        return rc;
    memcpy(c->key, node.key, node.nkey);
    c->nkey = node.nkey;
    uint32_t flags = u16(node.p + 4);
    const uint8_t *data = node.key + node.nkey;
    uint32_t room = (uint32_t)(page_at(c, level) + c->mdb->page_bytes - data);
    c->value_bytes = (uint64_t)u16(node.p) | (uint64_t)u16(node.p + 2) << 16;
    c->value_page = 0;
    if (flags & F_DUPDATA)
        return damaged(detail, pgno, "duplicate values");
    if (!(flags & F_BIGDATA)) {
        if (c->value_bytes > room)
            return damaged(detail, pgno, "a value outside the page");
        c->value = data;
        return RLK_OK;
    }
    if (room < 8)
        return damaged(detail, pgno, "a value outside the page");
    uint64_t page = u64(data), need = (PAGE_HEADER + c->value_bytes + c->mdb->page_bytes - 1) / c->mdb->page_bytes;
    if (page < 2 || page >= c->mdb->pages || need > c->mdb->pages - page)
        return damaged(detail, pgno, "a value outside the file");
    c->value_page = page;
    c->value = NULL;
    return RLK_OK;
}

/* Child page of branch node i. */
static int child(const struct rlki_mdb_cursor *c, uint32_t level, uint32_t i, uint64_t *pgno, struct rlk_detail *detail)
{
    struct node node = {0};
    int rc = get_node(c, level, i, &node, detail);
    if (rc)
        return rc;
    *pgno = (uint64_t)u16(node.p) | (uint64_t)u16(node.p + 2) << 16 | (uint64_t)u16(node.p + 4) << 32;
    return RLK_OK;
}

/* From `level`, whose page is loaded and whose index is set, down to the first or last leaf entry. */
static int descend(struct rlki_mdb_cursor *c, uint32_t level, bool last, struct rlk_detail *detail)
{
    int rc = RLK_OK;
    for (; level + 1 < c->tree.depth && rc == RLK_OK; level++) {
        uint64_t pgno;
        rc = child(c, level, c->index[level], &pgno, detail);
        if (rc == RLK_OK)
            rc = load(c, level + 1, pgno, detail);
        if (rc == RLK_OK)
            c->index[level + 1] = last ? c->count[level + 1] - 1 : 0;
    }
    return rc ? rc : take(c, detail);
}

static int ends(struct rlki_mdb_cursor *c, bool last, struct rlk_detail *detail)
{
    if (c->tree.depth == 0)
        return RLK_ENOENT;
    int rc = load(c, 0, c->tree.root, detail);
    if (rc)
        return rc;
    c->index[0] = last ? c->count[0] - 1 : 0;
    return descend(c, 0, last, detail);
}

int rlki_mdb_first(struct rlki_mdb_cursor *c, struct rlk_detail *detail)
{
    return ends(c, false, detail);
}

int rlki_mdb_last(struct rlki_mdb_cursor *c, struct rlk_detail *detail)
{
    return ends(c, true, detail);
}

int rlki_mdb_next(struct rlki_mdb_cursor *c, struct rlk_detail *detail)
{
    uint8_t before[RLKI_MDB_MAX_KEY];
    uint32_t nbefore = c->nkey, level = c->tree.depth;
    if (level == 0)
        return RLK_ENOENT;
    memcpy(before, c->key, nbefore);
    while (level > 0 && c->index[level - 1] + 1 >= c->count[level - 1])
        level--;
    if (level == 0)
        return RLK_ENOENT;
    level--;
    c->index[level]++;
    int rc = descend(c, level, false, detail);
    /* Ascending keys make sure that no page is visited twice, so every walk ends. */
    if (rc == RLK_OK && rlki_mdb_compare(&c->tree, before, nbefore, c->key, c->nkey) >= 0)
        rc = damaged(detail, c->pgno[c->tree.depth - 1], "keys out of order");
    return rc;
}

/* Largest i whose key is <= key; -1 if none (a branch's first key is less than all). */
static int find(const struct rlki_mdb_cursor *c, uint32_t level, const void *key, size_t nkey, int64_t *at,
                struct rlk_detail *detail)
{
    bool branch = level + 1 < c->tree.depth;
    int64_t low = branch ? 1 : 0, high = c->count[level];
    while (low < high) {
        int64_t mid = (low + high) / 2;
        struct node node = {0};
        int rc = get_node(c, level, (uint32_t)mid, &node, detail);
        if (rc)
            return rc;
        if (rlki_mdb_compare(&c->tree, node.key, node.nkey, key, nkey) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    *at = low - 1;
    return RLK_OK;
}

/* The entry before the one the cursor's leaf starts with: in the branch above, one child to the left. */
static int step_left(struct rlki_mdb_cursor *c, struct rlk_detail *detail)
{
    uint32_t level = c->tree.depth - 1;
    while (level > 0 && c->index[level - 1] == 0)
        level--;
    if (level == 0)
        return RLK_ENOENT;
    level--;
    c->index[level]--;
    return descend(c, level, true, detail);
}

int rlki_mdb_seek(struct rlki_mdb_cursor *c, const void *key, size_t nkey, struct rlk_detail *detail)
{
    if (c->tree.depth == 0)
        return RLK_ENOENT;
    if (c->tree.integer && nkey != 8)
        return rlk_fail(detail, RLK_EINVAL, "a key of %zu bytes", nkey);
    int rc = load(c, 0, c->tree.root, detail);
    int64_t at = -1;
    for (uint32_t level = 0; level < c->tree.depth && rc == RLK_OK; level++) {
        rc = find(c, level, key, nkey, &at, detail);
        if (rc)
            break;
        c->index[level] = at < 0 ? 0 : (uint32_t)at;
        if (level + 1 == c->tree.depth)
            break;
        uint64_t pgno;
        rc = child(c, level, c->index[level], &pgno, detail);
        if (rc == RLK_OK)
            rc = load(c, level + 1, pgno, detail);
    }
    if (rc)
        return rc;
    rc = at < 0 ? step_left(c, detail) : take(c, detail);
    if (rc == RLK_OK && rlki_mdb_compare(&c->tree, c->key, c->nkey, key, nkey) > 0)
        rc = damaged(detail, c->pgno[c->tree.depth - 1], "keys out of order");
    return rc;
}

int rlki_mdb_value(const struct rlki_mdb_cursor *c, struct rlki_buf *out, struct rlk_detail *detail)
{
    size_t n = (size_t)c->value_bytes;
    if (!rlki_buf_room(out, n))
        return rlk_fail(detail, RLK_ENOMEM, "out of memory for a value of %zu bytes", n);
    if (!c->value_page) {
        rlki_put_bytes(out, c->value, n);
        return RLK_OK;
    }
    uint8_t head[PAGE_HEADER];
    uint64_t at = c->value_page * c->mdb->page_bytes;
    int rc = read_at(c->mdb->fd, at, head, sizeof head, detail);
    if (rc)
        return rc;
    uint64_t need = (PAGE_HEADER + c->value_bytes + c->mdb->page_bytes - 1) / c->mdb->page_bytes;
    if (u64(head) != c->value_page || (u16(head + 10) & P_KINDS) != P_OVERFLOW || u32(head + 12) < need)
        return damaged(detail, c->value_page, "not the start of a large value");
    rc = read_at(c->mdb->fd, at + PAGE_HEADER, out->p + out->n, n, detail);
    if (rc == RLK_OK)
        out->n += n;
    return rc;
}

int rlki_mdb_tree(const struct rlki_mdb *mdb, const char *name, struct rlki_tree *tree, struct rlk_detail *detail)
{
    struct rlki_tree main = {mdb->main_root, mdb->main_depth, 0, false};
    struct rlki_mdb_cursor c;
    size_t n = strlen(name);
    int rc = rlki_mdb_cursor_init(&c, mdb, &main);
    if (rc)
        return rlk_fail(detail, rc, "out of memory");
    rc = rlki_mdb_seek(&c, name, n, detail);
    if (rc == RLK_OK && (c.nkey != n || memcmp(c.key, name, n) != 0))
        rc = RLK_ENOENT;
    if (rc == RLK_OK && (c.value_page || c.value_bytes != DB_BYTES || !read_tree(mdb, c.value, tree)))
        rc = rlk_fail(detail, RLK_ECORRUPT, "database %s: its descriptor is damaged", name);
    rlki_mdb_cursor_release(&c);
    return rc;
}
