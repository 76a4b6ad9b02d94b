/* The copy of LMDB that shared objects link (rlk::lmdb_pic) writes its assertion messages through this hidden pointer
 * instead of through a relocation against stderr, which the distribution's archive cannot have in a shared object.
 * Compiled into each shared object that links rlk::lmdb_pic, never into a program. */
#include <stdio.h>

extern FILE *rlki_stderr;
FILE *rlki_stderr;

__attribute__((constructor)) static void point_at_stderr(void)
{
    rlki_stderr = stderr;
}
