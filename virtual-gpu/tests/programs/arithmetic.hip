// Arithmetic that one instruction cannot do: what the compiler makes of it has to be right to the last bit.

struct Wide { u64 r[20]; };

GLOBAL void integers64(const u64* left, const u64* right, Wide* out, u32 count) {
    u32 i = group_x() * 64 + local_x();
    if (i >= count) return;
    u64 a = left[i], b = right[i];
    i64 sa = (i64)a, sb = (i64)b;
    Wide w;
    w.r[0] = a + b;
    w.r[1] = a - b;
    w.r[2] = a * b;
    w.r[3] = b ? a / b : ~0ull;
    w.r[4] = b ? a % b : a;
    bool odd = sb == 0 || (sa == (i64)(1ull << 63) && sb == -1);
    w.r[5] = odd ? 0 : (u64)(sa / sb);
    w.r[6] = odd ? 0 : (u64)(sa % sb);
    w.r[7] = a << (b & 63);
    w.r[8] = a >> (b & 63);
    w.r[9] = (u64)(sa >> (b & 63));
    w.r[10] = (u64)(((unsigned __int128)a * b) >> 64);
    w.r[11] = (u64)(((__int128)sa * sb) >> 64);
    w.r[12] = a ? (u64)__builtin_clzll(a) : 64;
    w.r[13] = a ? (u64)__builtin_ctzll(a) : 64;
    w.r[14] = (u64)__builtin_popcountll(a);
    w.r[15] = __builtin_bitreverse64(a);
    w.r[16] = __builtin_bswap64(a);
    w.r[17] = __builtin_rotateleft64(a, b & 63);
    w.r[18] = sa < sb ? (u64)sa : (u64)sb;
    u64 sum;
    w.r[19] = __builtin_add_overflow(a, b, &sum) | (u64)__builtin_sub_overflow(sa, sb, (i64*)&sum) << 1;
    out[i] = w;
}

struct Narrow { u32 r[20]; };

GLOBAL void integers32(const u32* left, const u32* right, Narrow* out, u32 count) {
    u32 i = group_x() * 64 + local_x();
    if (i >= count) return;
    u32 a = left[i], b = right[i];
    i32 sa = (i32)a, sb = (i32)b;
    Narrow n;
    n.r[0] = b ? a / b : ~0u;
    n.r[1] = b ? a % b : a;
    bool odd = sb == 0 || (sa == (i32)(1u << 31) && sb == -1);
    n.r[2] = odd ? 0 : (u32)(sa / sb);
    n.r[3] = odd ? 0 : (u32)(sa % sb);
    n.r[4] = a * b;
    n.r[5] = (u32)(((u64)a * b) >> 32);
    n.r[6] = (u32)(((i64)sa * sb) >> 32);
    n.r[7] = a / 7u;
    n.r[8] = (u32)(sa / -10);
    n.r[9] = (u32)__builtin_popcount(a) + (a ? (u32)__builtin_clz(a) : 32) * 64;
    n.r[10] = __builtin_bitreverse32(a);
    n.r[11] = __builtin_rotateright32(a, b & 31);
    n.r[12] = (u32)(i32)(i8)a + (u32)(i32)(i16)b;
    n.r[13] = (a & 0xff) * (b & 0xff) + ((a >> 8) & 0xff) * ((b >> 8) & 0xff);
    n.r[14] = (u16)(a + b) | (u32)(u16)((a & 0xffff) * (b & 0xffff)) << 16;
    n.r[15] = (u8)((u8)a / ((u8)b | 1)) | (u32)(u8)((i8)a / (i8)((i8)b | 1)) << 8 | (u32)(u16)((u16)a / ((u16)b | 1)) << 16;
    n.r[16] = __builtin_elementwise_add_sat(a, b);
    n.r[17] = (u32)__builtin_elementwise_sub_sat(sa, sb);
    n.r[18] = sa > sb ? a - b : b - a;
    n.r[19] = __builtin_bswap32(a) ^ ((a > b) + 2 * (sa >= sb) + 4 * (a == b));
    out[i] = n;
}

struct Floats { u64 r[16]; };

DEVICE static inline u64 bits(float x) { return __builtin_bit_cast(u32, x); }
DEVICE static inline u64 bits(double x) { return __builtin_bit_cast(u64, x); }

GLOBAL void floats(const double* left, const double* right, Floats* out, u32 count) {
    u32 i = group_x() * 64 + local_x();
    if (i >= count) return;
    double a = left[i], b = right[i];
    float fa = (float)a, fb = (float)b;
    Floats f;
    f.r[0] = bits(a / b);
    f.r[1] = bits(__builtin_sqrt(__builtin_fabs(a)));
    f.r[2] = bits(__builtin_fma(a, b, a));
    f.r[3] = bits(a * b - b);
    f.r[4] = bits(fa / fb);
    f.r[5] = bits(__builtin_sqrtf(__builtin_fabsf(fa)));
    f.r[6] = bits(__builtin_fmaf(fa, fb, fa));
    f.r[7] = bits(fa * fb + fb);
    f.r[8] = bits(__builtin_floor(a)) ^ bits(__builtin_ceil(b));
    f.r[9] = bits(__builtin_rint(a)) ^ bits(__builtin_trunc(b));
    f.r[10] = bits(__builtin_rintf(fa)) ^ (bits(__builtin_truncf(fb)) << 32);
    f.r[11] = (u64)(i64)(a > -1e18 && a < 1e18 ? a : 0.0);
    f.r[12] = (u64)(a > 0 && a < 1.8e19 ? a : 0.0);
    f.r[13] = bits((float)(i64)f.r[11]) | bits((float)f.r[12]) << 32;
    f.r[14] = bits((double)(i64)(f.r[11] * 3)) ^ bits((double)f.r[12]);
    f.r[15] = (a < b) | (a <= b) << 1 | (a == b) << 2 | (fa > fb) << 3 | (fa != fb) << 4 | (u64)__builtin_isunordered(a, b) << 5
        | bits(__builtin_fminf(fa, fb)) << 32;
    out[i] = f;
}

typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef short short2v __attribute__((ext_vector_type(2)));
struct Packed { half2 r[8]; };

GLOBAL void packed_half(const half2* left, const half2* right, Packed* out, u32 count) {
    u32 i = group_x() * 64 + local_x();
    if (i >= count) return;
    half2 a = left[i], b = right[i];
    Packed p;
    p.r[0] = a + b;
    p.r[1] = a * b;
    p.r[2] = a - b.yx;
    p.r[3] = __builtin_elementwise_max(a, b);
    p.r[4] = __builtin_elementwise_min(a, b);
    p.r[5] = half2{(_Float16)((float)a.x * 3.0f), (_Float16)(int)(a.y > 100 || a.y < -100 ? (_Float16)0 : a.y)};
    p.r[6] = -a;
    short2v s = __builtin_bit_cast(short2v, a) + __builtin_bit_cast(short2v, b);
    p.r[7] = __builtin_bit_cast(half2, (short2v)(s * __builtin_bit_cast(short2v, b)));
    out[i] = p;
}
