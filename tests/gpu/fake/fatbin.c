/* fatbin.c - in the place of the device's code. */
extern const unsigned char rlki_digest_fatbin[];
const unsigned char rlki_digest_fatbin[16] = "not a kernel";
