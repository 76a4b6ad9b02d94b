/* cpu_generic.c - the portable operators, compiled for one instruction set (kernels/CMakeLists.txt sets its flags). */
#include "kernels/cpu_vec.h"
#include "kernels/rlki_cpu.h"

#include "kernels/cpu_gemm.h"
#include "kernels/cpu_rows.h"

#include "kernels/cpu_attention.h"
#include "kernels/cpu_logp.h"

#include "kernels/cpu_table.h"

RLKI_CPU_TABLE(rlki_prims_cpu_generic, "generic");
