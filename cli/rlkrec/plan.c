#include "cli/rlkrec/plan.h"

#include "cli/common/rlk_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_MAX (112u * 1024) /* the kernel takes 128 KiB in one environment variable; --payload wants some of it */

static const char magic[] = "# rlk.plan/1";

/* Is there a line that asks for something? */
static bool asks(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *first = line + strspn(line, " \t\r");
        if (*first && *first != '\n' && *first != '#')
            return true;
    }
    return false;
}

char *rlki_plan_read(const char *path)
{
    char *text = malloc(PLAN_MAX + 2);
    FILE *from = text ? fopen(path, "rb") : NULL;
    const char *wrong = NULL;

    if (!from) {
        rlki_say("run: --plan %s: %s", path, text ? strerror(errno) : "out of memory");
        free(text);
        return NULL;
    }
    errno = 0;
    size_t n = fread(text, 1, PLAN_MAX + 1, from);
    text[n] = 0;
    if (ferror(from))
        wrong = strerror(errno ? errno : EIO);
    else if (n > PLAN_MAX)
        wrong = "larger than 112 KiB, more than a program can be told; leave lines out";
    else if (strncmp(text, magic, sizeof magic - 1) != 0 || strlen(text) != n)
        wrong = "no plan; rlkaudit first-diff --plan writes one";
    else if (!asks(text))
        wrong = "no line of it asks for anything: nothing would be kept";
    fclose(from);
    if (!wrong)
        return text;
    rlki_say("run: --plan %s: %s", path, wrong);
    free(text);
    return NULL;
}
