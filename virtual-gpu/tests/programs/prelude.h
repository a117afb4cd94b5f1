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

DEVICE static inline u32 local_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE static inline u32 local_y() { return __builtin_amdgcn_workitem_id_y(); }
DEVICE static inline u32 local_z() { return __builtin_amdgcn_workitem_id_z(); }
DEVICE static inline u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE static inline u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE static inline u32 group_z() { return __builtin_amdgcn_workgroup_id_z(); }

// WITHOUT_BARRIERS plants a mistake in every program that shares memory.
DEVICE static inline void barrier() {
#ifndef WITHOUT_BARRIERS
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#endif
}
