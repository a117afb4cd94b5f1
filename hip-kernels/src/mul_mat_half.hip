// Activations in F16 for MUL_MAT, and products with weights in F16 (mul_mat_half.h).
#include "mul_mat_half.h"

#if HAS_MATRIX || HAS_DOT2
MAT_TILES_HALF(f16, WeightF16)
#endif

#if HAS_MATRIX || HAS_DOT2 || HAS_PACKED_HALVES
// Sums of 16 products must fit F16 where they are added in F16 (mat_tile_packed.h).
#define ROUNDED_BY (HAS_PACKED_HALVES ? 1.0f / 2048.0f : 1.0f)

// A work-group rounds a row of b. Rows are contiguous in scratch, each with its factor.
KERNEL(ROW_THREADS) round_half(const float *b, u16 *x, float *scale, MulMatParams p) {
    LDS float scratch[ROW_THREADS / WAVE];
    u32 n = group_x(), end = half_pitch(p.k);
    Plane z = plane(group_y(), p.ne2, 1, 1);
    u64 row = scratch_column(p, z, n);
    const u8 *at = (const u8 *)(b + row_offset(p.off1, p.nb1, n, z.i2, z.i3));
    float most = 0.0f, y[8];
    for (u32 k = thread_id() * 8; k < p.k; k += ROW_THREADS * 8) {
        WeightF32::decode(fetch_any<WeightF32>(at, k, p.k), y);
        UNROLL for (int j = 0; j < 8; j++) most = larger(most, is_finite(y[j]) ? __builtin_fabsf(y[j]) : 0.0f);
    }
    float factor = half_factor(group_reduce<Max, ROW_THREADS>(most, scratch)) * ROUNDED_BY;
    for (u32 k = thread_id() * 8; k < end; k += ROW_THREADS * 8) {
        WeightF32::decode(fetch_any<WeightF32>(at, k, p.k), y);
        lds_u32x4 out;
        UNROLL for (int j = 0; j < 4; j++) {
            out[j] = f32_to_f16(y[j * 2] * factor) | (u32)f32_to_f16(y[j * 2 + 1] * factor) << 16;
        }
        *(lds_u32x4 *)(x + row * end + k) = out;
    }
    if (thread_id() == 0) scale[row] = inverse_power(factor);
}
#endif

#if HAS_COPIES && HAS_MATRIX
ROUND_NARROW(round_narrow, 32, false)
ROUND_NARROW(round_narrow, 64, false)
ROUND_NARROW(normalize_narrow, 32, true)
ROUND_NARROW(normalize_narrow, 64, true)
#endif
