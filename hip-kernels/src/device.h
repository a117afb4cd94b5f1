// Functions and types that kernels need of a device, from compiler builtins only: no SDK header, no device library, no C++
// library.
//
// The same text is compiled by clang for AMD processors (`-x hip -nogpuinc -nogpulib`), by hipcc, by hiprtc, and by clang for
// PTX (`-x cuda -nocudainc -nocudalib`). Only plain C types are used, because the run-time compilers define no others. Options
// that matter for results are in `hip_kernels::OPTIONS`. The important one is `-ffp-contract=on`: a product and a sum are fused
// within one expression, and nowhere else.
//
// Unaligned access: AMD's memory path executes loads and stores of up to 16 bytes at any address in one instruction (the
// runtime enables the unaligned access mode), so the wide types here have only the alignment of their elements. For PTX the
// compiler splits such an access.
#pragma once

#if defined(__AMDGCN__)
#define DEVICE_AMD 1
#elif defined(__NVPTX__)
#define DEVICE_AMD 0
#else
#error "device.h is for AMD and PTX code"
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Float16 f16;

typedef float f32x2 __attribute__((ext_vector_type(2), aligned(4)));
typedef float f32x4 __attribute__((ext_vector_type(4), aligned(4)));
typedef u32 u32x2 __attribute__((ext_vector_type(2), aligned(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4), aligned(4)));
typedef i16 i16x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x4 __attribute__((ext_vector_type(4), aligned(2)));
typedef u16 u16x8 __attribute__((ext_vector_type(8), aligned(2)));
// In LDS, 8 and 16 bytes need their full alignment to be one instruction.
typedef float lds_f32x4 __attribute__((ext_vector_type(4), aligned(16)));
typedef u32 lds_u32x4 __attribute__((ext_vector_type(4), aligned(16)));
typedef u32 lds_u32x2 __attribute__((ext_vector_type(2), aligned(8)));

// A function of a kernel. Everything is inlined: there is no stack.
#define DEVICE static __attribute__((device, always_inline, unused)) inline
// The same for a member function and, after its captures, for a lambda.
#define INLINED __attribute__((device, always_inline))
// An array in LDS.
#define LDS __attribute__((shared))
// Type of the objects of a pointer into LDS that is kept in a structure. Without it the compiler may find out too late that the
// pointer does not point to memory, and use hidden arguments (gfx803).
#define IN_LDS __attribute__((address_space(3)))
// The same for pointers to memory that were read from the arguments, and for pointers to the arguments (AMD).
#define IN_GLOBAL __attribute__((address_space(1)))
#define IN_CONSTANT __attribute__((address_space(4)))
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")

// A kernel for work-groups of exactly `threads` threads. Without the exact size, registers are allocated for 1024 threads. No
// kernel reads its block or grid size, so none has hidden arguments.
#if DEVICE_AMD
#define KERNEL(threads) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void
// Before KERNEL: limits the registers so that a SIMD holds this many wavefronts.
#define WAVES_PER_SIMD(waves) __attribute__((amdgpu_waves_per_eu(waves)))
#else
#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
#define WAVES_PER_SIMD(waves)
// A kernel whose registers allow this many work-groups on a multiprocessor.
#define KERNEL_GROUPS(threads, groups) extern "C" __attribute__((global, launch_bounds(threads, groups))) void
// LDS of the launch, in addition to the LDS that a kernel declares.
extern LDS __attribute__((aligned(16))) unsigned char dynamic_lds[];
#endif

// Threads of a wavefront: the compiler's default for each processor.
#if defined(__GFX7__) || defined(__GFX8__) || defined(__GFX9__)
#define WAVE 64
#else
#define WAVE 32
#endif

