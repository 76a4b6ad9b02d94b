/* image_map.h - which machine code a kernel name stands for: the hash of the module image that brought it.
 *
 * Images are hashed when CUPTI announces them and their kernels' names read from the ELF symbol table; a name asks for
 * the image that announced it last. With lazy loading that is the image loaded for the very launch that asks.
 */
#ifndef RECORDER_CUPTI_IMAGE_MAP_H
#define RECORDER_CUPTI_IMAGE_MAP_H

#include <stddef.h>

/* Any thread. The bytes are read during the call only; what is no ELF image, or is malformed, is hashed without names.
 */
void rlki_image_loaded(const void *image, size_t bytes);
/* 32 hex digits, or "" if no image with this kernel was seen. The string lives for ever. */
const char *rlki_image_of(const char *kernel);

#endif
