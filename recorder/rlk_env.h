/* rlk_env.h - the environment variables by which `rlkrec run` tells the recorder in a watched process what to do.
 *
 * Set for the command and inherited by every process below it. Values are plain text; a variable that is missing or not
 * well-formed means its default, so a process started by hand with RLKREC_RECORDING and RLKREC_LIBRARY alone records too.
 */
#ifndef RECORDER_RLK_ENV_H
#define RECORDER_RLK_ENV_H

#define RLK_ENV_RECORDING "RLKREC_RECORDING" /* absolute path of NAME.rlk; processes add their environments to it */
#define RLK_ENV_LIBRARY "RLKREC_LIBRARY"     /* absolute path of the recorder's shared library (librlkrec.so) */
#define RLK_ENV_LEVEL "RLKREC_LEVEL"         /* launch|step|module|op|buffer; default op */
#define RLK_ENV_INPUTS "RLKREC_INPUTS"       /* reference|digest; default reference */
#define RLK_ENV_PAYLOAD "RLKREC_PAYLOAD"     /* SPECs of --payload, one a line; default none */
#define RLK_ENV_STEPS "RLKREC_STEPS"         /* A:B, half-open, either side may be empty; default all */
#define RLK_ENV_EVERY "RLKREC_EVERY"         /* N: record steps that are multiples of N; default 1 */
#define RLK_ENV_KEEP_LAST "RLKREC_KEEP_LAST" /* K: keep the last K steps; default 0 = all */
#define RLK_ENV_MAX_SIZE "RLKREC_MAX_SIZE"   /* bytes that one process's environment may grow to; default 0 = no bound */

/* Not set by `rlkrec run`: the user's. */
#define RLK_ENV_FORK "RLKREC_FORK" /* "detach": a forked child without exec does not record */

/* Keys of an environment's meta (tap: meta(), fault()) that `rlkrec run` and `rlkrec info` read back. */
#define RLK_META_LIBRARY "lib."    /* + name: version, e.g. "lib.torch" = "2.11.0+cpu"; gathered into the manifest */
#define RLK_META_FAULT "fault."    /* + code: what was given up and why; gathered into the manifest's faults */
#define RLK_META_PROGRAM "program" /* what this process runs, e.g. "train.py" */

#endif