#if DEVICE_AMD
DEVICE u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 group_z() { return __builtin_amdgcn_workgroup_id_z(); }
// Moves a value that is the same in all lanes of a wavefront to a scalar register.
DEVICE u32 uniform(u32 x) { return __builtin_amdgcn_readfirstlane(x); }
#else
DEVICE u32 thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 group_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 group_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 group_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE u32 uniform(u32 x) { return x; }
#endif
DEVICE u32 lane_id() { return thread_id() % WAVE; }
DEVICE u32 wave_id() { return uniform(thread_id() / WAVE); }

// Waits for all threads of the work-group; afterwards their writes to LDS and to memory are visible.
DEVICE void memory_barrier() {
#if DEVICE_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    __nvvm_bar_sync(0);
#endif
}

// The same for LDS only. With a compiler that has fences of one address space (clang 19), this is s_waitcnt lgkmcnt(0) and
// s_barrier on AMD's processors. Loads and stores of memory stay in flight across it, but up to gfx908 the compiler waits for
// them before any s_barrier. PTX's bar.sync orders memory too, so a kernel that then reads memory written by other threads
// would work there and nowhere else. Such a kernel must use memory_barrier(); `tests/barriers.rs` finds those that do not.
DEVICE void barrier() {
#if DEVICE_AMD && __clang_major__ >= 19
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
    memory_barrier();
#endif
}

// Adds one to a counter that all work-groups of the device share; at `last` it starts again at 0. Returns the old value. What
// other work-groups released before they counted is visible afterwards. On NVIDIA's processors this also releases what the
// threads of this work-group wrote before their last barrier.
DEVICE u32 count_up(u32 *counter, u32 last) {
#if DEVICE_AMD
    u32 before = __builtin_amdgcn_atomic_inc32(counter, last, __ATOMIC_RELAXED, "agent");
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#else
    __nvvm_membar_gl();
    u32 before = __nvvm_atom_inc_gen_ui(counter, last);
    __nvvm_membar_gl();
#endif
    return before;
}

// No instruction is moved across this line: the loads before it are in flight together when the arithmetic after it starts.
// Without it the compiler delays loads to save registers, and their latencies add up. NVIDIA's driver compiles PTX; for it only
// a barrier of the wavefront's active lanes keeps loads in place.
#if DEVICE_AMD && __has_builtin(__builtin_amdgcn_sched_barrier)
#define LOADS_FIRST() __builtin_amdgcn_sched_barrier(0)
#elif DEVICE_AMD
#define LOADS_FIRST() ((void)0)
#else
#define LOADS_FIRST() lanes_barrier()
DEVICE void lanes_barrier() {
    u32 here;
    __asm__ volatile("activemask.b32 %0;" : "=r"(here));
    __nvvm_bar_warp_sync(here);
}
#endif

// Code before this line is completed before the code after it. Otherwise several unrolled iterations would need registers at
// the same time. (PTX has 255 registers and gains from interleaved iterations.)
#if DEVICE_AMD
#define ONE_BY_ONE() LOADS_FIRST()
#else
#define ONE_BY_ONE() ((void)0)
#endif

// Returns true in the last of `count` work-groups that call it; that one then sees what the others have written. The counter is
// 0 before the first call and after the last. All threads take part; `scratch` is a word of LDS.
//
// On AMD's processors every thread releases its own writes before the barrier: on gfx90a, gfx942 and on gfx10 in CU mode a
// barrier does not wait for writes, and a release by thread 0 waits for those of its own wavefront only.
DEVICE bool is_last_group(u32 *counter, u32 count, u32 *scratch) {
    // Nothing but waits stands in front of the barrier, which a test of the machine code checks.
    ONE_BY_ONE();
#if DEVICE_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
    memory_barrier();
    ONE_BY_ONE();
    if (thread_id() == 0) *scratch = count_up(counter, count - 1);
    memory_barrier();
    return uniform(*scratch) == count - 1;
}

