// Memory: every width and alignment, private arrays, stacks, buffers, tables, texts.

template <class T> struct __attribute__((packed)) Unaligned { T value; };
template <class T> DEVICE static inline T load(const u8* at) { return ((const Unaligned<T>*)at)->value; }
template <class T> DEVICE static inline void store(u8* at, T value) { ((Unaligned<T>*)at)->value = value; }

// Loads and stores at every offset from an address, in global memory and in LDS.
GLOBAL void unaligned(const u8* in, u8* out, u64* sums) {
    SHARED u8 shared[64 * 64];
    u32 i = local_x();
    const u8* from = in + i * 64 + i % 16;
    u8* to = out + i * 64 + i % 16;
    u8* own = shared + i * 64 + i % 16;
    for (u32 k = 0; k < 64; k++) shared[i * 64 + k] = in[i * 64 + k];
    u64 sum = load<u16>(from) + 3 * (u64)load<u32>(from + 2) + 5 * load<u64>(from + 6);
    vec<u32, 4> wide = load<vec<u32, 4>>(from + 14);
    sum += wide.x + 7 * (u64)wide.y + 11 * (u64)wide.z + 13 * (u64)wide.w;
    sum ^= load<u16>(own) + 3 * (u64)load<u32>(own + 2) + 5 * load<u64>(own + 6) * 17;
    sums[i] = sum;
    store<u16>(to, (u16)sum);
    store<u32>(to + 3, (u32)(sum >> 8));
    store<u64>(to + 7, sum * 3);
    store<vec<u32, 4>>(to + 15, wide.wzyx);
    store<u32>(own + 1, (u32)sum);
    store<u64>(own + 5, ~sum);
    for (u32 k = 0; k < 13; k++) to[32 + k] = own[k];
}

// Bytes and shorts in the halves of registers.
GLOBAL void subdwords(const u8* bytes, const i16* shorts, u8* out8, i16* out16) {
    SHARED u8 shared8[128];
    SHARED i16 shared16[128];
    u32 i = local_x();
    vec<i16, 2> pair = {shorts[2 * i], shorts[2 * i + 1]};
    pair = pair.yx * (i16)3 + (i16)1;
    out16[4 * i + 1] = pair.y;
    out16[4 * i] = pair.x;
    vec<i8, 2> quarter = {(i8)bytes[4 * i + 3], (i8)bytes[4 * i + 1]};
    vec<i16, 2> widened = {(i16)quarter.x, (i16)(bytes[4 * i + 2] << 3)};
    out16[4 * i + 3] = widened.y;
    out16[4 * i + 2] = widened.x;
    shared8[2 * i] = (u8)(pair.y >> 8);
    shared8[2 * i + 1] = (u8)pair.x;
    shared16[2 * i + 1] = pair.x;
    shared16[2 * i] = (i16)(i8)bytes[4 * i];
    barrier();
    u32 j = 63 - i;
    vec<i16, 2> seen = {shared16[2 * j + 1], (i16)(i8)shared8[2 * j]};
    seen += vec<i16, 2>{(i16)shared8[2 * j + 1], shared16[2 * j]};
    out8[4 * i] = (u8)seen.x;
    out8[4 * i + 1] = (u8)(seen.x >> 8);
    out8[4 * i + 2] = (u8)seen.y;
    out8[4 * i + 3] = (u8)(seen.y >> 8);
}

// One to four words at once, through LDS and back.
GLOBAL void vectors(const vec<u32, 4>* in, vec<u32, 4>* out) {
    SHARED vec<u32, 4> four[64];
    SHARED vec<u32, 2> two[64];
    SHARED u32 three[64 * 3];
    u32 i = local_x();
    vec<u32, 4> v = in[i];
    four[i] = v.yzwx;
    two[i] = v.zw;
    for (u32 k = 0; k < 3; k++) three[3 * i + k] = v[k] * 3;
    barrier();
    vec<u32, 4> w = four[i ^ 5] + vec<u32, 4>{two[i ^ 9].y, two[i ^ 9].x, 1, 2};
    u32 const* t = three + 3 * (63 - i);
    out[2 * i] = w;
    out[2 * i + 1] = vec<u32, 4>{t[2], t[1], t[0], w.x ^ w.w};
}

