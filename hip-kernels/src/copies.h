// Copies from memory to LDS without registers, on NVIDIA's processors from sm_80 on (cp.async): they continue while the thread
// that started them computes. A thread waits for its own; other threads see them after a barrier.
#pragma once
#include "device.h"

#define HAS_COPIES 0
#if !DEVICE_AMD
#if __CUDA_ARCH__ >= 800
#undef HAS_COPIES
#define HAS_COPIES 1
#endif
#endif

#if HAS_COPIES
// Starts a copy of 16 bytes; both addresses are multiples of 16.
DEVICE void begin_copy(void *to, const void *from) {
    u32 at = (u32)(u64)(IN_LDS u8 *)to;
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(at), "l"(from) : "memory");
}
DEVICE void wait_for_copies() { __asm__ volatile("cp.async.wait_all;" : : : "memory"); }

// Closes a group of the copies started since the last call; waits for all groups but the last LEFT.
DEVICE void end_group_of_copies() { __asm__ volatile("cp.async.commit_group;" : : : "memory"); }
template <u32 LEFT> DEVICE void wait_for_groups_before() {
    __asm__ volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}
#endif