// Returns its argument. In a loop this keeps the conversion of a lane's 32-bit offset next to the loads that use it, where it
// is part of their addressing (scalar base and 32-bit lane offset). If it were moved out of the loop, each address would take
// two more instructions and two registers.
DEVICE u32 offset_here(u32 x) {
#if DEVICE_AMD
    __asm__ volatile("" : "+v"(x));
#endif
    return x;
}

// Returns its argument, an address that is the same in all lanes. In a loop this keeps the addition of a constant next to the
// loads that use it, which have it for nothing.
DEVICE const u8 *address_here(const u8 *at) {
#if DEVICE_AMD
    auto global = (const IN_GLOBAL u8 *)at;
    __asm__ volatile("" : "+s"(global));
    at = (const u8 *)global;
#endif
    return at;
}

// Returns its argument. The compiler then extracts each byte with one instruction (v_cvt_f32_ubyte0 .. 3). If it knew how the
// word was computed, it would derive each byte from the inputs, with two.
DEVICE u32 as_it_is(u32 x) {
#if DEVICE_AMD
    __asm__("" : "+v"(x));
#endif
    return x;
}

DEVICE u32 minimum(u32 a, u32 b) { return a < b ? a : b; }
DEVICE float bits_f32(u32 x) { return __builtin_bit_cast(float, x); }
DEVICE u32 f32_bits(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float smaller(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float infinity() { return __builtin_inff(); }
DEVICE bool is_finite(float x) { return __builtin_fabsf(x) < infinity(); }

// True if a fused product and sum may add to its result register (v_fmac_f32), which saves registers.
#if defined(__gfx900__) || defined(__gfx902__) || defined(__gfx904__) || defined(__gfx909__) || defined(__gfx90c__)
#define HAS_FMAC 0
#else
#define HAS_FMAC 1
#endif

// a * b + c in the fastest form: fused where that runs at full rate, otherwise (gfx803) v_mac_f32.
DEVICE float mad(float a, float b, float c) { return a * b + c; }
// a * b + c with one rounding.
DEVICE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- Conversions ----

DEVICE float f16_to_f32(u16 x) { return (float)__builtin_bit_cast(f16, x); }
// Rounds to nearest, ties to even: the initial mode of a wavefront.
DEVICE u16 f32_to_f16(float x) { return __builtin_bit_cast(u16, (f16)x); }
DEVICE float bf16_to_f32(u16 x) { return bits_f32((u32)x << 16); }
DEVICE u16 f32_to_bf16(float x) {
    u32 bits = f32_bits(x);
    return x != x ? 0x7fc0 : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// Converts signed or unsigned byte `i` of a word: one or two instructions (v_cvt_f32_ubyte<i>).
DEVICE float i8_to_f32(u32 word, int i) { return (float)((i32)(word << (24 - 8 * i)) >> 24); }
DEVICE float u8_to_f32(u32 word, int i) { return (float)(word >> (8 * i) & 255); }

// ---- Products of bytes ----
//
// dot4(a, b, c): c + the sum of four products of signed bytes. One instruction on gfx906, 908, 90a, 94x, 101[12] and 103x
// (v_dot4_i32_i8), gfx11 and gfx12 (v_dot4_i32_iu8) and NVIDIA's processors, which have HAS_DOT4; elsewhere four products and
// four sums.

#define HAS_DOT4 1
#if !DEVICE_AMD
DEVICE i32 dot4(u32 a, u32 b, i32 c) {
    i32 d;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1011__) || \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || \
    defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false); }
#elif defined(__GFX11__) || defined(__GFX12__)
DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false); }
#else
#undef HAS_DOT4
#define HAS_DOT4 0
DEVICE i32 dot4(u32 a, u32 b, i32 c) {
    UNROLL for (int i = 0; i < 4; i++) c += (i32)(i8)(a >> (8 * i)) * (i32)(i8)(b >> (8 * i));
    return c;
}
#endif

// True if one instruction shifts, or multiplies and adds, two pairs of 16 bits (v_pk_fma_f16).
#if defined(__GFX7__) || defined(__GFX8__)
#define HAS_PACKED16 0
#else
#define HAS_PACKED16 1
#endif

