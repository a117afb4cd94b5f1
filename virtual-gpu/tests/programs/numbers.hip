// Small floats, dot products, instructions for bits and bytes, approximations, 64-bit integers.

typedef vec<f16, 2> half2;
typedef vec<i16, 2> short2v;
typedef vec<float, 2> float2v;

GLOBAL void halves(const f16* left, const f16* right, u16* out) {
    u32 i = group_x() * 64 + local_x();
    f16 a = left[i], b = right[i], r[16];
    r[0] = a + b;
    r[1] = a - b;
    r[2] = a * b;
    r[3] = a / b;
    r[4] = __builtin_fmaf16(a, b, b);
    r[5] = __builtin_sqrtf16(__builtin_fabsf16(a));
    r[6] = __builtin_floorf16(a);
    r[7] = __builtin_ceilf16(a);
    r[8] = __builtin_rintf16(b);
    r[9] = __builtin_truncf16(b);
    r[10] = __builtin_fminf16(a, b);
    r[11] = __builtin_fmaxf16(a, b);
    r[12] = __builtin_copysignf16(a, b);
    r[13] = __builtin_canonicalizef16(a);
    r[14] = a < b ? (f16)1 : a >= b ? (f16)2 : (f16)3;
    r[15] = -a;
    for (u32 k = 0; k < 16; k++) out[16 * i + k] = bits_as<u16>(r[k]);
}

GLOBAL void bfloats(const bf16* left, const bf16* right, u16* out) {
    u32 i = group_x() * 64 + local_x();
    bf16 a = left[i], b = right[i];
    u16* to = out + 8 * i;
    to[0] = bits_as<u16>((bf16)(a + b));
    to[1] = bits_as<u16>((bf16)(a - b));
    to[2] = bits_as<u16>((bf16)(a * b));
    to[3] = bits_as<u16>((bf16)(a / b));
    to[4] = a < b ? 1 : a == b ? 2 : a > b ? 3 : 4;
    bf16 larger = a > b ? a : b;
    to[5] = bits_as<u16>((bf16)(larger * (bf16)2.0f));
    float product = (float)a * (float)b;
    to[6] = (u16)(bits_as<u32>(product) >> 16);
    to[7] = (u16)(bits_as<u32>(product));
}

// Pairs of halves, of shorts and of floats.
GLOBAL void pairs(const u32* left, const u32* right, u32* out) {
    u32 i = group_x() * 64 + local_x();
    half2 a = bits_as<half2>(left[i]), b = bits_as<half2>(right[i]);
    short2v s = bits_as<short2v>(left[i]), t = bits_as<short2v>(right[i]);
    u32* to = out + 16 * i;
    to[0] = bits_as<u32>(__builtin_elementwise_fma(a, b, a));
    to[1] = bits_as<u32>((half2)(a.yx * b.xx));
    to[2] = bits_as<u32>((half2)(-a + b.yy));
    to[3] = bits_as<u32>((short2v)(s + t));
    to[4] = bits_as<u32>((short2v)(s - t.yx));
    to[5] = bits_as<u32>((short2v)(s * t));
    to[6] = bits_as<u32>((short2v)(s << (t & 15)));
    to[7] = bits_as<u32>((short2v)(s >> (t & 15)));
    to[8] = bits_as<u32>(__builtin_elementwise_max(s, t));
    to[9] = bits_as<u32>(__builtin_elementwise_min(bits_as<vec<u16, 2>>(s), bits_as<vec<u16, 2>>(t)));
    to[10] = bits_as<u32>(__builtin_elementwise_add_sat(s, t));
    to[11] = bits_as<u32>(__builtin_elementwise_sub_sat(bits_as<vec<u16, 2>>(s), bits_as<vec<u16, 2>>(t)));
    float2v f = {(float)s.x, (float)s.y}, g = {(float)t.x * 0.5f, (float)t.y * 0.25f};
    float2v h = __builtin_elementwise_fma(f, g, f.yx) + g.yx * f;
    to[12] = bits_as<u32>(h.x);
    to[13] = bits_as<u32>(h.y);
    to[14] = bits_as<u32>((float)a.x * (float)b.y + (float)(i32)s.x); // mixed precision
    to[15] = bits_as<u32>(half2{(f16)__builtin_fmaf((float)a.x, (float)b.x, 0.5f), (f16)((float)a.y * 3.0f)});
}

