/* rec_gpu_slots.c - tickets of digests on their way. A slot is free, waits for a result, holds one, or waits for a
 * result that nobody wants any more. A ticket is the slot's number and how often it was taken, so an old one is known.
 */
#include "recorder/rec_gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum slot_state { FREE, WAITS, HERE, UNWANTED };

struct slot {
    struct rlk_sums sums;
    uint64_t serial; /* n-th taken: what was taken before `given_up` is not waited for */
    uint32_t taken;  /* never 0 in a ticket */
    uint32_t next;   /* free list */
    uint32_t owner;
    uint32_t state; /* enum slot_state */
};

struct rlki_slots {
    pthread_mutex_t lock;
    uint64_t dead; /* bit = owner */
    uint64_t serial, given_up, arrived;
    uint32_t n, used, nfree, free, waiting; /* slots [used, n) were never taken */
    struct slot slot[];
};

struct rlki_slots *rlki_slots_new(uint32_t n)
{
    struct rlki_slots *s = calloc(1, sizeof *s + n * sizeof s->slot[0]);
    if (!s)
        return NULL;
    /* Held for nanoseconds, by the program's threads and the writer's: a thread that meets it held had better spin. */
    pthread_mutexattr_t spins;
    pthread_mutexattr_init(&spins);
    pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&s->lock, &spins);
    pthread_mutexattr_destroy(&spins);
    s->n = n;
    return s;
}

void rlki_slots_free(struct rlki_slots *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void release(struct rlki_slots *s, struct slot *x)
{
    x->state = FREE;
    x->next = s->free;
    s->free = (uint32_t)(x - s->slot);
    s->nfree++;
}

/* The slot that the ticket means, if it is still that one's. The lock is held. */
static struct slot *of(struct rlki_slots *s, uint64_t ticket)
{
    const uint32_t i = (uint32_t)ticket;
    if (i >= s->used || s->slot[i].taken != ticket >> 32 || s->slot[i].state == FREE)
        return NULL;
    return &s->slot[i];
}

bool rlki_slots_take(struct rlki_slots *s, uint64_t *tickets, const uint64_t *elements, uint32_t n, uint32_t owner)
{
    pthread_mutex_lock(&s->lock);
    const bool room = n <= s->nfree + (s->n - s->used);
    for (uint32_t i = 0; room && i < n; i++) {
        struct slot *x;
        if (s->nfree) {
            x = &s->slot[s->free];
            s->free = x->next;
            s->nfree--;
        } else {
            x = &s->slot[s->used++];
        }
        x->taken = x->taken == UINT32_MAX ? 1 : x->taken + 1;
        x->state = WAITS;
        x->owner = owner;
        x->serial = ++s->serial;
        x->sums.elements = elements[i];
        s->waiting++;
        tickets[i] = (uint64_t)x->taken << 32 | (uint32_t)(x - s->slot);
    }
    pthread_mutex_unlock(&s->lock);
    return room;
}

void rlki_slots_arrived(struct rlki_slots *s, uint64_t ticket, const struct rlk_sums *sums)
{
    pthread_mutex_lock(&s->lock);
    struct slot *x = of(s, ticket);
    s->arrived++;
    if (x && x->state == WAITS) {
        const uint64_t elements = x->sums.elements;
        x->sums = *sums;
        x->sums.elements = elements;
        x->state = HERE;
        s->waiting--;
    } else if (x && x->state == UNWANTED) {
        release(s, x);
    }
    pthread_mutex_unlock(&s->lock);
}

void rlki_slots_untake(struct rlki_slots *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->lock);
    struct slot *x = of(s, ticket);
    if (x) {
        s->waiting -= x->state == WAITS;
        release(s, x);
    }
    pthread_mutex_unlock(&s->lock);
}

static void forget(struct rlki_slots *s, struct slot *x)
{
    s->waiting -= x->state == WAITS;
    if (x->state == HERE || s->dead >> x->owner & 1)
        release(s, x);
    else
        x->state = UNWANTED;
}

void rlki_slots_forget(struct rlki_slots *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->lock);
    struct slot *x = of(s, ticket);
    if (x && x->state != UNWANTED)
        forget(s, x);
    pthread_mutex_unlock(&s->lock);
}

int rlki_slots_result(struct rlki_slots *s, uint64_t ticket, struct rlk_sums *sums)
{
    int rc = RLK_EINVAL;
    pthread_mutex_lock(&s->lock);
    struct slot *x = of(s, ticket);
    if (x && x->state == HERE) {
        *sums = x->sums;
        release(s, x);
        rc = RLK_OK;
    } else if (x && x->state == WAITS) {
        rc = s->dead >> x->owner & 1 ? RLK_ESTATE : x->serial <= s->given_up ? RLK_EFULL : RLK_EAGAIN;
        if (rc != RLK_EAGAIN)
            forget(s, x);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void rlki_slots_give_up(struct rlki_slots *s, bool for_good)
{
    pthread_mutex_lock(&s->lock);
    if (s->given_up < s->serial)
        s->given_up = s->serial;
    if (for_good)
        s->given_up = UINT64_MAX;
    pthread_mutex_unlock(&s->lock);
}

void rlki_slots_owner_died(struct rlki_slots *s, uint32_t owner)
{
    pthread_mutex_lock(&s->lock);
    s->dead |= UINT64_C(1) << owner;
    for (uint32_t i = 0; i < s->used; i++)
        if (s->slot[i].state == UNWANTED && s->slot[i].owner == owner)
            release(s, &s->slot[i]);
    pthread_mutex_unlock(&s->lock);
}

uint32_t rlki_slots_waiting(struct rlki_slots *s, uint64_t *arrived)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = 0;
    for (uint32_t i = 0; s->waiting && i < s->used; i++)
        n += s->slot[i].state == WAITS && !(s->dead >> s->slot[i].owner & 1) && s->slot[i].serial > s->given_up;
    *arrived = s->arrived;
    pthread_mutex_unlock(&s->lock);
    return n;
}
