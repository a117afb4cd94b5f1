// Programs in which work items work together.

GLOBAL void transpose(const float* in, float* out, u32 width, u32 height) {
    SHARED float tile[32][33];
    u32 x = group_x() * 32 + local_x();
    for (u32 row = local_y(); row < 32; row += 8) {
        u32 y = group_y() * 32 + row;
        if (x < width && y < height) tile[row][local_x()] = in[y * width + x];
    }
    barrier();
    u32 ox = group_y() * 32 + local_x();
    for (u32 row = local_y(); row < 32; row += 8) {
        u32 oy = group_x() * 32 + row;
        if (ox < height && oy < width) out[oy * height + ox] = tile[local_x()][row];
    }
}

GLOBAL void histogram(const u8* in, u32 count, u32* bins) {
    SHARED u32 local[256];
    local[local_x()] = 0;
    barrier();
    for (u32 i = group_x() * 1024 + local_x(); i < count && i < (group_x() + 1) * 1024; i += 256)
        __hip_atomic_fetch_add(&local[in[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    barrier();
    if (local[local_x()])
        __hip_atomic_fetch_add(&bins[local_x()], local[local_x()], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

GLOBAL void bitonic_sort(i32* data) {
    SHARED i32 keys[512];
    i32* block = data + group_x() * 512;
    keys[local_x()] = block[local_x()];
    keys[local_x() + 256] = block[local_x() + 256];
    for (u32 size = 2; size <= 512; size *= 2)
        for (u32 stride = size / 2; stride; stride /= 2) {
            barrier();
            u32 low = 2 * local_x() - (local_x() & (stride - 1));
            bool up = (low & size) == 0;
            i32 a = keys[low], b = keys[low + stride];
            if ((a > b) == up) {
                keys[low] = b;
                keys[low + stride] = a;
            }
        }
    barrier();
    block[local_x()] = keys[local_x()];
    block[local_x() + 256] = keys[local_x() + 256];
}

GLOBAL void matmul_f64(const double* a, const double* b, double* c, u32 n) {
    SHARED double left[16][16];
    SHARED double right[16][16];
    u32 row = group_y() * 16 + local_y(), column = group_x() * 16 + local_x();
    double sum = 0;
    for (u32 k = 0; k < n; k += 16) {
        left[local_y()][local_x()] = a[row * n + k + local_x()];
        right[local_y()][local_x()] = b[(k + local_y()) * n + column];
        barrier();
        for (u32 i = 0; i < 16; i++) sum = __builtin_fma(left[local_y()][i], right[i][local_x()], sum);
        barrier();
    }
    c[row * n + column] = sum;
}

// Inclusive prefix sum in one launch: a group takes a ticket and waits for the sum of the groups before it.
GLOBAL void prefix_sum(const u32* in, u32* out, u32* ticket, u64* chain) {
    SHARED u32 scan[256];
    SHARED u32 mine;
    SHARED u32 before;
    if (local_x() == 0) mine = __hip_atomic_fetch_add(ticket, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    barrier();
    u32 group = mine;
    scan[local_x()] = in[group * 256 + local_x()];
    barrier();
    for (u32 distance = 1; distance < 256; distance *= 2) {
        u32 other = local_x() >= distance ? scan[local_x() - distance] : 0;
        barrier();
        scan[local_x()] += other;
        barrier();
    }
    if (local_x() == 0) {
        u64 seen = 1ull << 63;
        if (group)
            while (!((seen = __hip_atomic_load(&chain[group - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) >> 63))
                __builtin_amdgcn_s_sleep(1);
        before = (u32)seen;
        __hip_atomic_store(&chain[group], (1ull << 63) | (u32)((u32)seen + scan[255]), __ATOMIC_RELEASE,
            __HIP_MEMORY_SCOPE_AGENT);
    }
    barrier();
    out[group * 256 + local_x()] = before + scan[local_x()];
}

extern SHARED u32 dynamic_memory[];

// Reverses a block of any size in LDS whose size the launch says; the sizes come from the hidden arguments.
GLOBAL void reverse_dynamic(u32* data) {
    u32 size = __builtin_amdgcn_workgroup_size_x();
    u32* block = data + group_x() * size;
    dynamic_memory[local_x()] = block[local_x()];
    barrier();
    block[local_x()] = dynamic_memory[size - 1 - local_x()];
}

// Every work item writes its coordinates; sizes and counts come from the hidden arguments and the dispatch packet.
GLOBAL void coordinates(u32* out) {
    u32 sx = __builtin_amdgcn_workgroup_size_x(), sy = __builtin_amdgcn_workgroup_size_y(),
        sz = __builtin_amdgcn_workgroup_size_z();
    const u32* hidden = (const u32*)__builtin_amdgcn_implicitarg_ptr();
    u32 nx = hidden[0], ny = hidden[1], nz = hidden[2];
    u32 x = group_x() * sx + local_x(), y = group_y() * sy + local_y(), z = group_z() * sz + local_z();
    u32 width = nx * sx, height = ny * sy;
    u32* record = out + 8 * ((z * height + y) * width + x);
    record[0] = x;
    record[1] = y;
    record[2] = z;
    record[3] = sx | sy << 8 | sz << 16;
    record[4] = nx | ny << 8 | nz << 16;
    record[5] = __builtin_amdgcn_grid_size_x() | __builtin_amdgcn_grid_size_y() << 8 | __builtin_amdgcn_grid_size_z() << 16;
    record[6] = ((const u16*)hidden)[9] | ((const u16*)hidden)[10] << 8 | ((const u16*)hidden)[11] << 16; // remainders
    record[7] = ((const u16*)hidden)[32];                                                                 // dimensions
}

// Floats added by compare-and-swap, doubles by the same on 64 bits, minimum and maximum by instruction.
GLOBAL void contention(const float* in, u32* sum_f32, u64* sum_f64, i32* low, u32* high, u64* wide) {
    float value = in[group_x() * 128 + local_x()];
    u32 seen = __hip_atomic_load(sum_f32, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    while (!__hip_atomic_compare_exchange_weak(sum_f32, &seen, __builtin_bit_cast(u32, __builtin_bit_cast(float, seen) + value),
        __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) {}
    u64 seen64 = __hip_atomic_load(sum_f64, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    while (!__hip_atomic_compare_exchange_weak(sum_f64, &seen64,
        __builtin_bit_cast(u64, __builtin_bit_cast(double, seen64) + (double)value),
        __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) {}
    __hip_atomic_fetch_min(low, (i32)value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_max(high, (u32)(value + 1000.0f), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_xor(wide, 0x9e3779b97f4a7c15ull * (u64)(group_x() * 128 + local_x()), __ATOMIC_RELAXED,
        __HIP_MEMORY_SCOPE_AGENT);
}