template <int bits> DEVICE static inline i32 signed_part(u32 word, u32 k) { return (i32)(word << (32 - bits * (k + 1))) >> (32 - bits); }
template <int bits> DEVICE static inline u32 part(u32 word, u32 k) { return word >> bits * k & ((1u << bits) - 1); }

// Products of bytes, nibbles and shorts: the target's own instruction where it has one.
GLOBAL void dot_products(const u32* left, const u32* right, const i32* sums, u32* out) {
    u32 i = group_x() * 64 + local_x(), a = left[i], b = right[i];
    i32 c = sums[i];
    u32* to = out + 8 * i;
    i32 bytes = c, nibbles = c, shorts = c, mixed = c;
    u32 ubytes = (u32)c, unibbles = (u32)c, ushorts = (u32)c;
    for (u32 k = 0; k < 2; k++) {
        shorts += signed_part<16>(a, k) * signed_part<16>(b, k);
        ushorts += part<16>(a, k) * part<16>(b, k);
    }
    for (u32 k = 0; k < 4; k++) {
        bytes += signed_part<8>(a, k) * signed_part<8>(b, k);
        ubytes += part<8>(a, k) * part<8>(b, k);
        mixed += signed_part<8>(a, k) * (i32)part<8>(b, k);
    }
    for (u32 k = 0; k < 8; k++) {
        nibbles += signed_part<4>(a, k) * signed_part<4>(b, k);
        unibbles += part<4>(a, k) * part<4>(b, k);
    }
    half2 h = {(f16)(i32)(a & 63), (f16)(i32)(a >> 26)}, g = {(f16)(i32)(b & 63), (f16)-(i32)(b >> 26)};
    float halves = (float)h.x * (float)g.x + (float)h.y * (float)g.y + (float)(c >> 16);
#if defined(__gfx906__) || defined(HAS_MFMA)
    bytes = __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
    nibbles = __builtin_amdgcn_sdot8((i32)a, (i32)b, c, false);
    shorts = __builtin_amdgcn_sdot2(bits_as<short2v>(a), bits_as<short2v>(b), c, false);
    ushorts = __builtin_amdgcn_udot2(bits_as<vec<u16, 2>>(a), bits_as<vec<u16, 2>>(b), (u32)c, false);
#endif
#if defined(HAS_WMMA)
    bytes = __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
    nibbles = __builtin_amdgcn_sudot8(true, (i32)a, true, (i32)b, c, false);
    mixed = __builtin_amdgcn_sudot4(true, (i32)a, false, (i32)b, c, false);
#endif
#if !defined(__gfx900__)
    ubytes = __builtin_amdgcn_udot4(a, b, (u32)c, false);
    unibbles = __builtin_amdgcn_udot8(a, b, (u32)c, false);
    halves = __builtin_amdgcn_fdot2(h, g, (float)(c >> 16), false);
#endif
    to[0] = (u32)bytes;
    to[1] = (u32)nibbles;
    to[2] = (u32)shorts;
    to[3] = (u32)mixed;
    to[4] = ubytes;
    to[5] = unibbles;
    to[6] = ushorts;
    to[7] = bits_as<u32>(halves);
}

