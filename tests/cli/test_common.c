/* cli/common: option tables, escaping, exit precedence, JSON strings. */
#include "cli/common/rlk_exit.h"
#include "cli/common/rlk_options.h"
#include "cli/common/rlk_output.h"

#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    bool all;
    const char *out, *level;
    struct rlki_list payload;
    uint64_t every, size;
    struct rlki_span steps;
} got;

static const struct rlki_option options[] = {
    {"all", 'a', RLKI_FLAG, &got.all, NULL, "all"},
    {"out", 'o', RLKI_STRING, &got.out, "DIR", "where"},
    {"level", 0, RLKI_CHOICE, &got.level, "launch|step|op", "how much"},
    {"payload", 0, RLKI_LIST, &got.payload, "SPEC", "what"},
    {"every", 0, RLKI_NUMBER, &got.every, "N", "number"},
    {"max-size", 0, RLKI_SIZE, &got.size, "SIZE", "size"},
    {"steps", 0, RLKI_SPAN, &got.steps, "A:B", "span"},
    {"plan", 0, RLKI_LATER, NULL, "FILE", "later"},
};

static int parse(bool stop, int *nargs, char ***args, const char *line)
{
    static char copy[512];
    static char *argv[32];
    struct rlki_command c = {"prog", "sub", "ARGS", "Does it.", options, sizeof options / sizeof options[0],
                             0,      3,     stop,   99,         NULL};
    int argc = 0;

    memset(&got, 0, sizeof got);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = strtok(copy, " "); p && argc < 31; p = strtok(NULL, " "))
        argv[argc++] = p;
    argv[argc] = NULL;
    return rlki_parse(&c, argc, argv, nargs, args);
}

static void test_forms(void **state)
{
    char **args;
    int n;

    (void)state;
    assert_int_equal(parse(false, &n, &args, "sub x -a --out=d y --level op --every 12 --max-size 1.5K -- -z"),
                     RLKI_GO_ON);
    assert_true(got.all);
    assert_string_equal(got.out, "d");
    assert_string_equal(got.level, "op");
    assert_int_equal(got.every, 12);
    assert_int_equal(got.size, 1536);
    assert_int_equal(n, 3);
    assert_string_equal(args[0], "x");
    assert_string_equal(args[1], "y");
    assert_string_equal(args[2], "-z");
    assert_int_equal(parse(false, &n, &args, "sub -oq --payload a --payload=b --steps 2:5"), RLKI_GO_ON);
    assert_string_equal(got.out, "q");
    assert_int_equal(got.payload.n, 2);
    assert_string_equal(got.payload.items[1], "b");
    assert_true(got.steps.set && got.steps.first == 2 && got.steps.last == 5);
    assert_int_equal(n, 0);
}

static void test_command_line_follows(void **state)
{
    char **args;
    int n;

    (void)state;
    assert_int_equal(parse(true, &n, &args, "sub -a cmd -o x"), RLKI_GO_ON);
    assert_int_equal(n, 3);
    assert_string_equal(args[1], "-o");
    assert_null(got.out);
    assert_int_equal(parse(true, &n, &args, "sub -- -cmd --"), RLKI_GO_ON);
    assert_int_equal(n, 2);
    assert_string_equal(args[1], "--");
}

static void test_mistakes(void **state)
{
    static const char *const lines[] = {"sub --nope",
                                        "sub -x",
                                        "sub --out",
                                        "sub --out=",
                                        "sub --all=1",
                                        "sub --level ops",
                                        "sub --level",
                                        "sub --level launch|step",
                                        "sub --every -1",
                                        "sub --every 1x",
                                        "sub --max-size 1Q",
                                        "sub --max-size -1",
                                        "sub --max-size nan",
                                        "sub --steps 5",
                                        "sub --steps 5:5",
                                        "sub --steps 5:x",
                                        "sub --plan f",
                                        "sub a b c d",
                                        "sub --max-size 99999999T",
                                        "sub --every 99999999999999999999999"};
    char **args;
    int n;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_int_equal(parse(false, &n, &args, lines[i]), 99);
}

