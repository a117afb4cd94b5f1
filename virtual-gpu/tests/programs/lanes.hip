// Exchange between the lanes of a wavefront, for any size of a wavefront.

// Form k of a DPP move: control, rows, banks, and zero for what comes from outside.
#define EVERYWHERE(X) \
    X(0, 0x1b, 0xf, 0xf, 0)   /* quad_perm 3, 2, 1, 0 */ \
    X(1, 0xd8, 0x7, 0x5, 0)   /* quad_perm 0, 2, 1, 3 */ \
    X(2, 0x101, 0xf, 0xf, 1)  /* row_shl 1 */ \
    X(3, 0x10e, 0xf, 0xf, 0)  /* row_shl 14 */ \
    X(4, 0x111, 0xf, 0xf, 0)  /* row_shr 1 */ \
    X(5, 0x117, 0x5, 0xe, 1)  /* row_shr 7 */ \
    X(6, 0x121, 0xf, 0xf, 0)  /* row_ror 1 */ \
    X(7, 0x12d, 0xa, 0x3, 0)  /* row_ror 13 */ \
    X(8, 0x140, 0xf, 0xf, 0)  /* row_mirror */ \
    X(9, 0x141, 0xf, 0xc, 0)  /* row_half_mirror */
#if defined(__GFX9__)
#define GENERATION(X) \
    X(10, 0x130, 0xf, 0xf, 0) /* wave_shl 1 */ \
    X(11, 0x134, 0xf, 0xf, 0) /* wave_rol 1 */ \
    X(12, 0x138, 0xf, 0xf, 1) /* wave_shr 1 */ \
    X(13, 0x13c, 0x6, 0xf, 0) /* wave_ror 1 */ \
    X(14, 0x142, 0xa, 0xf, 0) /* row_bcast 15 */ \
    X(15, 0x143, 0xc, 0xf, 0) /* row_bcast 31 */
#else
#define GENERATION(X) \
    X(10, 0x150, 0xf, 0xf, 0) /* row_share 0 */ \
    X(11, 0x15b, 0x3, 0x9, 0) /* row_share 11 */ \
    X(12, 0x161, 0xf, 0xf, 0) /* row_xmask 1 */ \
    X(13, 0x16f, 0xf, 0xf, 0) /* row_xmask 15 */ \
    X(14, 0x166, 0xe, 0x6, 0) /* row_xmask 6 */ \
    X(15, 0x153, 0xf, 0xf, 1) /* row_share 3 */
#endif

// The second record of each form moves as part of an addition.
GLOBAL void dpp_forms(const u32* in, u32* out) {
    u32 i = local_x(), v = in[i], old = ~in[i] * 3;
#define MOVE(k, control, rows, banks, zero) \
    out[(2 * k) * 128 + i] = (u32)__builtin_amdgcn_update_dpp((int)old, (int)v, control, rows, banks, zero); \
    out[(2 * k + 1) * 128 + i] = old + (u32)__builtin_amdgcn_update_dpp(0, (int)v, control, rows, banks, zero);
    EVERYWHERE(MOVE)
    GENERATION(MOVE)
}

template <int control, int rows = 0xf> DEVICE static inline u32 moved(u32 value) {
    return (u32)__builtin_amdgcn_update_dpp(0, (int)value, control, rows, 0xf, false);
}

// Returns the sum of all lanes, in all lanes.
DEVICE static inline u32 wave_sum(u32 v) {
#if defined(__GFX9__)
    v += moved<0x111>(v); // row_shr
    v += moved<0x112>(v);
    v += moved<0x114>(v);
    v += moved<0x118>(v);
    v += moved<0x142, 0xa>(v);
    v += moved<0x143, 0xc>(v);
    return (u32)__builtin_amdgcn_readlane((int)v, 63);
#else
    v += moved<0x161>(v); // row_xmask
    v += moved<0x162>(v);
    v += moved<0x164>(v);
    v += moved<0x168>(v);
    v += __builtin_amdgcn_permlanex16(v, v, 0x76543210, 0xfedcba98, false, false);
#if WAVE == 64
    v += __builtin_amdgcn_permlane64(v);
#endif
    return v;
#endif
}

// Inclusive sum over the lanes.
DEVICE static inline u32 wave_scan(u32 v) {
    v += moved<0x111>(v);
    v += moved<0x112>(v);
    v += moved<0x114>(v);
    v += moved<0x118>(v);
#if defined(__GFX9__)
    v += moved<0x142, 0xa>(v);
    v += moved<0x143, 0xc>(v);
#else
    // Lane 15 of the row before, for the odd rows.
    u32 before = __builtin_amdgcn_permlanex16(v, v, ~0u, ~0u, false, false);
    v += lane() & 16 ? before : 0;
    u32 half = (u32)__builtin_amdgcn_readlane((int)v, 31);
    if (WAVE == 64) v += lane() & 32 ? half : 0;
#endif
    return v;
}

GLOBAL void reduce_dpp(const u32* in, u32* out) {
    u32 index = group_x() * 256 + local_x();
    out[index] = wave_sum(in[index]);
}

// Scan of a group: within wavefronts by DPP, their sums through LDS.
GLOBAL void scan_dpp(const u32* in, u32* inclusive, u32* exclusive) {
    SHARED u32 sums[8];
    u32 index = group_x() * 256 + local_x(), wave = local_x() / WAVE;
    u32 v = in[index], scan = wave_scan(v);
    if (lane() == WAVE - 1) sums[wave] = scan;
    barrier();
    u32 before = 0;
    for (u32 w = 0; w < wave; w++) before += sums[w];
    inclusive[index] = before + scan;
    exclusive[index] = before + scan - v;
}