GLOBAL void bytes_and_bits(const u32* left, const u32* right, u32* out) {
    u32 i = group_x() * 64 + local_x(), a = left[i], b = right[i], c = a * 5 + b;
    u32* to = out + 16 * i;
    to[0] = __builtin_amdgcn_sad_u8(a, b, c);
    to[1] = __builtin_amdgcn_sad_hi_u8(a, b, c);
    to[2] = __builtin_amdgcn_sad_u16(a, b, c);
    to[3] = __builtin_amdgcn_msad_u8(a, b, c);
    to[4] = __builtin_amdgcn_lerp(a, b, c);
    to[5] = __builtin_amdgcn_perm(a, b, c & 0x07070707);
    to[6] = __builtin_amdgcn_alignbit(a, b, c & 31);
    to[7] = __builtin_amdgcn_alignbyte(a, b, c & 3);
    to[8] = __builtin_amdgcn_ubfe(a, b & 31, c & 31);
    to[9] = (u32)__builtin_amdgcn_sbfe((i32)a, b & 31, c & 31);
    u64 quads = __builtin_amdgcn_qsad_pk_u16_u8((u64)a << 32 | b, c, ((u64)b << 32 | a) & 0x0fff0fff0fff0fffull);
    to[10] = (u32)quads;
    to[11] = (u32)(quads >> 32);
    to[12] = (a & b) | (~a & c);                              // bfi
    to[13] = a ^ (b + c) ^ __builtin_rotateleft32(a + b, 7);  // add3, xad, alignbit
    to[14] = ((a << 3) + b) ^ ((a << 5) | c) ^ ((a & b) | c); // lshl_add, lshl_or, and_or
    i32 low = (i32)a < (i32)b ? (i32)a : (i32)b, high = (i32)a < (i32)b ? (i32)b : (i32)a;
    to[15] = (u32)((i32)c < low ? low : (i32)c > high ? high : (i32)c); // med3
}

// Puzzles with bits.
GLOBAL void bit_tricks(const u32* in, u64* out) {
    u32 i = group_x() * 64 + local_x(), x = in[i], y = in[i] * 0x85ebca6bu ^ x >> 13;
    u64* to = out + 8 * i;
    u64 spread[2];
    for (u32 k = 0; k < 2; k++) {
        u64 v = k ? y : x;
        v = (v | v << 16) & 0x0000ffff0000ffffull;
        v = (v | v << 8) & 0x00ff00ff00ff00ffull;
        v = (v | v << 4) & 0x0f0f0f0f0f0f0f0full;
        v = (v | v << 2) & 0x3333333333333333ull;
        spread[k] = (v | v << 1) & 0x5555555555555555ull;
    }
    to[0] = spread[0] | spread[1] << 1; // Morton order
    u32 gray = x ^ x >> 1, back = gray;
    for (u32 s = 1; s < 32; s *= 2) back ^= back >> s;
    to[1] = (u64)gray << 32 | back;
    u64 product = 0; // without carries
    for (u32 m = y; m; m &= m - 1) product ^= (u64)x << __builtin_ctz(m);
    to[2] = product;
    u32 lowest = x & (0u - x), ripple = x + lowest; // next number with as many ones
    to[3] = lowest && ripple ? ripple | ((x ^ ripple) / lowest) >> 2 : 0;
    u32 log = 0;
    for (u32 v = x; v > 9; v /= 10) log++;
    to[4] = (u64)log << 32 | (x ? 31 - __builtin_clz(x) : 99) << 8 | __builtin_parity(x);
    i32 s = (i32)x;
    to[5] = (u64)(u32)(s / 16) << 32 | (u32)(s % 16);
    u32 root = 0;
    for (u32 bit = 1u << 15; bit; bit >>= 1)
        if ((u64)(root | bit) * (root | bit) <= x) root |= bit;
    to[6] = root;
    u64 selected = 0, at = 0; // the bits of y where x has ones, packed
    for (u32 m = x; m; m &= m - 1) selected |= (u64)(y >> __builtin_ctz(m) & 1) << at++;
    to[7] = selected;
}

DEVICE static u64 times(u64 a, u64 b, u64 m) {
    u64 sum = 0;
    for (; b; b >>= 1) {
        if (b & 1) sum = sum >= m - a ? sum - (m - a) : sum + a;
        a = a >= m - a ? a - (m - a) : a + a;
    }
    return sum;
}

DEVICE static u64 power(u64 base, u64 exponent, u64 m) {
    u64 result = 1 % m;
    for (base %= m; exponent; exponent >>= 1, base = times(base, base, m))
        if (exponent & 1) result = times(result, base, m);
    return result;
}