// Shifts the upper half of a word to the right and keeps the lower half.
DEVICE u32 upper_half_shifted(u32 x, u32 by) {
#if DEVICE_AMD && HAS_PACKED16
    return __builtin_bit_cast(u32, __builtin_bit_cast(u16x2, x) >> __builtin_bit_cast(u16x2, by << 16));
#else
    return (x & 0xffffu) | (x >> by & 0xffff0000u);
#endif
}

// Returns the low bytes of four words as one word.
DEVICE u32 low_bytes(u32 a, u32 b, u32 c, u32 d) {
#if DEVICE_AMD
    // The selector names bytes 0 .. 3 of the second operand by 0 .. 3, those of the first by 4 .. 7.
    u32 low = __builtin_amdgcn_perm(b, a, 0x0c0c0400), high = __builtin_amdgcn_perm(d, c, 0x04000c0c);
    return low | high;
#else
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
#endif
}

// ---- Across the lanes of a wavefront ----
//
// The lanes whose values are combined must be active: the whole wavefront, or a whole group of LANES adjacent lanes. On AMD's
// processors, steps within 16 lanes are DPP: a modifier of the addition, with no LDS and no extra instruction. Lanes 16 apart
// exchange values through ds_swizzle (the LDS crossbar, without LDS memory), the halves of a 64-lane wavefront through
// v_readlane.

#if DEVICE_AMD
template <int CTRL> DEVICE float dpp(float x) {
    return bits_f32((u32)__builtin_amdgcn_update_dpp(0, (i32)f32_bits(x), CTRL, 0xf, 0xf, true));
}
#define LANES_XOR_1 dpp<0xb1>          // quad_perm [1, 0, 3, 2]
#define LANES_XOR_2 dpp<0x4e>          // quad_perm [2, 3, 0, 1]
#define LANES_HALF_MIRROR dpp<0x141>   // 7 - i within 8
#define LANES_MIRROR dpp<0x140>        // 15 - i within 16
#define LANES_ROTATE_4 dpp<0x124>      // i - 4 within 16
#define LANES_ROTATE_8 dpp<0x128>
DEVICE float lanes_xor_16(float x) {
    return bits_f32((u32)__builtin_amdgcn_ds_swizzle((i32)f32_bits(x), 0x401f));
}
DEVICE float from_lane(float x, u32 lane) { return bits_f32((u32)__builtin_amdgcn_readlane((i32)f32_bits(x), lane)); }
#else
// A shuffle waits for the lanes that it names. It names only those that take part: lanes of other groups may have left the
// kernel.
template <int LANES> DEVICE float shuffle_xor(float x, int mask) {
    u32 members = 0xffffffffu;
    if constexpr (LANES < 32) members = ((1u << LANES) - 1) << (lane_id() & ~(u32)(LANES - 1));
    return __nvvm_shfl_sync_bfly_f32(members, x, mask, 0x1f);
}
DEVICE float from_lane(float x, u32 lane) { return __nvvm_shfl_sync_idx_f32(0xffffffffu, x, (int)lane, 0x1f); }
#define LANES_XOR_1(x) shuffle_xor<LANES>(x, 1)
#define LANES_XOR_2(x) shuffle_xor<LANES>(x, 2)
#define LANES_HALF_MIRROR(x) shuffle_xor<LANES>(x, 7)
#define LANES_MIRROR(x) shuffle_xor<LANES>(x, 15)
#define LANES_ROTATE_4(x) shuffle_xor<LANES>(x, 4)
#define LANES_ROTATE_8(x) shuffle_xor<LANES>(x, 8)
#define lanes_xor_16(x) shuffle_xor<LANES>(x, 16)
#endif

