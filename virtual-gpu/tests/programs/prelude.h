// What every program here needs and no header supplies.
#ifdef FEW_REGISTERS
#define GLOBAL extern "C" __attribute__((global, amdgpu_num_vgpr(20), amdgpu_num_sgpr(40)))
#else
#define GLOBAL extern "C" __attribute__((global))
#endif
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))
#define CONSTANT __attribute__((constant))
#define NOINLINE __attribute__((noinline))
#define THREADS(n) __attribute__((amdgpu_flat_work_group_size(1, n)))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

typedef _Float16 f16;
typedef __bf16 bf16;
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));

// Lanes of a wavefront: the compiler decides.
#define WAVE __AMDGCN_WAVEFRONT_SIZE__
// Lanes among which LDS hardware permutes: halves of a wavefront of 64 on GFX10 and later.
#if defined(__GFX9__)
#define PERMUTED 64
#else
#define PERMUTED 32
#endif
// Matrix instructions and their data types.
#if defined(__gfx90a__) || defined(__gfx942__)
#define HAS_MFMA 1
#elif defined(__GFX11__)
#define HAS_WMMA 1
#endif

DEVICE static inline u32 local_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE static inline u32 local_y() { return __builtin_amdgcn_workitem_id_y(); }
DEVICE static inline u32 local_z() { return __builtin_amdgcn_workitem_id_z(); }
DEVICE static inline u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE static inline u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE static inline u32 group_z() { return __builtin_amdgcn_workgroup_id_z(); }

DEVICE static inline u32 lane() {
#if WAVE == 64
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
    return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}

DEVICE static inline u64 ballot(bool of) {
#if WAVE == 64
    return __builtin_amdgcn_ballot_w64(of);
#else
    return __builtin_amdgcn_ballot_w32(of);
#endif
}

// Returns the number of lanes below this one that are set in a mask.
DEVICE static inline u32 rank(u64 mask) {
    u32 low = __builtin_amdgcn_mbcnt_lo((u32)mask, 0);
    return WAVE == 64 ? __builtin_amdgcn_mbcnt_hi((u32)(mask >> 32), low) : low;
}

// Returns the value of a lane, which may differ from lane to lane.
DEVICE static inline u32 shuffle(u32 value, u32 from) {
    u32 near = (u32)__builtin_amdgcn_ds_bpermute((int)(from << 2), (int)value);
#if WAVE > PERMUTED
    u32 far = (u32)__builtin_amdgcn_ds_bpermute((int)(from << 2), (int)__builtin_amdgcn_permlane64(value));
    return ((from ^ lane()) & 32) ? far : near;
#else
    return near;
#endif
}

template <class To, class From> DEVICE static inline To bits_as(From value) { return __builtin_bit_cast(To, value); }

template <class T> DEVICE static inline T add(T* at, T value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// WITHOUT_BARRIERS plants a mistake in every program that shares memory.
DEVICE static inline void barrier() {
#ifndef WITHOUT_BARRIERS
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#endif
}
