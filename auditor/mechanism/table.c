/* table.c - weighs what the rules said of one difference: the class, those that the evidence leaves open beside it, how
 * sure that is, and what to do next.
 *
 * The class is the one with the strongest evidence that nothing excludes; of equally strong ones the first of the list
 * in mechanism.h. Confidence is what is left besides it:
 *   high    it is shown, and every other class that anything spoke for is excluded
 *   medium  it is shown and another one is pointed to, or it alone is pointed to and nothing else is open
 *   low     anything less; `unknown` always
 * Where the inputs are not known to be equal (root "unknown") all of it is one degree less.
 */
#include "auditor/mechanism/mechanism.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct rlki_mechanism *const rules[] = {
#define X(name) &rlki_rule_##name,
    RLKI_RULES_X(X)
#undef X
};

static const char *const class_names[RLKI_CLASSES] = {
#define X(name, text) text,
    RLKI_CLASSES_X(X)
#undef X
};

struct rlki_opinion {
    enum rlki_hold hold[RLKI_CLASSES];
    json_t *evidence[RLKI_CLASSES]; /* NULL = none */
    json_t *why_not[RLKI_CLASSES];  /* NULL = not excluded */
    json_t *advice[RLKI_CLASSES];
    json_t *remarks;
    bool failed;
};

static json_t *sentence(const char *format, va_list args)
{
    char text[480];
    vsnprintf(text, sizeof text, format, args);
    return rlki_json_text(text);
}

static void append(struct rlki_opinion *o, json_t **list, json_t *text)
{
    if (!*list)
        *list = json_array();
    size_t i;
    json_t *have;
    json_array_foreach(*list, i, have) if (text && json_equal(have, text))
    {
        json_decref(text);
        return;
    }
    o->failed |= json_array_append_new(*list, text) != 0;
}

void rlki_holds(struct rlki_opinion *o, enum rlki_class class, enum rlki_hold hold, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *text = sentence(format, args);
    va_end(args);
    append(o, &o->evidence[class], text);
    if (hold > o->hold[class])
        o->hold[class] = hold;
}

void rlki_open(struct rlki_opinion *o, enum rlki_class class)
{
    if (o->hold[class] < RLKI_OPEN)
        o->hold[class] = RLKI_OPEN;
}

void rlki_excludes(struct rlki_opinion *o, enum rlki_class class, const char *format, ...)
{
    va_list args;
    if (o->why_not[class])
        return;
    va_start(args, format);
    o->why_not[class] = sentence(format, args);
    va_end(args);
    o->failed |= !o->why_not[class];
}

void rlki_remark(struct rlki_opinion *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append(o, &o->remarks, sentence(format, args));
    va_end(args);
}

void rlki_advise(struct rlki_opinion *o, enum rlki_class class, const char *format, ...)
{
    va_list args;
    if (o->advice[class])
        return;
    va_start(args, format);
    o->advice[class] = sentence(format, args);
    va_end(args);
    o->failed |= !o->advice[class];
}

static enum rlki_hold left(const struct rlki_opinion *o, int class)
{
    return o->why_not[class] ? RLKI_SILENT : o->hold[class];
}

/* The strongest class that is left; RLKI_CLASSES: none that anything points to. */
static int strongest(const struct rlki_opinion *o)
{
    int best = RLKI_CLASSES;
    for (int c = 0; c < RLKI_CLASSES; c++)
        if (left(o, c) >= RLKI_POINTS && (best == RLKI_CLASSES || left(o, c) > left(o, best)))
            best = c;
    return best;
}

static const char *confidence(const struct rlki_opinion *o, int class, bool inputs_equal)
{
    static const char *const degrees[] = {"low", "low", "medium", "high"};
    int degree = 1;
    bool open = false, pointed = false;
    if (class == RLKI_CLASSES)
        return "low";
    for (int c = 0; c < RLKI_CLASSES; c++) {
        open |= c != class && left(o, c) == RLKI_OPEN;
        pointed |= c != class && left(o, c) >= RLKI_POINTS;
    }
    if (left(o, class) == RLKI_SHOWS)
        degree = pointed ? 2 : 3;
    else if (!open && !pointed)
        degree = 2;
    return degrees[inputs_equal ? degree : degree - 1];
}

