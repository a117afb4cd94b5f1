// Atomic operations of all kinds, and what programs build from them.

#define SCOPE __HIP_MEMORY_SCOPE_AGENT

// One operation of each kind on cells of the work item's own, with the value before and without it.
template <class T> DEVICE static inline void each(T* cells, T* before, T operand, T compare, bool wanted) {
    T seen = compare;
    if (wanted) {
        before[0] = __hip_atomic_fetch_add(cells + 0, operand, __ATOMIC_RELAXED, SCOPE);
        before[1] = __hip_atomic_fetch_sub(cells + 1, operand, __ATOMIC_RELAXED, SCOPE);
        before[2] = __hip_atomic_fetch_and(cells + 2, operand, __ATOMIC_RELAXED, SCOPE);
        before[3] = __hip_atomic_fetch_or(cells + 3, operand, __ATOMIC_RELAXED, SCOPE);
        before[4] = __hip_atomic_fetch_xor(cells + 4, operand, __ATOMIC_RELAXED, SCOPE);
        before[5] = __hip_atomic_fetch_min(cells + 5, operand, __ATOMIC_RELAXED, SCOPE);
        before[6] = __hip_atomic_fetch_max(cells + 6, operand, __ATOMIC_RELAXED, SCOPE);
        before[7] = __hip_atomic_exchange(cells + 7, operand, __ATOMIC_ACQ_REL, SCOPE);
        __hip_atomic_compare_exchange_strong(cells + 8, &seen, operand, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED, SCOPE);
        before[8] = seen;
    } else {
        __hip_atomic_fetch_add(cells + 0, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_sub(cells + 1, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_and(cells + 2, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_or(cells + 3, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_xor(cells + 4, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_min(cells + 5, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_fetch_max(cells + 6, operand, __ATOMIC_RELAXED, SCOPE);
        __hip_atomic_store(cells + 7, operand, __ATOMIC_RELEASE, SCOPE);
        __hip_atomic_compare_exchange_strong(cells + 8, &seen, operand, __ATOMIC_RELAXED, __ATOMIC_RELAXED, SCOPE);
    }
}

DEVICE static inline void wrapping(u32* cells, u32* before, u32 bound, bool wanted) {
    u32 up = __builtin_amdgcn_atomic_inc32(cells + 9, bound, __ATOMIC_RELAXED, "agent");
    u32 down = __builtin_amdgcn_atomic_dec32(cells + 10, bound, __ATOMIC_RELAXED, "agent");
    if (wanted) before[9] = up, before[10] = down;
}

DEVICE static inline void wrapping(u64* cells, u64* before, u64 bound, bool wanted) {
    u64 up = __builtin_amdgcn_atomic_inc64((unsigned long*)cells + 9, bound, __ATOMIC_RELAXED, "agent");
    u64 down = __builtin_amdgcn_atomic_dec64((unsigned long*)cells + 10, bound, __ATOMIC_RELAXED, "agent");
    if (wanted) before[9] = up, before[10] = down;
}
DEVICE static inline void wrapping(i32*, i32*, i32, bool) {}
DEVICE static inline void wrapping(i64*, i64*, i64, bool) {}

// Eleven cells a work item; global memory, then LDS, then either through one generic pointer.
template <class T> DEVICE static inline void everywhere(T* cells, T* before, const T* operands) {
    SHARED T shared[64 * 11];
    SHARED T generic[64 * 11];
    u32 i = local_x();
    T operand = operands[2 * i], compare = operands[2 * i + 1];
    bool wanted = group_x() == 0;
    cells += (group_x() * 64 + i) * 33;
    before += (group_x() * 64 + i) * 33;
    for (u32 k = 0; k < 11; k++) {
        shared[i * 11 + k] = cells[11 + k];
        generic[i * 11 + k] = cells[22 + k];
    }
    each(cells, before, operand, compare, wanted);
    wrapping(cells, before, operand, wanted);
    each(shared + i * 11, before + 11, operand, compare, wanted);
    wrapping(shared + i * 11, before + 11, operand, wanted);
    T* either = i & 1 ? cells + 22 : generic + i * 11;
    each(either, before + 22, operand, compare, wanted);
    wrapping(either, before + 22, operand, wanted);
    for (u32 k = 0; k < 11; k++) {
        cells[11 + k] = shared[i * 11 + k];
        if (!(i & 1)) cells[22 + k] = generic[i * 11 + k];
    }
}

GLOBAL void atomics_u32(u32* cells, u32* before, const u32* operands) { everywhere(cells, before, operands); }
GLOBAL void atomics_i32(i32* cells, i32* before, const i32* operands) { everywhere(cells, before, operands); }
GLOBAL void atomics_u64(u64* cells, u64* before, const u64* operands) { everywhere(cells, before, operands); }
GLOBAL void atomics_i64(i64* cells, i64* before, const i64* operands) { everywhere(cells, before, operands); }

// Sums of floats that are exact in any order: the target's own instruction or a loop around compare-and-swap. Such a
// loop begins with a plain load, so only one wavefront adds to a cell of LDS, and several do by instruction.
GLOBAL void float_atomics(const float* in, float* singles, double* doubles, vec<f16, 2>* halves) {
    SHARED float shared[4][3];
    SHARED double shared64[4][3];
    SHARED float together[3];
    u32 i = group_x() * 128 + local_x(), wave = local_x() / WAVE;
    if (local_x() < 12) shared[local_x() / 3][local_x() % 3] = 0, shared64[local_x() / 3][local_x() % 3] = 0;
    if (local_x() < 3) together[local_x()] = 0;
    barrier();
    float v = in[i];
    add(&singles[0], v);
    add(&doubles[0], (double)v * 0.25);
    __hip_atomic_fetch_min(&singles[1], v, __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_max(&singles[2], v, __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_min(&doubles[1], (double)v, __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_max(&doubles[2], (double)v, __ATOMIC_RELAXED, SCOPE);
    add(&shared[wave][0], v);
    add(&shared64[wave][0], (double)v);
    __hip_atomic_fetch_min(&shared[wave][1], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_max(&shared[wave][2], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_min(&shared64[wave][1], (double)v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_max(&shared64[wave][2], (double)v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    typedef __attribute__((address_space(3))) float* Cell;
    __builtin_amdgcn_ds_faddf((Cell)&together[0], v, 0, 0, false);
    __builtin_amdgcn_ds_fminf((Cell)&together[1], v, 0, 0, false);
    __builtin_amdgcn_ds_fmaxf((Cell)&together[2], v, 0, 0, false);
    // Returned values of additions to a cell of one's own.
    singles[40 + 2 * i] = add(&singles[40 + 2 * i + 1], v);
    doubles[40 + 2 * i] = add(&doubles[40 + 2 * i + 1], (double)v);
    vec<f16, 2> pair = {(f16)(v * 0.125f), (f16)1.0f};
#ifdef HAS_MFMA
    typedef __attribute__((address_space(1))) vec<f16, 2>* Pair;
    __builtin_amdgcn_global_atomic_fadd_v2f16((Pair)(halves + i % 7), pair);
#else
    u32* cell = (u32*)(halves + i % 7);
    u32 seen = __hip_atomic_load(cell, __ATOMIC_RELAXED, SCOPE);
    while (!__hip_atomic_compare_exchange_weak(cell, &seen, bits_as<u32>(bits_as<vec<f16, 2>>(seen) + pair),
        __ATOMIC_RELAXED, __ATOMIC_RELAXED, SCOPE)) {}
#endif
    barrier();
    if (lane() < 3) {
        u32 to = 4 + 3 * (group_x() * 128 / WAVE + wave) + lane();
        singles[to] = shared[wave][lane()];
        doubles[to] = shared64[wave][lane()];
    }
    if (local_x() < 3) singles[32 + 3 * group_x() + local_x()] = together[local_x()];
}

// Values that many add to at once: returned values, a ring by compare-and-swap, exchange as a chain.
GLOBAL void contended(u32* counters, u32* tickets, u32* chain, u64* mixed, i64* extremes) {
    u32 i = group_x() * 128 + local_x();
    tickets[i] = add(&counters[0], 1u);
    __builtin_amdgcn_atomic_inc32(&counters[1], 99, __ATOMIC_RELAXED, "agent");
    __builtin_amdgcn_atomic_dec32(&counters[2], 99, __ATOMIC_RELAXED, "agent");
    u32 seen = __hip_atomic_load(&counters[3], __ATOMIC_RELAXED, SCOPE);
    while (!__hip_atomic_compare_exchange_weak(&counters[3], &seen, seen * 3 % 1000003, __ATOMIC_RELAXED, __ATOMIC_RELAXED, SCOPE)) {}
    chain[i] = __hip_atomic_exchange(&counters[4], i + 1, __ATOMIC_RELAXED, SCOPE);
    u64 word = (u64)i * 0x9e3779b97f4a7c15ull;
    __hip_atomic_fetch_xor(&mixed[0], word, __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_or(&mixed[1], 1ull << (i % 61), __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_and(&mixed[2], ~(1ull << (i % 59)), __ATOMIC_RELAXED, SCOPE);
    add(&mixed[3], word);
    __hip_atomic_fetch_min(&extremes[0], (i64)word, __ATOMIC_RELAXED, SCOPE);
    __hip_atomic_fetch_max(&extremes[1], (i64)word, __ATOMIC_RELAXED, SCOPE);
}

// A lock that one lane of each wavefront takes; what it protects is read and written plainly.
GLOBAL void spin_lock(u32* lock, u32* log) {
    if (lane() != 0) return;
    u32 free = 0;
    while (!__hip_atomic_compare_exchange_strong(lock, &free, 1u, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED, SCOPE)) {
        free = 0;
        __builtin_amdgcn_s_sleep(1);
    }
    u32 count = log[0];
    log[count + 1] = group_x() * 128 + local_x();
    log[0] = count + 1;
    __hip_atomic_store(lock, 0u, __ATOMIC_RELEASE, SCOPE);
}

// The group that finishes last adds the sums of all groups.
GLOBAL void last_group(const u32* in, u32* partial, u32* done, u64* total) {
    SHARED u32 sum;
    SHARED bool last;
    if (local_x() == 0) sum = 0;
    barrier();
    add(&sum, in[group_x() * 128 + local_x()]);
    barrier();
    if (local_x() == 0) {
        partial[group_x()] = sum;
        u32 groups = ((const u32*)__builtin_amdgcn_implicitarg_ptr())[0];
        last = __hip_atomic_fetch_add(done, 1u, __ATOMIC_ACQ_REL, SCOPE) == groups - 1;
        if (last) {
            u64 all = 0;
            for (u32 g = 0; g < groups; g++) all += partial[g];
            *total = all;
        }
    }
}

// Exclusive scan in one launch: a group publishes its own sum, looks back over sums until it meets a prefix, and
// publishes its prefix. State of a group: 1 << 62 | sum, or 1 << 63 | prefix.
GLOBAL void look_back(const u32* in, u32* out, u32* ticket, u64* states, u32 count) {
    SHARED u32 scan[128];
    SHARED u32 number;
    SHARED u32 before;
    u32 i = local_x();
    if (i == 0) number = add(ticket, 1u);
    barrier();
    u32 group = number, at = group * 128 + i;
    u32 v = at < count ? in[at] : 0;
    scan[i] = v;
    barrier();
    for (u32 distance = 1; distance < 128; distance *= 2) {
        u32 other = i >= distance ? scan[i - distance] : 0;
        barrier();
        scan[i] += other;
        barrier();
    }
    if (i == 0) {
        u32 sum = scan[127], prefix = 0;
        __hip_atomic_store(&states[group], 1ull << 62 | sum, __ATOMIC_RELEASE, SCOPE);
        for (u32 g = group; g-- > 0;) {
            u64 state;
            while (!(state = __hip_atomic_load(&states[g], __ATOMIC_ACQUIRE, SCOPE))) __builtin_amdgcn_s_sleep(1);
            prefix += (u32)state;
            if (state >> 63) break;
        }
        __hip_atomic_store(&states[group], 1ull << 63 | (u32)(prefix + sum), __ATOMIC_RELEASE, SCOPE);
        before = prefix;
    }
    barrier();
    if (at < count) out[at] = before + scan[i] - v;
}

// Counts keys in an open hash table: slots are taken by compare-and-swap.
GLOBAL void hash_table(const u32* keys, u32 count, u32* slots, u32* counts, u32 size) {
    u32 i = group_x() * 128 + local_x();
    if (i >= count) return;
    u32 key = keys[i], slot = key * 0x9e3779b1u % size;
    while (true) {
        u32 seen = 0;
        if (__hip_atomic_compare_exchange_strong(&slots[slot], &seen, key, __ATOMIC_RELAXED, __ATOMIC_RELAXED, SCOPE)
            || seen == key)
            break;
        slot = slot + 1 == size ? 0 : slot + 1;
    }
    add(&counts[slot], 1u);
}

// Connected components: each edge joins two trees, the root with the larger number below the other.
GLOBAL void components(const vec<u32, 2>* edges, u32 count, u32* parents) {
    for (u32 e = group_x() * 128 + local_x(); e < count; e += 3 * 128) {
        u32 a = edges[e].x, b = edges[e].y;
        while (true) {
            u32 up;
            while ((up = __hip_atomic_load(&parents[a], __ATOMIC_RELAXED, SCOPE)) != a) a = up;
            while ((up = __hip_atomic_load(&parents[b], __ATOMIC_RELAXED, SCOPE)) != b) b = up;
            if (a == b) break;
            u32 high = a > b ? a : b, low = a > b ? b : a;
            if (__hip_atomic_compare_exchange_strong(&parents[high], &high, low, __ATOMIC_RELAXED, __ATOMIC_RELAXED, SCOPE)) break;
            a = low;
            b = high;
        }
    }
}
