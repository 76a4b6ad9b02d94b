/* rlki_control.h - the floating-point control word of the calling thread. Internal. */
#ifndef KERNELS_RLKI_CONTROL_H
#define KERNELS_RLKI_CONTROL_H

#include <stdint.h>

/* Round to nearest, subnormals kept, exceptions masked; returns the caller's word for rlki_control_leave. */
uint64_t rlki_control_enter(void);
void rlki_control_leave(uint64_t saved);

#endif