// Through buffer resources.
GLOBAL void buffers(u32* in, u32* out, u32 bytes) {
#if defined(__GFX9__)
    constexpr int flags = 0x00027000;
#else
    constexpr int flags = 0x31004000;
#endif
    __amdgpu_buffer_rsrc_t from = __builtin_amdgcn_make_buffer_rsrc(in, 0, (int)bytes, flags);
    __amdgpu_buffer_rsrc_t to = __builtin_amdgcn_make_buffer_rsrc(out, 0, (int)bytes, flags);
    int at = (int)local_x() * 64, base = (int)group_x() * 4096;
    __builtin_amdgcn_raw_buffer_store_b32(__builtin_amdgcn_raw_buffer_load_b32(from, at, base, 0) + 1, to, at, base, 0);
    __builtin_amdgcn_raw_buffer_store_b64(__builtin_amdgcn_raw_buffer_load_b64(from, at + 8, base, 0), to, at + 4, base, 0);
    __builtin_amdgcn_raw_buffer_store_b96(__builtin_amdgcn_raw_buffer_load_b96(from, at + 16, base, 0), to, at + 12, base, 0);
    __builtin_amdgcn_raw_buffer_store_b128(__builtin_amdgcn_raw_buffer_load_b128(from, at + 32, base, 0), to, at + 24, base, 0);
    __builtin_amdgcn_raw_buffer_store_b16(__builtin_amdgcn_raw_buffer_load_b16(from, at + 50, base, 0), to, at + 40, base, 0);
    __builtin_amdgcn_raw_buffer_store_b8(__builtin_amdgcn_raw_buffer_load_b8(from, at + 53, base, 0), to, at + 43, base, 0);
}

// Arrays whose index only the running program knows, in one and two dimensions: a permutation, its cycles and powers.
GLOBAL void private_arrays(const u32* in, u32* out) {
    u32 i = group_x() * 64 + local_x();
    u8 order[40];
    u32 table[5][8];
    u64 long_sums[7];
    for (u32 k = 0; k < 40; k++) order[k] = (u8)k;
    u32 state = in[i];
    for (u32 k = 39; k > 0; k--) {
        state = state * 1664525 + 1013904223;
        u32 j = (state >> 8) % (k + 1);
        u8 kept = order[k];
        order[k] = order[j];
        order[j] = kept;
    }
    for (u32 k = 0; k < 40; k++) table[order[k] / 8][order[k] % 8] = k * k;
    for (u32 k = 0; k < 7; k++) long_sums[k] = 0;
    for (u32 k = 0; k < 40; k++) long_sums[table[k % 5][order[k] % 8] % 7] += (u64)table[k / 8][k % 8] << 20 | order[k];
    u32 cycles = 0, seen[2] = {0, 0};
    for (u32 k = 0; k < 40; k++) {
        if (seen[k / 32] >> k % 32 & 1) continue;
        cycles++;
        for (u32 at = k; !(seen[at / 32] >> at % 32 & 1); at = order[at]) seen[at / 32] |= 1u << at % 32;
    }
    u64 sum = cycles;
    for (u32 k = 0; k < 7; k++) sum = sum * 1000003 + long_sums[k];
    out[2 * i] = (u32)sum;
    out[2 * i + 1] = (u32)(sum >> 32);
}

// Quicksort with recursion on an array of the stack.
DEVICE NOINLINE void quicksort(u32* keys, i32 first, i32 last) {
    if (first >= last) return;
    u32 pivot = keys[(first + last) / 2];
    i32 low = first, high = last;
    while (low <= high) {
        while (keys[low] < pivot) low++;
        while (keys[high] > pivot) high--;
        if (low <= high) {
            u32 kept = keys[low];
            keys[low++] = keys[high];
            keys[high--] = kept;
        }
    }
    quicksort(keys, first, high);
    quicksort(keys, low, last);
}

GLOBAL void sort_on_the_stack(const u32* in, u32* out) {
    u32 i = local_x(), keys[24];
    for (u32 k = 0; k < 24; k++) keys[k] = in[24 * i + k];
    quicksort(keys, 0, 23);
    for (u32 k = 0; k < 24; k++) out[24 * i + k] = keys[k];
}

// A list of links on the stack, each with a generic pointer to another one, some of them in global memory.
struct Link { Link* before; u32 value; };

