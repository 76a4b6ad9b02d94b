#include "recorder/synth/synth_close.h"

static void *work(void *context)
{
    struct sy_closer *c = context;
    c->rc = rlk_writer_close(c->writer, c->incomplete, &c->detail);
    return NULL;
}

static int join(struct sy_closer *c, struct rlk_detail *detail)
{
    if (!c->running)
        return RLK_OK;
    pthread_join(c->thread, NULL);
    c->running = false;
    if (c->rc && detail)
        *detail = c->detail;
    return c->rc;
}

int sy_close_later(struct sy_closers *closers, struct rlk_writer *writer, bool incomplete, struct rlk_detail *detail)
{
    struct sy_closer *c = &closers->slots[closers->next++ % SY_CLOSERS];
    int rc = join(c, detail), own;

    c->writer = writer;
    c->incomplete = incomplete;
    c->detail.text[0] = '\0';
    c->running = pthread_create(&c->thread, NULL, work, c) == 0;
    if (c->running)
        return rc;
    own = rlk_writer_close(writer, incomplete, rc ? NULL : detail);
    return rc ? rc : own;
}

int sy_close_all(struct sy_closers *closers, struct rlk_detail *detail)
{
    int first = RLK_OK;
    for (unsigned i = 0; i < SY_CLOSERS; i++) {
        struct sy_closer *c = &closers->slots[closers->next++ % SY_CLOSERS];
        int rc = join(c, first ? NULL : detail);
        first = first ? first : rc;
    }
    return first;
}
