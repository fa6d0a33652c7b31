#include <fusion.h>

uint32_t version(void) { return FUSION_ABI_VERSION - fusion_abi_version(); }
