/* explain on a screen: one event, its tensors on both sides, why it stands as it does. */
#include "cli/common/rlk_output.h"
#include "cli/rlkaudit_show.h"

#include <string.h>

#define TENSORS 24u

static void print_tensor(struct rlki_lines *l, const json_t *t)
{
    char label[24];
    snprintf(label, sizeof label, "%s %lld", strcmp(rlki_raw(t, "role"), "in") == 0 ? "in" : "out",
             (long long)rlki_integer(t, "index"));
    rlki_lines_label(l, label);
    rlki_lines_item(l, strcmp(rlki_raw(t, "status"), "equal") == 0 ? RLKI_PLAIN : RLKI_BOLD, "%s",
                    rlki_text(t, "status"));
    if (*rlki_raw(t, "name"))
        rlki_lines_item(l, RLKI_PLAIN, "\"%s\"", rlki_text(t, "name"));
    for (int s = 0; s < 2; s++) {
        const json_t *side = json_object_get(t, s ? "b" : "a"), *producer = json_object_get(side, "producer");
        if (!json_is_object(side))
            continue;
        rlki_lines_label(l, s ? "  B" : "  A");
        rlki_lines_item(l, RLKI_PLAIN, "%s %s", rlki_text(side, "dtype"),
                        rlki_shape_text(json_object_get(side, "shape")));
        rlki_lines_item(l, RLKI_PLAIN, "%s",
                        *rlki_raw(side, "digest") ? rlki_text(side, "digest") : rlki_text(side, "not_digested"));
        if (json_is_object(producer))
            rlki_lines_item(l, RLKI_PLAIN, "from event %lld: %s %s", (long long)rlki_integer(producer, "event"),
                            rlki_text(producer, "module"), rlki_text(producer, "op"));
    }
    if (json_is_object(json_object_get(t, "difference")))
        rlki_text_difference(l, json_object_get(t, "difference"));
}

void rlki_audit_print_explain(FILE *to, const json_t *result, const struct rlki_audit_with *with)
{
    (void)with;
    const json_t *tensors = json_object_get(result, "tensors"), *a = json_object_get(result, "a"), *t;
    struct rlki_lines l;
    size_t i;
    rlki_lines_begin(&l, to);
    fprintf(to, "%s%s%s\n", rlki_style(to, RLKI_BOLD), rlki_text(result, "standing"), rlki_style(to, RLKI_PLAIN));
    if (!json_is_object(a))
        a = json_object_get(result, "b");
    if (json_is_object(a))
        rlki_text_where(&l, a);
    rlki_text_sides(&l, json_object_get(result, "side_a"), json_object_get(result, "side_b"));
    json_array_foreach(tensors, i, t) if (i < TENSORS) print_tensor(&l, t);
    rlki_lines_end(&l);
    if (json_array_size(tensors) > TENSORS)
        fprintf(to, "and %zu more tensors (--json)\n", json_array_size(tensors) - TENSORS);
    if (json_is_object(json_object_get(result, "mechanism")))
        rlki_text_mechanism(&l, json_object_get(result, "mechanism"));
    rlki_lines_end(&l);
    fprintf(to, "why: %s\n", rlki_text(result, "why"));
}
