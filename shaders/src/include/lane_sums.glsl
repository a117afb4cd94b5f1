// Sums of fragments of mat_tile.glsl in the registers of single invocations: TM rows of each of TN columns. The fragment
// defines their places with ROW_OF(lane, i) and COLUMN_OF(lane, j), and SUM_FACTOR(column) if columns have factors. Shared memory: BM * BN floats to add slices.
#ifndef LANE_SUMS_GLSL
#define LANE_SUMS_GLSL

float sums[TM * TN];

shared float slice_sums[SLICES > 1 ? BM * BN : 1];

void no_sums() {
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        sums[i] = 0.0;
    }
}

void store_sums(uint lane, uint slice) {
    if (SLICES > 1) {
        [[unroll]] for (uint s = 1; s < SLICES; s++) {
            barrier();
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                if (slice == s) {
                    slice_sums[i * WG + lane] = sums[i];
                }
            }
            barrier();
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                if (slice == 0) {
                    sums[i] += slice_sums[i * WG + lane];
                }
            }
        }
        if (slice > 0) {
            return;
        }
    }
    [[unroll]] for (uint j = 0; j < TN; j++) {
#ifdef SUM_FACTOR
        const float factor = SUM_FACTOR(COLUMN_OF(lane, j));
        [[unroll]] for (uint i = 0; i < TM; i++) {
            sums[j * TM + i] *= factor;
        }
#endif
        [[unroll]] for (uint i = 0; i < TM; i++) {
            store(ROW_OF(lane, i), COLUMN_OF(lane, j), sums[j * TM + i]);
        }
    }
}

#endif
