/* redact.h - what of a command line and an environment may be written down (docs/cli.md, "What is not written down").
 *
 * A name is secret when it contains, in any case, one of: token, key, secret, password, passwd, credential, signature,
 * authorization. Its value is replaced by [redacted] wherever it stands: NAME=VALUE, --name VALUE, --name=VALUE,
 * "name": "VALUE", inside a longer string as well. So are the user part of URLs and strings of the shape of well-known
 * access tokens. Too much may be removed (--tokenizer PATH); too little may not.
 */
#ifndef CLI_RLKREC_REDACT_H
#define CLI_RLKREC_REDACT_H

#include <jansson.h>
#include <stdbool.h>

#define RLKI_REDACTED "[redacted]"

bool rlki_is_secret_name(const char *name, size_t n);

/* `text` without secrets; malloc'ed; NULL = out of memory. */
char *rlki_redact_text(const char *text);

/* The command line as a JSON array; the variables of the allow-list as a JSON object, in alphabetical order. NULL = out
 * of memory. */
json_t *rlki_redact_argv(char *const *argv);
json_t *rlki_redact_environment(char *const *envp);

#endif
