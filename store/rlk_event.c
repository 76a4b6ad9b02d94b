#include "store/rlk_event.h"

const char *rlk_event_kind_name(enum rlk_event_kind kind)
{
    switch (kind) {
#define X(name, value, text)                                                                                           \
    case name:                                                                                                         \
        return text;
        RLK_EVENT_KINDS(X)
#undef X
    case RLK_EV_NONE:
        break;
    }
    return "?";
}
