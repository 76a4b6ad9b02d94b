/* guest.h - another user of CUPTI's callbacks in this process: torch.profiler. docs/launch-plane.md, "Beside another
 * profiler".
 *
 * CUPTI has one subscriber, and torch's profiler takes a refusal for "no GPU": it would show no kernels where we
 * record. So its four calls are answered by us: guest_border.c (a library of its own, put in front of CUPTI's before
 * torch is loaded) asks this table first. While the launch plane holds CUPTI, the guest is a second subscriber of ours:
 * what it enables is enabled for us and passed on. Where it came first, the launch plane takes the place over and gives
 * it back that way. One guest at a time, as CUPTI itself has it.
 *
 * Plain types, so that the border needs no CUPTI: int = CUptiResult, pointers = handles and callbacks.
 */
#ifndef RECORDER_CUPTI_GUEST_H
#define RECORDER_CUPTI_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#define RLK_CUPTI_GUEST "rlk_cupti_guest" /* the table's name in librlkrec.so */

typedef void (*rlk_guest_callback)(void *userdata, int domain, uint32_t cbid, const void *data);

/* Each but `adopted`: true = answered, *result is the call's; false = CUPTI itself is to be asked. */
struct rlk_cupti_guest_api {
    bool (*subscribe)(void **handle, rlk_guest_callback callback, void *userdata, int *result);
    /* CUPTI itself was asked and took the guest as its subscriber. */
    void (*adopted)(void *handle, rlk_guest_callback callback, void *userdata);
    bool (*unsubscribe)(void *handle, int *result);
    bool (*enable_callback)(uint32_t enable, void *handle, int domain, uint32_t cbid, int *result);
    bool (*enable_domain)(uint32_t enable, void *handle, int domain, int *result);
    bool (*finalize)(int *result); /* would end our subscription too */
};

extern const struct rlk_cupti_guest_api rlk_cupti_guest;

/* ---- the launch plane's side. `cupti` and `subscriber` are its own. */
struct rlki_cupti;
/* Before the launch plane subscribes: a guest that holds CUPTI gives the place up. */
void rlki_guest_yield(const struct rlki_cupti *cupti);
/* The launch plane holds it: from here on a guest, the one that gave way too, is served by it. */
void rlki_guest_serve(const struct rlki_cupti *cupti, void *subscriber);

extern int rlki_guest_wants; /* atomic: anything enabled; the launch callback asks this alone */
void rlki_guest_forward(int domain, uint32_t cbid, const void *data);

#endif