/* The rule that stands for the class, for its `next`. */
static const char *advice_of(int class)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((int)rules[i]->class == class)
            return rules[i]->next;
    return "rlkaudit explain A B";
}

static json_t *next_of(const struct rlki_facts *f, const struct rlki_opinion *o, int class)
{
    if (class < RLKI_CLASSES && o->advice[class])
        return json_incref(o->advice[class]);
    if (class < RLKI_CLASSES)
        return rlki_json_text(advice_of(class));
    bool a = f->repeat[0] == RLKI_REPEAT_UNKNOWN, b = f->repeat[1] == RLKI_REPEAT_UNKNOWN;
    if (f->output && a && b)
        return rlki_json_text("record each side once more and give --self-a, --self-b: is each repeatable?");
    if (f->output && (a || b))
        return rlki_json_text(
            a ? "record A once more and give --self-a, or relaunch the operator: does it repeat itself?"
              : "record B once more and give --self-b, or relaunch the operator: does it repeat itself?");
    return rlki_json_text("rlkaudit explain A B --elements");
}

/* Evidence of the answer first, then of what stands beside it, then what is true under any of them. */
static json_t *evidence_of(const struct rlki_opinion *o, int class)
{
    json_t *list = json_array();
    if (list && class < RLKI_CLASSES && o->evidence[class])
        json_array_extend(list, o->evidence[class]);
    for (int c = 0; list && c < RLKI_CLASSES; c++)
        if (c != class && left(o, c) && o->evidence[c])
            json_array_extend(list, o->evidence[c]);
    if (list && o->remarks)
        json_array_extend(list, o->remarks);
    return list;
}

static json_t *weigh(const struct rlki_facts *f, const struct rlki_opinion *o)
{
    int class = strongest(o);
    json_t *also = json_array(), *excluded = json_array();
    for (int hold = RLKI_SHOWS; hold >= RLKI_OPEN; hold--)
        for (int c = 0; c < RLKI_CLASSES; c++)
            if (c != class && (int)left(o, c) == hold)
                rlki_add(also, json_string(class_names[c]));
    for (int c = 0; c < RLKI_CLASSES; c++)
        if (o->why_not[c])
            rlki_add(excluded, json_pack("{s:s,s:O}", "class", class_names[c], "why", o->why_not[c]));
    return json_pack("{s:s,s:o,s:s,s:o,s:o,s:o}", "class", class < RLKI_CLASSES ? class_names[class] : "unknown",
                     "also", also, "confidence", confidence(o, class, f->found->root != RLKI_ROOT_UNKNOWN), "evidence",
                     evidence_of(o, class), "excluded", excluded, "next", next_of(f, o, class));
}

static void drop(struct rlki_opinion *o)
{
    for (int c = 0; c < RLKI_CLASSES; c++) {
        json_decref(o->evidence[c]);
        json_decref(o->why_not[c]);
        json_decref(o->advice[c]);
    }
    json_decref(o->remarks);
}

int rlki_mechanism(struct rlki_audit *audit, const struct rlki_found *found, const json_t *difference, json_t **out)
{
    struct rlki_opinion o;
    struct rlki_facts f;
    *out = NULL;
    memset(&o, 0, sizeof o);
    int rc = rlki_facts_gather(&f, audit, found, difference);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == RLK_OK; i++)
        rc = rules[i]->look(&f, &o);
    if (rc == RLK_OK) {
        rlki_attributes(&f, &o);
        rlki_context(&f, &o);
    }
    if (rc == RLK_OK && !o.failed)
        *out = weigh(&f, &o);
    if (rc == RLK_OK && !*out)
        rc = RLK_ENOMEM;
    drop(&o);
    rlki_facts_release(&f);
    return rc;
}
