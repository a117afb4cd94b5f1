// Products of matrices with the matrix units of CDNA: a wavefront computes a tile.

typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef short short4 __attribute__((ext_vector_type(4)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef double double4 __attribute__((ext_vector_type(4)));

// c (m x n) = a (m x k) * b^T (n x k), all by rows; a group for each tile of 16 x 16.
GLOBAL THREADS(64) void half_16(const _Float16* a, const _Float16* b, float* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 16, column = group_x() * 16;
    float4 sum = {0, 0, 0, 0};
    for (u32 at = 0; at < k; at += 16) {
        half4 x = *(const half4*)(a + (row + lane % 16) * k + at + lane / 16 * 4);
        half4 y = *(const half4*)(b + (column + lane % 16) * k + at + lane / 16 * 4);
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
    }
    for (u32 i = 0; i < 4; i++) c[(row + lane / 16 * 4 + i) * n + column + lane % 16] = sum[i];
}

// Tiles of 32 x 32, two of them at once: many accumulators.
GLOBAL THREADS(64) void half_32(const _Float16* a, const _Float16* b, float* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 64, column = group_x() * 64;
    float16 sums[2][2] = {};
    for (u32 at = 0; at < k; at += 8) {
        half4 x[2], y[2];
        for (u32 t = 0; t < 2; t++) {
            x[t] = *(const half4*)(a + (row + 32 * t + lane % 32) * k + at + lane / 32 * 4);
            y[t] = *(const half4*)(b + (column + 32 * t + lane % 32) * k + at + lane / 32 * 4);
        }
        for (u32 i = 0; i < 2; i++)
            for (u32 j = 0; j < 2; j++)
                sums[i][j] = __builtin_amdgcn_mfma_f32_32x32x8f16(x[i], y[j], sums[i][j], 0, 0, 0);
    }
    for (u32 i = 0; i < 2; i++)
        for (u32 j = 0; j < 2; j++)
            for (u32 e = 0; e < 16; e++)
                c[(row + 32 * i + e / 4 * 8 + lane / 32 * 4 + e % 4) * n + column + 32 * j + lane % 32] =
                    sums[i][j][e];
}

GLOBAL THREADS(64) void bf16_16(const short* a, const short* b, float* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 16, column = group_x() * 16;
    float4 sum = {0, 0, 0, 0};
    for (u32 at = 0; at < k; at += 16) {
        short4 x = *(const short4*)(a + (row + lane % 16) * k + at + lane / 16 * 4);
        short4 y = *(const short4*)(b + (column + lane % 16) * k + at + lane / 16 * 4);
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sum, 0, 0, 0);
    }
    for (u32 i = 0; i < 4; i++) c[(row + lane / 16 * 4 + i) * n + column + lane % 16] = sum[i];
}

GLOBAL THREADS(64) void int8_16(const i8* a, const i8* b, i32* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 16, column = group_x() * 16;
    int4 sum = {0, 0, 0, 0};
#ifdef __gfx942__
    for (u32 at = 0; at < k; at += 32) {
        long long x = *(const long long*)(a + (row + lane % 16) * k + at + lane / 16 * 8);
        long long y = *(const long long*)(b + (column + lane % 16) * k + at + lane / 16 * 8);
        sum = __builtin_amdgcn_mfma_i32_16x16x32_i8(x, y, sum, 0, 0, 0);
    }
#else
    for (u32 at = 0; at < k; at += 16) {
        int x = *(const int*)(a + (row + lane % 16) * k + at + lane / 16 * 4);
        int y = *(const int*)(b + (column + lane % 16) * k + at + lane / 16 * 4);
        sum = __builtin_amdgcn_mfma_i32_16x16x16i8(x, y, sum, 0, 0, 0);
    }
#endif
    for (u32 i = 0; i < 4; i++) c[(row + lane / 16 * 4 + i) * n + column + lane % 16] = sum[i];
}

GLOBAL THREADS(64) void float_16(const float* a, const float* b, float* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 16, column = group_x() * 16;
    float4 sum = {0, 0, 0, 0};
    for (u32 at = 0; at < k; at += 4)
        sum = __builtin_amdgcn_mfma_f32_16x16x4f32(
            a[(row + lane % 16) * k + at + lane / 16], b[(column + lane % 16) * k + at + lane / 16], sum, 0, 0, 0);
    for (u32 i = 0; i < 4; i++) c[(row + lane / 16 * 4 + i) * n + column + lane % 16] = sum[i];
}

GLOBAL THREADS(64) void double_16(const double* a, const double* b, double* c, u32 n, u32 k) {
    u32 lane = local_x(), row = group_y() * 16, column = group_x() * 16;
    double4 sum = {0, 0, 0, 0};
    for (u32 at = 0; at < k; at += 4)
        sum = __builtin_amdgcn_mfma_f64_16x16x4f64(
            a[(row + lane % 16) * k + at + lane / 16], b[(column + lane % 16) * k + at + lane / 16], sum, 0, 0, 0);
    for (u32 i = 0; i < 4; i++) c[(row + 4 * i + lane / 16) * n + column + lane % 16] = sum[i];
}

// The ids of a work-item in three dimensions, and sums of doubles by atomics.
GLOBAL THREADS(256) void ids(u32* out, double* sum) {
    u32 flat = local_x() + 4 * (local_y() + 8 * local_z());
    out[flat] = local_x() | local_y() << 8 | local_z() << 16;
    SHARED double shared;
    if (flat == 0) shared = 0;
    barrier();
    __builtin_amdgcn_ds_atomic_fadd_f64((__attribute__((address_space(3))) double*)&shared, (double)flat);
    __builtin_amdgcn_global_atomic_fadd_f64((__attribute__((address_space(1))) double*)sum, 0.5 * (double)flat);
    barrier();
    if (flat == 0) sum[1] = shared;
}
