/* What may be written down of a command line and an environment. */
#include "cli/rlkrec/redact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define R RLKI_REDACTED

static void test_text(void **state)
{
    static const char *const pairs[][2] = {
        {"plain text, 3 words", "plain text, 3 words"},
        {"", ""},
        {"HF_TOKEN=abc", "HF_TOKEN=" R},
        {"HF_TOKEN=abc python x.py --lr 1", "HF_TOKEN=" R " python x.py --lr 1"},
        {"export API_KEY='a b c' && run", "export API_KEY='" R "' && run"},
        {"export Api_Key=\"a b\"; run", "export Api_Key=\"" R "\"; run"},
        {"{\"apiKey\": \"abc\", \"lr\": 1}", "{\"apiKey\": \"" R "\", \"lr\": 1}"},
        {"{\\\"secret\\\": \\\"abc\\\", 1}", "{\\\"secret\\\": \\\"" R "\\\", 1}"},
        {"cfg['password'] = 'abc'", "cfg['password'] = '" R "'"},
        {"x.py --api-key abc --lr 1", "x.py --api-key " R " --lr 1"},
        {"--api-key --lr", "--api-key --lr"},
        {"Authorization: Bearer abc.def", "Authorization: " R},
        {"https://user:pw@host/x", "https://" R "@host/x"},
        {"git+https://tok@host/x and s3://b/c", "git+https://" R "@host/x and s3://b/c"},
        {"https://u:p@ss@host/x", "https://" R "@host/x"},
        {"https://host/x@y", "https://host/x@y"},
        {"https://h/f?a=1&X-Amz-Signature=dead&b=2", "https://h/f?a=1&X-Amz-Signature=" R "&b=2"},
        {"https://h/f?access_token=dead", "https://h/f?access_token=" R},
        {"login hf_abcdefghijklmnopqrst now", "login " R " now"},
        {"hf_short", "hf_short"},
        {"a.key", "a.key"},
        {"wandb.api_key=abc", "wandb.api_key=" R},
        {"+trainer.hub_token=abc", "+trainer.hub_token=" R},
        {"the key is here", "the key is here"},
        {"my-key: ", "my-key: "},
        {"key=", "key="},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *out = rlki_redact_text(pairs[i][0]);
        assert_non_null(out);
        assert_string_equal(out, pairs[i][1]);
        free(out);
    }
}

static void expect_argv(const char *const *in, const char *const *out)
{
    json_t *list = rlki_redact_argv((char *const *)(uintptr_t)in);

    assert_non_null(list);
    for (size_t i = 0; out[i]; i++)
        assert_string_equal(json_string_value(json_array_get(list, i)), out[i]);
    json_decref(list);
}

static void test_argv(void **state)
{
    static const char *const in[] = {"train.py",        "--hub-token", "abc",  "--lr",         "1e-3",
                                     "--wandb-key=a b", "-key",        "-x",   "A=1",          "MY_SECRET=a b",
                                     "--password",      "--flag",      "--db", "pg://u:p@h/d", NULL};
    static const char *const out[] = {"train.py",
                                      "--hub-token",
                                      R,
                                      "--lr",
                                      "1e-3",
                                      "--wandb-key=" R,
                                      "-key",
                                      R,
                                      "A=1",
                                      "MY_SECRET=" R,
                                      "--password",
                                      "--flag",
                                      "--db",
                                      "pg://" R "@h/d",
                                      NULL};
    static const char *const named[] = {"make_tokens", "abc", NULL}; /* the program's own name is no option */

    (void)state;
    expect_argv(in, out);
    expect_argv(named, named);
}

static void test_environment(void **state)
{
    static char *env[] = {"NCCL_ALGO=Ring",
                          "HF_TOKEN=abc",
                          "HOME=/home/someone",
                          "AWS_SECRET_ACCESS_KEY=x",
                          "RANK=3",
                          "VLLM_API_KEY=",
                          "NCCL_SOCKET=http://u:p@h",
                          "CUDA_VISIBLE_DEVICES=0",
                          "broken",
                          "=x",
                          NULL};
    json_t *object = rlki_redact_environment(env);

    (void)state;
    assert_non_null(object);
    assert_string_equal(json_string_value(json_object_get(object, "NCCL_ALGO")), "Ring");
    assert_string_equal(json_string_value(json_object_get(object, "RANK")), "3");
    assert_string_equal(json_string_value(json_object_get(object, "HF_TOKEN")), R);
    assert_string_equal(json_string_value(json_object_get(object, "VLLM_API_KEY")), R);
    assert_string_equal(json_string_value(json_object_get(object, "NCCL_SOCKET")), "http://" R "@h");
    assert_null(json_object_get(object, "HOME"));
    assert_null(json_object_get(object, "AWS_SECRET_ACCESS_KEY"));
    assert_int_equal(json_object_size(object), 6);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_argv),
        cmocka_unit_test(test_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
