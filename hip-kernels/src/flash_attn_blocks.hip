// FLASH_ATTN_EXT with k and v in blocks (attention_kernels.h).
#include "attention_kernels.h"

SPLITS(q8_0, WeightQ8_0, 64)
SPLITS(q8_0, WeightQ8_0, 128)
SPLITS(q8_0, WeightQ8_0, 256)
SPLITS(q4_0, WeightQ4_0, 64)
SPLITS(q4_0, WeightQ4_0, 128)
SPLITS(q4_0, WeightQ4_0, 256)
TILE(q8_0, WeightQ8_0, 64, 1)
TILE(q8_0, WeightQ8_0, 128, 1)
TILE(q8_0, WeightQ8_0, 256, 1)
TILE(q4_0, WeightQ4_0, 64, 1)
TILE(q4_0, WeightQ4_0, 128, 1)
TILE(q4_0, WeightQ4_0, 256, 1)
LONG(q8_0, WeightQ8_0)
LONG(q4_0, WeightQ4_0)
ANY(q8_0, WeightQ8_0)
ANY(q4_0, WeightQ4_0)