static void test_escape(void **state)
{
    (void)state;
    assert_string_equal(rlki_esc(NULL), "");
    assert_string_equal(rlki_esc("plain \xc3\xa9 text"), "plain \xc3\xa9 text");
    assert_string_equal(rlki_esc("\x1b[31mred\x07\n\t\x7f"), "\\x1b[31mred\\x07\\n\\t\\x7f");
    assert_string_equal(rlki_esc("\xc2\x9b"
                                 "31m"),
                        "\\x9b31m"); /* C1 CSI in UTF-8 */
    assert_string_equal(rlki_esc("a\xe2\x80\xae"
                                 "b"),
                        "a\\u{202e}b");                                    /* right-to-left override */
    assert_string_equal(rlki_esc("\xff\xc0\xafx"), "\\xff\\xc0\\xafx");    /* no UTF-8, overlong */
    assert_string_equal(rlki_esc("\xed\xa0\x80"), "\\xed\\xa0\\x80");      /* surrogate */
    assert_string_equal(rlki_esc("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80"); /* stays */
    assert_string_equal(rlki_esc("\xf0\x9f"), "\\xf0\\x9f");               /* cut off */
}

static void test_json_string(void **state)
{
    json_t *good = rlki_json_string("\xc3\xa9\x1b"), *bad = rlki_json_string("a\xff"
                                                                             "b");

    (void)state;
    assert_string_equal(json_string_value(good), "\xc3\xa9\x1b");
    assert_string_equal(json_string_value(bad), "a\xef\xbf\xbd"
                                                "b");
    assert_true(json_is_null(rlki_json_string(NULL)));
    json_decref(good);
    json_decref(bad);
}

static void test_exit(void **state)
{
    static const enum rlki_exit rising[] = {RLKI_EXIT_OK,    RLKI_EXIT_ACCEPTED,       RLKI_EXIT_INCOMPLETE,
                                            RLKI_EXIT_CHECK, RLKI_EXIT_NOT_COMPARABLE, RLKI_EXIT_FAULT};

    (void)state;
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++)
            assert_int_equal(rlki_exit_worse(rising[i], rising[k]), rising[i > k ? i : k]);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_OK, 0), 0);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_CHECK, 0), 1);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_INCOMPLETE, 0), 125);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_NOT_COMPARABLE, 0), 125);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_FAULT, 0), 125);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_FAULT, 1), 128);
    assert_int_equal(rlki_exit_bisect(RLKI_EXIT_ACCEPTED, 0), 0);
}

static void test_people(void **state)
{
    (void)state;
    assert_string_equal(rlki_bytes(999), "999 B");
    assert_string_equal(rlki_bytes(1234567), "1.2 MB");
    assert_string_equal(rlki_count(1234567), "1,234,567");
    assert_string_equal(rlki_count(12), "12");
    assert_string_equal(rlki_seconds(0.25), "250 ms");
    assert_string_equal(rlki_seconds(185), "3 min 05 s");
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Lines that progress draws on `fd` in 1.2 seconds, or a little more, of steps 1 ms apart; at most one a second. */
static int lines_drawn(int fd, int from)
{
    static char text[1 << 16];
    struct rlki_progress p;
    int saved = dup(STDERR_FILENO), lines = 0;
    double start = seconds_now(), took;

    assert_true(saved >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    rlki_progress_begin(&p, "testing");
    for (uint64_t i = 0; seconds_now() - start < 1.2; i++) {
        rlki_progress(&p, i, 0);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    took = seconds_now() - start;
    bool shown = p.shown;
    rlki_progress_end(&p);
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = read(from, text, sizeof text);
    for (ssize_t i = 0; i + 6 < n; i++)
        lines += memcmp(text + i, "rlkrec", 6) == 0;
    assert_int_equal(shown, lines > 0);
    assert_true(lines <= (int)took);
    return lines;
}

static void test_progress(void **state)
{
    int master, slave, ends[2];

    (void)state;
    setenv("TERM", "xterm", 1);
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    fcntl(master, F_SETFL, O_NONBLOCK);
    assert_int_equal(lines_drawn(slave, master), 1);    /* a terminal: once a second */
    assert_int_equal(lines_drawn(ends[1], ends[0]), 0); /* a pipe: never */
    close(master);
    close(slave);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),       cmocka_unit_test(test_command_line_follows),
        cmocka_unit_test(test_mistakes),    cmocka_unit_test(test_escape),
        cmocka_unit_test(test_json_string), cmocka_unit_test(test_exit),
        cmocka_unit_test(test_people),      cmocka_unit_test(test_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