struct Sum {
    DEVICE float of(float a, float b) { return a + b; }
    static constexpr float ZERO = 0.0f;
};
struct Max {
    DEVICE float of(float a, float b) { return larger(a, b); }
    static constexpr float ZERO = -__builtin_inff();
};
// For numbers that are not negative: an infinity is above all of them, and a NaN above that.
struct MaxOrNan {
    DEVICE float of(float a, float b) { return bits_f32(f32_bits(a) > f32_bits(b) ? f32_bits(a) : f32_bits(b)); }
};

// Reduces over LANES adjacent lanes (a power of two); each of them gets the result.
template <class OP, int LANES> DEVICE float lanes_reduce(float x) {
    if constexpr (LANES >= 2) x = OP::of(x, LANES_XOR_1(x));
    if constexpr (LANES >= 4) x = OP::of(x, LANES_XOR_2(x));
    if constexpr (LANES >= 8) x = OP::of(x, LANES_HALF_MIRROR(x));
    if constexpr (LANES >= 16) x = OP::of(x, LANES_MIRROR(x));
    if constexpr (LANES >= 32) x = OP::of(x, lanes_xor_16(x));
#if DEVICE_AMD
    if constexpr (LANES >= 64) x = OP::of(from_lane(x, 0), from_lane(x, 32));
#endif
    return x;
}
template <class OP> DEVICE float wave_reduce(float x) { return lanes_reduce<OP, WAVE>(x); }

// Sums of four values over 16 adjacent lanes: lane l has that of value l % 4. Also: a value added over the lanes 16 apart.
template <int LANES = WAVE> DEVICE float row_sum_of_four(const float *x) {
    bool odd = lane_id() & 1, upper = lane_id() & 2;
    float low = (odd ? x[1] : x[0]) + LANES_XOR_1(odd ? x[0] : x[1]);
    float high = (odd ? x[3] : x[2]) + LANES_XOR_1(odd ? x[2] : x[3]);
    float sum = (upper ? high : low) + LANES_XOR_2(upper ? low : high);
    sum += LANES_ROTATE_4(sum);
    sum += LANES_ROTATE_8(sum);
    return sum;
}
template <int LANES = WAVE> DEVICE float sum_of_rows(float sum) {
    sum += lanes_xor_16(sum);
#if DEVICE_AMD
    if constexpr (LANES == 64) {
        i32 other = (i32)((lane_id() ^ 32) * 4);
        sum += bits_f32((u32)__builtin_amdgcn_ds_bpermute(other, (i32)f32_bits(sum)));
    }
#endif
    return sum;
}

// Sums of four values over a wavefront: lane l has that of value l % 4. A third of the steps of four reductions. Also: sums of
// four times four values; lane l has that of value l % 4 of group l / 4 % 4.
template <int LANES = WAVE> DEVICE float wave_sum_of_four(const float *x) {
    return sum_of_rows<LANES>(row_sum_of_four<LANES>(x));
}
DEVICE float wave_sum_of_sixteen(const float (*x)[4]) {
    bool odd = lane_id() & 4, upper = lane_id() & 8;
    float sum[4];
    UNROLL for (int i = 0; i < 4; i++) sum[i] = row_sum_of_four(x[i]);
    float low = odd ? sum[1] : sum[0], high = odd ? sum[3] : sum[2];
    return sum_of_rows(upper ? high : low);
}
template <int BIT, int LANES = WAVE> DEVICE float lanes_xor(float x) {
    static_assert(BIT == 1 || BIT == 2, "");
    return BIT == 1 ? LANES_XOR_1(x) : LANES_XOR_2(x);
}

// Reduces over all threads of a work-group; each of them gets the result. `scratch` has one element for each wavefront; a
// barrier must separate two uses of it.
template <class OP, int THREADS> DEVICE float group_reduce(float x, float *scratch) {
    constexpr int WAVES = THREADS / WAVE;
    x = wave_reduce<OP>(x);
    if constexpr (WAVES > 1) {
        if (lane_id() == 0) scratch[wave_id()] = x;
        barrier();
        x = scratch[0];
        UNROLL for (int i = 1; i < WAVES; i++) x = OP::of(x, scratch[i]);
    }
    return x;
}