#if !defined(__GFX9__)
// Form k of a lane: permlane16 and permlanex16 with selectors, dpp8, permlane64.
GLOBAL void permlane_forms(const u32* in, u32* out, u32 low, u32 high) {
    u32 i = local_x(), v = in[i];
    out[i] = __builtin_amdgcn_permlane16(v, v, low, high, false, false);
    out[128 + i] = __builtin_amdgcn_permlanex16(v, v, low, high, false, false);
    out[256 + i] = __builtin_amdgcn_permlane16(~v, v, high, low, false, true);
    out[384 + i] = __builtin_amdgcn_mov_dpp8(v, 0b000'101'110'001'011'010'111'100);
    out[512 + i] = __builtin_amdgcn_mov_dpp8(v, 0) + v;
#if WAVE == 64
    out[640 + i] = __builtin_amdgcn_permlane64(v);
#else
    out[640 + i] = v;
#endif
}
#endif

// Butterflies and permutations through the LDS hardware.
GLOBAL void shuffles(const u32* in, u32* sums, u32* pushed, u32* swizzled, double* widest) {
    u32 i = group_x() * 128 + local_x(), v = in[i];
    u32 sum = v;
    for (u32 distance = WAVE / 2; distance; distance >>= 1) sum += shuffle(sum, lane() ^ distance);
    sums[i] = sum;
    // Every lane sends to another one.
    pushed[i] = (u32)__builtin_amdgcn_ds_permute((int)((lane() * 5 + 3) % 32 + (lane() & 32)) << 2, (int)v);
    swizzled[i] = (u32)__builtin_amdgcn_ds_swizzle((int)v, (1 << 10) | 0x1f)  // xor 1
        + 3 * (u32)__builtin_amdgcn_ds_swizzle((int)v, 0x80d8)                // quad_perm 0, 2, 1, 3
        + 5 * (u32)__builtin_amdgcn_ds_swizzle((int)v, 0x18 | 5 << 5)         // lane 5 of eight
        + 7 * (u32)__builtin_amdgcn_ds_swizzle((int)v, 0x1f | 0x10 << 10);    // halves of 32 swapped
    // Doubles take two moves.
    double most = (double)(i32)v * 0.5;
    for (u32 distance = 1; distance < WAVE; distance *= 2) {
        u64 raw = bits_as<u64>(most);
        u64 other = shuffle((u32)raw, lane() ^ distance) | (u64)shuffle((u32)(raw >> 32), lane() ^ distance) << 32;
        most = __builtin_fmax(most, bits_as<double>(other));
    }
    widest[i] = most;
}

// Masks: ballots, ranks, votes, the lanes with the same key, and the first lane of a divergent branch.
GLOBAL void masks(const u32* in, u64* ballots, u32* ranks, u64* peers, u32* firsts) {
    u32 i = group_x() * 128 + local_x(), v = in[i];
    u64 odd = ballot(v & 1);
    ballots[i] = odd;
    ranks[i] = rank(odd) | (ballot(v > 0x10000000) ? 0x100 : 0) | (ballot(v < 0xf0000000) == ballot(true) ? 0x200 : 0);
    u32 key = v >> 4 & 7;
    u64 mine = 0;
    for (bool done = false; !done;) {
        u32 first = (u32)__builtin_amdgcn_readfirstlane((int)key);
        if (key == first) {
            mine = ballot(true);
            done = true;
        }
    }
    peers[i] = mine;
    u32 seen = 1;
    if (v & 1) {
        seen = (u32)__builtin_amdgcn_readfirstlane((int)v);
        if (v & 2) seen ^= (u32)__builtin_amdgcn_readfirstlane((int)~v);
    } else {
        seen += (u32)__builtin_amdgcn_readfirstlane((int)(v * 3));
    }
    firsts[i] = seen + (u32)__builtin_amdgcn_readlane((int)v, (int)(in[0] % WAVE));
}

// Segmented scan, and items that pass a test moved together: positions from a ballot and one atomic for a wavefront.
GLOBAL void segments(const u32* in, u32* scanned, u32* kept, u32* counts) {
    u32 i = group_x() * 128 + local_x(), wave = i / WAVE, v = in[i] & 0xffff;
    bool head = in[i] % 5 == 0 || lane() == 0;
    u32 sum = v, flag = head;
    for (u32 distance = 1; distance < WAVE; distance *= 2) {
        u32 other = shuffle(sum, lane() - distance), other_flag = shuffle(flag, lane() - distance);
        if (lane() >= distance) {
            sum += flag ? 0 : other;
            flag |= other_flag;
        }
    }
    scanned[i] = sum;
    bool passes = in[i] % 3 == 0;
    u64 mask = ballot(passes);
    u32 base = 0;
    if (lane() == 0) base = add(&counts[wave], (u32)__builtin_popcountll(mask));
    base = (u32)__builtin_amdgcn_readfirstlane((int)base);
    if (passes) kept[wave * WAVE + base + rank(mask)] = in[i];
}

// Each half row of 32 lanes sorts its keys in registers.
GLOBAL void sort_lanes(const i32* in, i32* out) {
    u32 i = group_x() * 128 + local_x(), at = lane() & 31;
    i32 key = in[i];
    for (u32 size = 2; size <= 32; size *= 2)
        for (u32 stride = size / 2; stride; stride /= 2) {
            i32 other = (i32)shuffle((u32)key, lane() ^ stride);
            bool low = ((at & stride) == 0) == ((at & size) == 0);
            key = low == (key < other) ? key : other;
        }
    out[i] = key;
}
