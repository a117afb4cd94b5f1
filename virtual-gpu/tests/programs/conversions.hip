// Conversions from each type to all others, saturating as far as the target type is an integer.

template <class To> DEVICE static inline u64 raw(To value) {
    if constexpr (sizeof(To) == 8) return bits_as<u64>(value);
    else if constexpr (sizeof(To) == 4) return bits_as<u32>(value);
    else if constexpr (sizeof(To) == 2) return bits_as<u16>(value);
    else return bits_as<u8>(value);
}

template <class T> struct Limits;
template <> struct Limits<i8> { static constexpr double low = -128.0, above = 128.0; };
template <> struct Limits<u8> { static constexpr double low = 0.0, above = 256.0; };
template <> struct Limits<i16> { static constexpr double low = -32768.0, above = 32768.0; };
template <> struct Limits<u16> { static constexpr double low = 0.0, above = 65536.0; };
template <> struct Limits<i32> { static constexpr double low = -2147483648.0, above = 2147483648.0; };
template <> struct Limits<u32> { static constexpr double low = 0.0, above = 4294967296.0; };
template <> struct Limits<i64> { static constexpr double low = -9223372036854775808.0, above = 9223372036854775808.0; };
template <> struct Limits<u64> { static constexpr double low = 0.0, above = 18446744073709551616.0; };

// Floats to integers: C++ defines what is in range, the rest is 0 for NaN, and the nearest integer.
template <class To, class From> DEVICE static inline u64 to_integer(From value) {
    constexpr To most = (To)-1 < 0 ? (To)((1ull << (8 * sizeof(To) - 1)) - 1) : (To)-1;
    // Halves are compared as floats: their largest number is less than most limits.
    using Wide = __typeof__(value + 0.0f);
    Wide wide = value;
    if (wide != wide) return 0;
    if (wide <= (Wide)Limits<To>::low) return raw((To)Limits<To>::low);
    if (wide >= (Wide)Limits<To>::above) return raw(most);
    return raw((To)value);
}

template <class From> DEVICE static inline void integers(From value, u64* out) {
    out[0] = raw((i8)value);
    out[1] = raw((u8)value);
    out[2] = raw((i16)value);
    out[3] = raw((u16)value);
    out[4] = raw((i32)value);
    out[5] = raw((u32)value);
    out[6] = raw((i64)value);
    out[7] = raw((u64)value);
}

template <class From> DEVICE static inline void saturated(From value, u64* out) {
    out[0] = to_integer<i8>(value);
    out[1] = to_integer<u8>(value);
    out[2] = to_integer<i16>(value);
    out[3] = to_integer<u16>(value);
    out[4] = to_integer<i32>(value);
    out[5] = to_integer<u32>(value);
    out[6] = to_integer<i64>(value);
    out[7] = to_integer<u64>(value);
}

// Bfloats become other floats through single precision, which holds each of them.
template <class T> DEVICE static inline T single(T value) { return value; }
DEVICE static inline float single(bf16 value) { return value; }

template <class From> DEVICE static inline void floats(From value, u64* out) {
    out[8] = raw((f16)single(value));
    out[9] = raw((bf16)(float)value);
    out[10] = raw((float)value);
    out[11] = raw((double)value);
}

// Twelve results for each value.
#define FROM_INTEGER(type) \
    GLOBAL void from_##type(const type* in, u64* out) { \
        u32 i = group_x() * 64 + local_x(); \
        integers(in[i], out + 12 * i); \
        floats(in[i], out + 12 * i); \
    }
#define FROM_FLOAT(type) \
    GLOBAL void from_##type(const type* in, u64* out) { \
        u32 i = group_x() * 64 + local_x(); \
        saturated(in[i], out + 12 * i); \
        floats(in[i], out + 12 * i); \
    }

FROM_INTEGER(i8)
FROM_INTEGER(u8)
FROM_INTEGER(i16)
FROM_INTEGER(u16)
FROM_INTEGER(i32)
FROM_INTEGER(u32)
FROM_INTEGER(i64)
FROM_INTEGER(u64)
FROM_FLOAT(f16)
FROM_FLOAT(bf16)
FROM_FLOAT(float)
FROM_FLOAT(double)

// Directions of rounding, as integers and as floats.
GLOBAL void roundings(const float* in, const double* in64, i32* out, double* out64) {
    u32 i = group_x() * 64 + local_x();
    float x = in[i];
    i32* to = out + 8 * i;
    to[0] = (i32)__builtin_floorf(x);
    to[1] = (i32)__builtin_ceilf(x);
    to[2] = (i32)__builtin_truncf(x);
    to[3] = (i32)__builtin_rintf(x);
    to[4] = (i32)__builtin_roundf(x);
    to[5] = (i32)__builtin_roundevenf(x);
    to[6] = (i32)(f16)x;
    to[7] = (i32)__builtin_rintf16((f16)x);
    double y = in64[i];
    double* to64 = out64 + 6 * i;
    to64[0] = __builtin_floor(y);
    to64[1] = __builtin_ceil(y);
    to64[2] = __builtin_trunc(y);
    to64[3] = __builtin_rint(y);
    to64[4] = __builtin_round(y);
    to64[5] = __builtin_copysign(y, (double)x);
}

// Packed and normalising conversions of the instruction set.
GLOBAL void packed_conversions(const vec<float, 2>* in, u32* out) {
    u32 i = group_x() * 64 + local_x();
    vec<float, 2> v = in[i];
    u32* to = out + 6 * i;
    to[0] = bits_as<u32>(__builtin_amdgcn_cvt_pkrtz(v.x, v.y));
    to[1] = bits_as<u32>(__builtin_amdgcn_cvt_pknorm_i16(v.x, v.y));
    to[2] = bits_as<u32>(__builtin_amdgcn_cvt_pknorm_u16(v.x, v.y));
    to[3] = bits_as<u32>(__builtin_amdgcn_cvt_pk_i16((i32)(v.x * 100000.0f), (i32)(v.y * 100000.0f)));
    to[4] = bits_as<u32>(__builtin_amdgcn_cvt_pk_u16((u32)(v.x * v.x * 100000.0f), (u32)(v.y * v.y * 100000.0f)));
    to[5] = __builtin_amdgcn_cvt_pk_u8_f32(__builtin_truncf(v.x * 300.0f), 2, bits_as<u32>(v.y));
}