// ---- Functions ----

// 2^x by the hardware: relative error about 2^-23; results below 2^-126 may be flushed to zero.
DEVICE float exp2_hw(float x) {
#if !DEVICE_AMD
    // Results below 2^-126 are zero: keeping smaller numbers takes three more instructions.
    return __nvvm_ex2_approx_ftz_f(x);
#elif __has_builtin(__builtin_amdgcn_exp2f)
    return __builtin_amdgcn_exp2f(x);
#else
    // Before clang 18, such as the run-time compiler of ROCm 5.
    float y;
    __asm__("v_exp_f32 %0, %1" : "=v"(y) : "v"(x));
    return y;
#endif
}

// 1 / x by the hardware, to about one unit in the last place.
DEVICE float reciprocal_hw(float x) {
#if DEVICE_AMD
    return __builtin_amdgcn_rcpf(x);
#else
    return 1.0f / x;
#endif
}

#define LOG2_E 1.44269504088896340736f

// e^x for differences of scores, where an error of 2^-24 |x| does not matter.
DEVICE float exp_fast(float x) { return exp2_hw(x * LOG2_E); }

// e^x to about two units in the last place over the whole range: x log2(e) in two parts; the hardware computes the fraction,
// and the integer goes into the exponent.
DEVICE float exp_f32(float x) {
    float high = x * LOG2_E;
    float low = fused(x, LOG2_E, -high) + x * 1.925963033500e-8f;
    float whole = __builtin_rintf(high);
    // Outside the range (and for infinities, where `low` is NaN) only the integer part counts.
    float part = high - whole + low;
    if (!(__builtin_fabsf(high) < 160.0f)) return x < 0.0f ? 0.0f : x > 0.0f ? infinity() : x;
#if DEVICE_AMD
    return __builtin_amdgcn_ldexpf(exp2_hw(part), (i32)whole);
#else
    return exp2_hw(part) * exp2_hw(whole * 0.5f) * exp2_hw(whole - whole * 0.5f);
#endif
}

// erfc(z) for z >= 0: exp(-z^2) times a polynomial in t = 1 / (1 + 0.4 z), fitted to a relative error of 1.9e-8.
DEVICE float erfc_f32(float z) {
    float t = 1.0f / mad(0.4f, z, 1.0f);
    float p = mad(-0.0231027237f, t, 0.163412407f);
    p = mad(p, t, -0.419163062f);
    p = mad(p, t, 0.443765585f);
    p = mad(p, t, -0.200501268f);
    p = mad(p, t, 0.228453538f);
    p = mad(p, t, 0.144221478f);
    p = mad(p, t, 0.211928277f);
    p = mad(p, t, 0.225295662f);
    p = mad(p, t, 0.225690123f);
    return p * t * exp_f32(-z * z);
}

// Sine and cosine of a number of turns, |turn| not much above 1/2; errors about 1e-7. The nearest quarter of a turn is
// subtracted exactly; polynomials (3e-9) compute the remaining eighth.
DEVICE void sin_cos_turn(float turn, float *sine, float *cosine) {
    float quarter = __builtin_rintf(turn * 4.0f);
    float r = fused(quarter, -0.25f, turn), s = r * r;
    float sn = r * mad(mad(mad(-75.3939507f, s, 81.5923642f), s, -41.3416615f), s, 6.28318529f);
    float cs = mad(mad(mad(mad(59.2292538f, s, -85.4432366f), s, 64.9393219f), s, -19.7392087f), s, 1.0f);
    i32 q = (i32)quarter & 3;
    float a = q & 1 ? cs : sn, b = q & 1 ? sn : cs;
    *sine = q & 2 ? -a : a;
    *cosine = (q + 1) & 2 ? -b : b;
}