GLOBAL void linked_list(const u32* in, Link* more, u32* out, u32 count) {
    u32 i = local_x();
    Link own[20];
    Link* last = nullptr;
    for (u32 k = 0; k < count; k++) {
        u32 value = in[i * count + k];
        Link* link = value & 1 ? &own[(k * 7 + i) % 20] : &more[i * 20 + k];
        link->before = last;
        link->value = value + k;
        last = link;
    }
    u32 sum = 0;
    for (; last; last = last->before) sum = sum * 31 + last->value;
    out[i] = sum;
}

// More values at once than some registers hold: a system of linear equations modulo a prime, by elimination.
GLOBAL void equations(const u32* in, u32* out) {
    constexpr u32 prime = 65521, n = 6;
    u32 i = group_x() * 64 + local_x(), m[n][n + 1];
    for (u32 r = 0; r < n; r++)
        for (u32 c = 0; c <= n; c++) m[r][c] = in[(i * n + r) * (n + 1) + c] % prime;
#pragma unroll
    for (u32 p = 0; p < n; p++) {
        u32 inverse = 1, base = m[p][p];
        for (u32 e = prime - 2; e; e >>= 1, base = base * base % prime)
            if (e & 1) inverse = inverse * base % prime;
        for (u32 c = 0; c <= n; c++) m[p][c] = m[p][c] * inverse % prime;
        for (u32 r = 0; r < n; r++) {
            if (r == p) continue;
            u32 factor = prime - m[r][p];
            for (u32 c = 0; c <= n; c++) m[r][c] = (m[r][c] + factor * m[p][c]) % prime;
        }
    }
    for (u32 r = 0; r < n; r++) out[i * n + r] = m[r][n];
}

struct Entry { const char* name; u32 value; };
CONSTANT Entry entries[6] = {{"zero", 0}, {"one", 1}, {"seven", 7}, {"twelve", 12}, {"hundred", 100}, {"million", 1000000}};
CONSTANT char digits64[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Words looked up in a table of pointers; what is not there is read as a decimal or hexadecimal number.
GLOBAL void words(const u8* text, const u32* offsets, u32* values) {
    u32 i = local_x(), length = offsets[i + 1] - offsets[i];
    const u8* word = text + offsets[i];
    for (u32 e = 0; e < 6; e++) {
        u32 k = 0;
        while (k < length && entries[e].name[k] == word[k]) k++;
        if (k == length && entries[e].name[k] == 0) {
            values[i] = entries[e].value;
            return;
        }
    }
    bool hex = length > 2 && word[0] == '0' && word[1] == 'x';
    u32 value = 0;
    for (u32 k = hex ? 2 : 0; k < length; k++) {
        u8 c = word[k];
        u32 digit;
        if (c >= '0' && c <= '9') digit = c - '0';
        else if (hex && c >= 'a' && c <= 'f') digit = c - 'a' + 10;
        else {
            value = ~0u;
            break;
        }
        value = value * (hex ? 16 : 10) + digit;
    }
    values[i] = value;
}

// Base 64: three bytes become four characters.
GLOBAL void base64(const u8* in, u32 count, u8* out) {
    u32 i = group_x() * 64 + local_x();
    if (3 * i >= count) return;
    u32 rest = count - 3 * i, word = 0;
    for (u32 k = 0; k < 3; k++) word = word << 8 | (k < rest ? in[3 * i + k] : 0);
    for (u32 k = 0; k < 4; k++) out[4 * i + k] = k > rest ? '=' : (u8)digits64[word >> (18 - 6 * k) & 63];
}

struct Node { u32 value, left, right; };

// A search tree in memory, each item's own: insertion, then a walk in order with a stack.
GLOBAL void trees(const u32* in, Node* nodes, u32* out) {
    u32 i = local_x();
    nodes += i * 20;
    for (u32 k = 0; k < 20; k++) {
        u32 value = in[i * 20 + k] % 1000, at = 0;
        nodes[k] = Node{value, 0, 0};
        while (k) {
            u32* next = value < nodes[at].value ? &nodes[at].left : &nodes[at].right;
            if (*next == 0) {
                *next = k;
                break;
            }
            at = *next;
        }
    }
    u32 stack[20], depth = 0, at = 0, count = 0, deepest = 0;
    bool some = true;
    while (some || depth) {
        while (some) {
            stack[depth++] = at;
            if (depth > deepest) deepest = depth;
            at = nodes[at].left;
            some = at != 0;
        }
        at = stack[--depth];
        out[i * 21 + count++] = nodes[at].value;
        at = nodes[at].right;
        some = at != 0;
    }
    out[i * 21 + 20] = deepest;
}
