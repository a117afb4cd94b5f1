// Matrix instructions. Every kernel computes D = A * B + C for one wavefront, from matrices that lie in memory row by
// row, so that the layouts in registers are part of what is compared.

#ifdef HAS_MFMA
// Blocks of M x K times K x M; a lane holds `Each` consecutive k of one row of A or column of B.
template <int M, int K, int Blocks, int Each, class V, class T> DEVICE static inline V left(const T* a) {
    u32 row = lane() % M, block = lane() / M % Blocks, first = lane() / (M * Blocks) * Each;
    V v = {};
    if constexpr (Each == 1) {
        v = a[(block * M + row) * K + first];
    } else {
        T* parts = (T*)&v;
        for (u32 k = 0; k < Each; k++) parts[k] = a[(block * M + row) * K + first + k];
    }
    return v;
}

template <int M, int K, int Blocks, int Each, class V, class T> DEVICE static inline V right(const T* b) {
    u32 column = lane() % M, block = lane() / M % Blocks, first = lane() / (M * Blocks) * Each;
    V v = {};
    if constexpr (Each == 1) {
        v = b[(block * K + first) * M + column];
    } else {
        T* parts = (T*)&v;
        for (u32 k = 0; k < Each; k++) parts[k] = b[(block * K + first + k) * M + column];
    }
    return v;
}

// Returns the index of register r of a lane: in blocks of M x M.
template <int M, bool doubles> DEVICE static inline u32 result_index(u32 r) {
    u32 column = lane() % M, row, block;
    if constexpr (doubles && M == 16) block = 0, row = 4 * r + lane() / 16;
    else if constexpr (doubles) block = lane() / 4 % 4, row = lane() / 16;
    else if constexpr (M == 32) block = r / 16, row = r % 16 / 4 * 8 + lane() / 32 * 4 + r % 4;
    else if constexpr (M == 16) block = r / 4, row = lane() / 16 * 4 + r % 4;
    else block = lane() / 4, row = r;
    return (block * M + row) * M + column;
}

// An instruction, its shape, operands of a lane, elements in memory and results of a lane.
#define MFMA(name, M, K, blocks, each, operand, element, results, result) \
    GLOBAL void name(const element* a, const element* b, const result* c, result* d) { \
        operand x = left<M, K, blocks, each, operand>(a), y = right<M, K, blocks, each, operand>(b); \
        constexpr bool doubles = sizeof(result) == 8; \
        vec<result, results> sum = {}; \
        for (u32 r = 0; r < results; r++) sum[r] = c[result_index<M, doubles>(r)]; \
        sum = __builtin_amdgcn_##name(x, y, sum, 0, 0, 0); \
        for (u32 r = 0; r < results; r++) d[result_index<M, doubles>(r)] = sum[r]; \
    }

typedef vec<f16, 4> half4;
typedef vec<i16, 4> short4v;
typedef vec<i16, 2> short2v;

MFMA(mfma_f32_32x32x1f32, 32, 1, 2, 1, float, float, 32, float)
MFMA(mfma_f32_16x16x1f32, 16, 1, 4, 1, float, float, 16, float)
MFMA(mfma_f32_4x4x1f32, 4, 1, 16, 1, float, float, 4, float)
MFMA(mfma_f32_32x32x2f32, 32, 2, 1, 1, float, float, 16, float)
MFMA(mfma_f32_16x16x4f32, 16, 4, 1, 1, float, float, 4, float)
MFMA(mfma_f32_32x32x4f16, 32, 4, 2, 4, half4, f16, 32, float)
MFMA(mfma_f32_16x16x4f16, 16, 4, 4, 4, half4, f16, 16, float)
MFMA(mfma_f32_4x4x4f16, 4, 4, 16, 4, half4, f16, 4, float)
MFMA(mfma_f32_32x32x8f16, 32, 8, 1, 4, half4, f16, 16, float)
MFMA(mfma_f32_16x16x16f16, 16, 16, 1, 4, half4, f16, 4, float)
MFMA(mfma_f32_32x32x8bf16_1k, 32, 8, 1, 4, short4v, i16, 16, float)
MFMA(mfma_f32_16x16x16bf16_1k, 16, 16, 1, 4, short4v, i16, 4, float)
MFMA(mfma_f32_4x4x4bf16_1k, 4, 4, 16, 4, short4v, i16, 4, float)
MFMA(mfma_i32_32x32x4i8, 32, 4, 2, 4, i32, i8, 32, i32)
MFMA(mfma_i32_16x16x4i8, 16, 4, 4, 4, i32, i8, 16, i32)
MFMA(mfma_i32_4x4x4i8, 4, 4, 16, 4, i32, i8, 4, i32)
MFMA(mfma_f64_16x16x4f64, 16, 4, 1, 1, double, double, 4, double)
#ifdef __gfx942__
MFMA(mfma_i32_32x32x16_i8, 32, 16, 1, 8, long, i8, 16, i32)
MFMA(mfma_i32_16x16x32_i8, 16, 32, 1, 8, long, i8, 4, i32)
#else
MFMA(mfma_i32_32x32x8i8, 32, 8, 1, 4, i32, i8, 16, i32)
MFMA(mfma_i32_16x16x16i8, 16, 16, 1, 4, i32, i8, 4, i32)
MFMA(mfma_f32_32x32x4bf16, 32, 4, 1, 2, short2v, i16, 16, float)
MFMA(mfma_f32_16x16x8bf16, 16, 8, 1, 2, short2v, i16, 4, float)
#endif

