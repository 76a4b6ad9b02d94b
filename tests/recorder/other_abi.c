/* A recorder of another version: it refuses the ABI that is asked for. */
#include "recorder/rlk_tap.h"

__attribute__((visibility("default"))) const struct rlk_tap_api *rlk_tap_table(uint32_t abi);

const struct rlk_tap_api *rlk_tap_table(uint32_t abi)
{
    static struct rlk_tap_api table;
    table.abi = abi + 1;
    return &table;
}