// Primes by Miller and Rabin's test, greatest common divisors, and inverses modulo 2^64.
GLOBAL void number_theory(const u64* in, u64* out) {
    u32 i = group_x() * 64 + local_x();
    u64 n = in[i];
    bool prime = n > 1 && n < 3215031751 && (n & 1 || n == 2);
    const u64 witnesses[4] = {2, 3, 5, 7}; // enough below 3215031751
    for (u32 w = 0; prime && n > 7 && w < 4; w++) {
        u64 d = n - 1;
        u32 twos = (u32)__builtin_ctzll(d);
        u64 x = power(witnesses[w], d >> twos, n);
        bool passes = x == 1 || x == n - 1;
        for (u32 k = 1; !passes && k < twos; k++) {
            x = times(x, x, n);
            passes = x == n - 1;
        }
        prime = passes;
    }
    u64 a = n, b = 1081080 + i;
    while (b) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    u64 odd = n | 1, inverse = odd;
    for (u32 k = 0; k < 6; k++) inverse *= 2 - odd * inverse;
    out[3 * i] = prime;
    out[3 * i + 1] = a;
    out[3 * i + 2] = inverse;
}

// Elementary functions and approximations.
GLOBAL void functions(const float* in, float* out, double* out64) {
    u32 i = group_x() * 64 + local_x();
    float x = in[i], size = __builtin_fabsf(x);
    float* to = out + 16 * i;
    to[0] = __builtin_expf(x);
    to[1] = __builtin_exp2f(x);
    to[2] = __builtin_logf(size);
    to[3] = __builtin_log2f(size);
    to[4] = __builtin_log10f(size);
    to[5] = __builtin_sqrtf(size);
    to[6] = __builtin_amdgcn_sinf(x);
    to[7] = __builtin_amdgcn_cosf(x);
    to[8] = __builtin_amdgcn_rcpf(x);
    to[9] = __builtin_amdgcn_rsqf(size);
    to[10] = __builtin_amdgcn_fractf(x);
    to[11] = __builtin_amdgcn_frexp_mantf(x);
    to[12] = (float)__builtin_amdgcn_frexp_expf(x);
    to[13] = __builtin_amdgcn_ldexpf(x, (i32)(i % 40) - 20);
    to[14] = __builtin_amdgcn_fmed3f(x, 1.0f, -2.0f);
    to[15] = 1.0f / x;
    double y = (double)x * 1.25;
    double* to64 = out64 + 8 * i;
    to64[0] = __builtin_sqrt(__builtin_fabs(y));
    to64[1] = 1.0 / y;
    to64[2] = __builtin_amdgcn_fract(y);
    to64[3] = __builtin_amdgcn_frexp_mant(y) * (double)__builtin_amdgcn_frexp_exp(y);
    to64[4] = __builtin_amdgcn_ldexp(y, (i32)(i % 900) - 450);
    to64[5] = __builtin_amdgcn_rcp(y) * y;
    to64[6] = __builtin_amdgcn_rsq(__builtin_fabs(y)) * __builtin_sqrt(__builtin_fabs(y));
    to64[7] = __builtin_fmax(y, -0.5) - __builtin_fmin(y, 0.5);
}

// Kinds of numbers, one bit a class.
GLOBAL void classes(const u32* in, u32* out) {
    u32 i = group_x() * 64 + local_x();
    float x = bits_as<float>(in[i]);
    f16 h = bits_as<f16>((u16)(in[i] >> 16));
    double y = bits_as<double>((u64)in[i] << 32);
    u32 found[3] = {0, 0, 0};
#define CLASS(k) \
    found[0] |= (u32)__builtin_amdgcn_classf(x, 1 << k) << k; \
    found[1] |= (u32)__builtin_amdgcn_classh(h, 1 << k) << k; \
    found[2] |= (u32)__builtin_amdgcn_class(y, 1 << k) << k;
    CLASS(0) CLASS(1) CLASS(2) CLASS(3) CLASS(4) CLASS(5) CLASS(6) CLASS(7) CLASS(8) CLASS(9)
    for (u32 k = 0; k < 3; k++) out[4 * i + k] = found[k];
    out[4 * i + 3] = __builtin_isnan(x) | __builtin_isinf(x) << 1 | __builtin_isfinite(h) << 2 | __builtin_isnormal(y) << 3;
}