GLOBAL void mfma_f64_4x4x4f64(const double* a, const double* b, const double* c, double* d) {
    double x = left<4, 4, 4, 1, double>(a), y = right<4, 4, 4, 1, double>(b);
    u32 at = result_index<4, true>(0);
    d[at] = __builtin_amdgcn_mfma_f64_4x4x4f64(x, y, c[at], 0, 0, 0);
}

// One 16 x 16 tile of a product of any depth, several wavefronts and accumulators: results stay in registers.
GLOBAL void tiles(const f16* a, const f16* b, float* d, u32 depth, u32 width) {
    u32 row = group_y() * 32, column = group_x() * 32 + local_x() / 64 * 16;
    vec<float, 4> sums[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    for (u32 k = 0; k < depth; k += 16) {
        half4 x[2] = {}, y = {};
        for (u32 j = 0; j < 4; j++) {
            u32 at = k + lane() / 16 * 4 + j;
            for (u32 t = 0; t < 2; t++) x[t][j] = a[(row + 16 * t + lane() % 16) * depth + at];
            y[j] = b[at * width + column + lane() % 16];
        }
        for (u32 t = 0; t < 2; t++) sums[t] = __builtin_amdgcn_mfma_f32_16x16x16f16(x[t], y, sums[t], 0, 0, 0);
    }
    for (u32 t = 0; t < 2; t++)
        for (u32 r = 0; r < 4; r++) d[(row + 16 * t + lane() / 16 * 4 + r) * width + column + lane() % 16] = sums[t][r];
}
#endif

#ifdef HAS_WMMA
#if WAVE == 32
#define WMMA(name) __builtin_amdgcn_##name##_w32
#else
#define WMMA(name) __builtin_amdgcn_##name##_w64
#endif
// Results of a lane, and rows between them.
#define RESULTS (256 / WAVE)
#define APART (WAVE / 16)

// A row of A or a column of B: 16 values in a lane, the same in every group of 16 lanes.
template <class V, class T> DEVICE static inline V row_of(const T* a) {
    V v = {};
    T* parts = (T*)&v;
    for (u32 k = 0; k < 16; k++) parts[k] = a[lane() % 16 * 16 + k];
    return v;
}

template <class V, class T> DEVICE static inline V column_of(const T* b) {
    V v = {};
    T* parts = (T*)&v;
    for (u32 k = 0; k < 16; k++) parts[k] = b[k * 16 + lane() % 16];
    return v;
}

template <bool columns> DEVICE static inline vec<i32, 2> nibbles_of(const i8* m) {
    u32 words[2] = {0, 0};
    for (u32 k = 0; k < 16; k++) {
        u32 value = (u8)(columns ? m[k * 16 + lane() % 16] : m[lane() % 16 * 16 + k]) & 15;
        words[k / 8] |= value << k % 8 * 4;
    }
    return vec<i32, 2>{(i32)words[0], (i32)words[1]};
}

DEVICE static inline u32 result_at(u32 r) { return (APART * r + lane() / 16) * 16 + lane() % 16; }

typedef vec<f16, 16> half16;
typedef vec<i16, 16> short16v;
typedef vec<float, RESULTS> Floats;
typedef vec<i32, RESULTS> Integers;

#define TO_FLOATS(name, type, element) \
    GLOBAL void name(const element* a, const element* b, const float* c, float* d) { \
        Floats sum = {}; \
        for (u32 r = 0; r < RESULTS; r++) sum[r] = c[result_at(r)]; \
        sum = WMMA(name)(row_of<type>(a), column_of<type>(b), sum); \
        for (u32 r = 0; r < RESULTS; r++) d[result_at(r)] = sum[r]; \
    }

TO_FLOATS(wmma_f32_16x16x16_f16, half16, f16)
TO_FLOATS(wmma_f32_16x16x16_bf16, short16v, i16)

// Sums of 16 bits: halves of registers. The low ones by one instruction, the high ones by another, on top of it.
#define TO_HALVES(name, tied, type, sums, element) \
    GLOBAL void name(const element* a, const element* b, const element* c, element* d) { \
        sums sum = {}; \
        for (u32 r = 0; r < RESULTS; r++) sum[2 * r] = sum[2 * r + 1] = c[result_at(r)]; \
        sum = WMMA(tied)(row_of<type>(a), column_of<type>(b), sum, false); \
        sum = WMMA(tied)(row_of<type>(b), column_of<type>(a), sum, true); \
        for (u32 r = 0; r < RESULTS; r++) { \
            d[result_at(r)] = sum[2 * r]; \
            d[256 + result_at(r)] = sum[2 * r + 1]; \
        } \
        sums other = {}; \
        for (u32 r = 0; r < RESULTS; r++) other[2 * r] = other[2 * r + 1] = c[result_at(r)]; \
        other = WMMA(name)(row_of<type>(a), column_of<type>(a), other, false); \
        for (u32 r = 0; r < RESULTS; r++) d[512 + result_at(r)] = other[2 * r]; \
    }

typedef vec<f16, 2 * RESULTS> Halves;
typedef vec<i16, 2 * RESULTS> Shorts;
TO_HALVES(wmma_f16_16x16x16_f16, wmma_f16_16x16x16_f16_tied, half16, Halves, f16)
TO_HALVES(wmma_bf16_16x16x16_bf16, wmma_bf16_16x16x16_bf16_tied, short16v, Shorts, i16)

// Integers: signs of both sides, then saturation.
#define TO_INTEGERS(name, row, column) \
    GLOBAL void name(const i8* a, const i8* b, const i32* c, i32* d) { \
        Integers start = {}; \
        for (u32 r = 0; r < RESULTS; r++) start[r] = c[result_at(r)]; \
        auto x = row; \
        auto y = column; \
        Integers sums[5]; \
        sums[0] = WMMA(name)(false, x, false, y, start, false); \
        sums[1] = WMMA(name)(true, x, false, y, start, false); \
        sums[2] = WMMA(name)(false, x, true, y, start, false); \
        sums[3] = WMMA(name)(true, x, true, y, start, false); \
        sums[4] = WMMA(name)(true, x, true, y, start, true); \
        for (u32 s = 0; s < 5; s++) \
            for (u32 r = 0; r < RESULTS; r++) d[256 * s + result_at(r)] = sums[s][r]; \
    }

typedef vec<i32, 4> int4v;
TO_INTEGERS(wmma_i32_16x16x16_iu8, row_of<int4v>(a), column_of<int4v>(b))
TO_INTEGERS(wmma_i32_16x16x16_iu4, nibbles_of<false>(a), nibbles_of<true>(b))

// Two 16 x 16 tiles for each wavefront of a product of any depth.
GLOBAL void tiles(const f16* a, const f16* b, float* d, u32 depth, u32 width) {
    u32 row = group_y() * 32, wave = local_x() / WAVE;
    for (u32 tile = wave; tile < 2; tile += 128 / WAVE) {
        u32 column = group_x() * 32 + tile * 16;
        Floats sums[2] = {};
        for (u32 t = 0; t < 2; t++)
            for (u32 r = 0; r < RESULTS; r++) sums[t][r] = 0;
        for (u32 k = 0; k < depth; k += 16) {
            half16 x[2] = {}, y = {};
            for (u32 j = 0; j < 16; j++) {
                for (u32 t = 0; t < 2; t++) x[t][j] = a[(row + 16 * t + lane() % 16) * depth + k + j];
                y[j] = b[(k + j) * width + column + lane() % 16];
            }
            for (u32 t = 0; t < 2; t++) sums[t] = WMMA(wmma_f32_16x16x16_f16)(x[t], y, sums[t]);
        }
        for (u32 t = 0; t < 2; t++)
            for (u32 r = 0; r < RESULTS; r++) d[(row + 16 * t) * width + column + result_at(r) / 16 * width + lane() % 16] = sums[t][r];
    }
}
#endif

#if !defined(HAS_MFMA) && !defined(HAS_WMMA)
// The same product without matrix instructions.
GLOBAL void tiles(const f16* a, const f16* b, float* d, u32 depth, u32 width) {
    SHARED f16 rows[32][17];
    SHARED f16 columns[16][33];
    float sums[8];
    u32 x = local_x() % 32, y = local_x() / 32, row = group_y() * 32, column = group_x() * 32;
    for (u32 t = 0; t < 8; t++) sums[t] = 0;
    for (u32 k = 0; k < depth; k += 16) {
        for (u32 j = local_x(); j < 512; j += 128) {
            rows[j / 16][j % 16] = a[(row + j / 16) * depth + k + j % 16];
            columns[j / 32][j % 32] = b[(k + j / 32) * width + column + j % 32];
        }
        barrier();
        for (u32 j = 0; j < 16; j++)
            for (u32 t = 0; t < 8; t++) sums[t] += (float)rows[4 * t + y][j] * (float)columns[j][x];
        barrier();
    }
    for (u32 t = 0; t < 8; t++) d[(row + 4 * t + y) * width + column + x] = sums[t];
}
#endif
