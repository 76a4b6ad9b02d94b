/* The digest kernel's machine code, carried in the library: a watched process loads it through the driver alone. */
#ifndef RLK_DIGEST_FATBIN
#error "RLK_DIGEST_FATBIN names the file"
#endif
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl rlki_digest_fatbin\n"
        ".hidden rlki_digest_fatbin\n"
        ".type rlki_digest_fatbin, @object\n"
        "rlki_digest_fatbin:\n"
        ".incbin \"" RLK_DIGEST_FATBIN "\"\n"
        ".byte 0\n"
        ".size rlki_digest_fatbin, . - rlki_digest_fatbin\n"
        ".previous\n");
typedef int rlki_digest_fatbin_unit; /* an empty translation unit is not C */
