/* commands.h - the subcommands of rlkrec: one function and one file each. argv[0] is the subcommand's name; the result
 * is the exit status (cli/common/rlk_exit.h).
 */
#ifndef CLI_RLKREC_COMMANDS_H
#define CLI_RLKREC_COMMANDS_H

int rlki_cmd_run(int argc, char **argv);
int rlki_cmd_ls(int argc, char **argv);
int rlki_cmd_info(int argc, char **argv);
int rlki_cmd_verify(int argc, char **argv);
int rlki_cmd_seal(int argc, char **argv);
int rlki_cmd_synth(int argc, char **argv);
int rlki_cmd_rm(int argc, char **argv);
int rlki_cmd_doctor(int argc, char **argv);

#endif
