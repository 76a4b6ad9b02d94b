/* commands.h - the subcommands of rlkrec: one row and one file each. argv[0] is the subcommand's name; the result is
 * the exit status (cli/common/rlk_exit.h).
 */
#ifndef CLI_RLKREC_COMMANDS_H
#define CLI_RLKREC_COMMANDS_H

#include "cli/common/rlk_program.h"

#define RLKI_REC_COMMANDS(BUILT, LATER)                                                                                \
    BUILT("run", rlki_cmd_run, "run a command and record every tensor's digest")                                       \
    BUILT("ls", rlki_cmd_ls, "list recordings")                                                                        \
    BUILT("info", rlki_cmd_info, "what a recording holds: processes, ranks, coverage, events")                         \
    BUILT("verify", rlki_cmd_verify, "check a recording against its seal")                                             \
    BUILT("seal", rlki_cmd_seal, "seal a recording (rlkrec run does it when it is the only parent)")                   \
    BUILT("synth", rlki_cmd_synth, "make a recording from a description (docs/synth.md)")                              \
    BUILT("rm", rlki_cmd_rm, "remove recordings, and nothing else")                                                    \
    BUILT("doctor", rlki_cmd_doctor, "what works on this machine and what does not")                                   \
    BUILT("pack", rlki_cmd_pack, "one file from recordings, whole or cleaned")                                         \
    BUILT("unpack", rlki_cmd_unpack, "the recordings of a pack again")

RLKI_REC_COMMANDS(RLKI_PROTOTYPE, RLKI_NO_PROTOTYPE)

#endif
