// Kernels of the test program, for a compiler without ROCm's headers and libraries.
#define KERNEL extern "C" __attribute__((global))
#define GROUP_X __builtin_amdgcn_workgroup_id_x()
#define ITEM_X __builtin_amdgcn_workitem_id_x()

// Waits for the work-group, and for what its items have written to LDS.
static inline __attribute__((device)) void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL void add(const float *a, const float *b, float *c, int n) {
    int i = GROUP_X * 256 + ITEM_X;
    if (i < n) c[i] = a[i] + b[i];
}

// Scratch: an array with an index that the compiler does not know.
KERNEL void through_scratch(const float *a, const float *b, float *c, int n) {
    int i = GROUP_X * 256 + ITEM_X;
    volatile float t[64];
    for (int k = 0; k < 64; k++) t[k] = k == (i & 63) && i < n ? a[i] : -1;
    if (i < n) c[i] = t[i & 63] + b[i];
}

// Sum of 1 .. n, modulo 2^32, by atomics to global memory, over LDS.
KERNEL void sum(unsigned *to, unsigned n) {
    __attribute__((shared)) static unsigned part;
    if (ITEM_X == 0) part = 0;
    barrier();
    unsigned i = GROUP_X * 256 + ITEM_X;
    if (i < n) __atomic_fetch_add(&part, i + 1, __ATOMIC_RELAXED);
    barrier();
    if (ITEM_X == 0) __atomic_fetch_add(to, part, __ATOMIC_RELAXED);
}

// Each item of a grid counts itself: work-groups at the edge are smaller.
KERNEL void count(unsigned *cells, unsigned width, unsigned height) {
    unsigned x = GROUP_X * 32 + ITEM_X;
    unsigned y = __builtin_amdgcn_workgroup_id_y() * 4 + __builtin_amdgcn_workitem_id_y();
    if (x < width && y < height) __atomic_fetch_add(&cells[y * width + x], 1u, __ATOMIC_RELAXED);
    else __atomic_fetch_add(&cells[width * height], 1u, __ATOMIC_RELAXED);
}

// Writes so many words.
KERNEL void fill(unsigned *to, unsigned words) {
    unsigned i = GROUP_X * 256 + ITEM_X;
    if (i < words) to[i] = i;
}

KERNEL void out_of_bounds(float *a) { a[1ul << 40] = 1; }

KERNEL void illegal(float *a) { asm volatile(".long 0xffffffff"); }

// Does not end before another value is there, which a kernel of another stream writes.
KERNEL void wait_for(volatile unsigned *flag, unsigned value) {
    while (*flag != value) __builtin_amdgcn_s_sleep(1);
}

KERNEL void store(volatile unsigned *flag, unsigned value) { *flag = value; }
