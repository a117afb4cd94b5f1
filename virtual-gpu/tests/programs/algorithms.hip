// Whole algorithms of work-groups: sorting, transforms, solvers, dynamic programming, sparse products, random numbers.

// Radix sort of 512 keys by four bits a pass: counts in LDS, a scan of the counts, stable scattering.
GLOBAL void radix_sort(u32* data) {
    SHARED u32 keys[2][512];
    SHARED u32 counts[16 * 128];
    SHARED u32 totals[128];
    u32 i = local_x();
    u32* block = data + group_x() * 512;
    for (u32 k = 0; k < 4; k++) keys[0][k * 128 + i] = block[k * 128 + i];
    for (u32 pass = 0; pass < 8; pass++) {
        u32* from = keys[pass & 1];
        u32* to = keys[~pass & 1];
        barrier();
        u32 own[16];
        for (u32 d = 0; d < 16; d++) own[d] = 0;
        for (u32 k = 0; k < 4; k++) own[from[4 * i + k] >> 4 * pass & 15]++;
        for (u32 d = 0; d < 16; d++) counts[d * 128 + i] = own[d];
        barrier();
        // Item i sums 16 neighbours, then all sums are scanned.
        u32 sum = 0;
        for (u32 k = 0; k < 16; k++) sum += counts[16 * i + k];
        totals[i] = sum;
        for (u32 distance = 1; distance < 128; distance *= 2) {
            barrier();
            u32 other = i >= distance ? totals[i - distance] : 0;
            barrier();
            totals[i] += other;
        }
        u32 before = totals[i] - sum;
        for (u32 k = 0; k < 16; k++) {
            u32 count = counts[16 * i + k];
            counts[16 * i + k] = before;
            before += count;
        }
        barrier();
        for (u32 k = 0; k < 4; k++) {
            u32 key = from[4 * i + k];
            to[counts[(key >> 4 * pass & 15) * 128 + i]++] = key;
        }
    }
    barrier();
    for (u32 k = 0; k < 4; k++) block[k * 128 + i] = keys[0][k * 128 + i];
}

// Merges two sorted lists: each item finds where its part begins.
GLOBAL void merge(const i32* a, u32 count_a, const i32* b, u32 count_b, i32* out) {
    u32 i = group_x() * 64 + local_x(), first = i * 4, total = count_a + count_b;
    if (first >= total) return;
    u32 low = first > count_b ? first - count_b : 0, high = first < count_a ? first : count_a;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (a[middle] <= b[first - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    u32 x = low, y = first - low;
    for (u32 k = first; k < first + 4 && k < total; k++)
        out[k] = y >= count_b || (x < count_a && a[x] <= b[y]) ? a[x++] : b[y++];
}

// Fourier transform of 256 points in LDS; sines and cosines come from a table that the caller fills.
GLOBAL void fourier(const vec<float, 2>* in, const vec<float, 2>* roots, vec<float, 2>* out) {
    SHARED vec<float, 2> points[256];
    u32 i = local_x(), base = group_x() * 256;
    for (u32 k = i; k < 256; k += 128) points[__builtin_bitreverse32(k) >> 24] = in[base + k];
    for (u32 half = 1; half < 256; half *= 2) {
        barrier();
        u32 low = (i / half) * 2 * half + i % half, high = low + half;
        vec<float, 2> root = roots[i % half * (128 / half)], a = points[low], b = points[high];
        vec<float, 2> rotated = {b.x * root.x - b.y * root.y, b.x * root.y + b.y * root.x};
        points[low] = a + rotated;
        points[high] = a - rotated;
    }
    barrier();
    for (u32 k = i; k < 256; k += 128) out[base + k] = points[k];
}

// Cholesky's decomposition of a 16 x 16 matrix of doubles, then the solution of a system.
GLOBAL void cholesky(const double* in, const double* right, double* out) {
    SHARED double m[16][17];
    SHARED double x[16];
    u32 column = local_x() % 16, row = local_x() / 16;
    m[row][column] = in[group_x() * 256 + local_x()];
    if (row == 0) x[column] = right[group_x() * 16 + column];
    barrier();
    for (u32 k = 0; k < 16; k++) {
        if (row == k && column == k) m[k][k] = __builtin_sqrt(m[k][k]);
        barrier();
        if (column == k && row > k) m[row][k] /= m[k][k];
        barrier();
        if (column > k && row >= column) m[row][column] -= m[row][k] * m[column][k];
        barrier();
    }
    for (u32 k = 0; k < 16; k++) {
        if (local_x() == k) x[k] /= m[k][k];
        barrier();
        if (row == 0 && column > k) x[column] -= m[column][k] * x[k];
        barrier();
    }
    for (u32 k = 16; k-- > 0;) {
        if (local_x() == k) x[k] /= m[k][k];
        barrier();
        if (row == 0 && column < k) x[column] -= m[k][column] * x[k];
        barrier();
    }
    if (row == 0) out[group_x() * 16 + column] = x[column];
}

// Distance of two texts: one diagonal after the other, three of them in LDS.
GLOBAL void edit_distance(const u8* texts, const u32* lengths, u32* out) {
    SHARED u32 diagonals[3][65];
    const u8* a = texts + group_x() * 128;
    const u8* b = a + 64;
    u32 n = lengths[2 * group_x()], m = lengths[2 * group_x() + 1], row = local_x();
    for (u32 d = 0; d <= n + m; d++) {
        u32* now = diagonals[d % 3];
        const u32* last = diagonals[(d + 2) % 3];
        const u32* before = diagonals[(d + 1) % 3];
        // Item r has row r; there are up to 65 rows, the first item has the last as well.
        for (u32 r = row; r <= n; r += 64) {
            if (r > d || d - r > m) continue;
            u32 c = d - r;
            if (r == 0 || c == 0) now[r] = r + c;
            else {
                u32 change = before[r - 1] + (a[r - 1] != b[c - 1]);
                u32 drop = (last[r] < last[r - 1] ? last[r] : last[r - 1]) + 1;
                now[r] = change < drop ? change : drop;
            }
        }
        barrier();
    }
    if (row == 0) out[group_x()] = diagonals[(n + m) % 3][n];
}

// Sparse matrix times vector: a wavefront takes a row, its lanes add by shuffles.
GLOBAL void sparse(const u32* starts, const u32* columns, const double* values, const double* x, double* y, u32 rows) {
    u32 row = (group_x() * 128 + local_x()) / WAVE;
    if (row >= rows) return;
    double sum = 0;
    for (u32 k = starts[row] + lane(); k < starts[row + 1]; k += WAVE) sum = __builtin_fma(values[k], x[columns[k]], sum);
    for (u32 distance = WAVE / 2; distance; distance /= 2) {
        u64 raw = bits_as<u64>(sum);
        sum += bits_as<double>(shuffle((u32)raw, lane() ^ distance) | (u64)shuffle((u32)(raw >> 32), lane() ^ distance) << 32);
    }
    if (lane() == 0) y[row] = sum;
}

// Shortest paths between all pairs of 32 nodes.
GLOBAL void all_paths(const u32* in, u32* out) {
    SHARED u32 length[32][33];
    u32 base = group_x() * 1024;
    for (u32 k = local_x(); k < 1024; k += 256) length[k / 32][k % 32] = in[base + k];
    for (u32 via = 0; via < 32; via++) {
        barrier();
        u32 shorter[4];
        for (u32 k = 0; k < 4; k++) {
            u32 r = (k * 256 + local_x()) / 32, c = local_x() % 32, other = length[r][via] + length[via][c];
            shorter[k] = other < length[r][c] ? other : length[r][c];
        }
        barrier();
        for (u32 k = 0; k < 4; k++) length[(k * 256 + local_x()) / 32][local_x() % 32] = shorter[k];
    }
    barrier();
    for (u32 k = local_x(); k < 1024; k += 256) out[base + k] = length[k / 32][k % 32];
}

// Convolution of an image with 5 x 5 weights: tiles with a margin, which is zero outside of the image.
GLOBAL void convolution(const float* in, const float* weights, float* out, u32 width, u32 height) {
    SHARED float tile[12][20];
    i32 left = (i32)(group_x() * 16) - 2, top = (i32)(group_y() * 8) - 2;
    for (u32 k = local_y() * 16 + local_x(); k < 240; k += 128) {
        i32 x = left + (i32)(k % 20), y = top + (i32)(k / 20);
        bool inside = x >= 0 && y >= 0 && x < (i32)width && y < (i32)height;
        tile[k / 20][k % 20] = inside ? in[y * (i32)width + x] : 0.0f;
    }
    barrier();
    u32 x = group_x() * 16 + local_x(), y = group_y() * 8 + local_y();
    float sum = 0;
    for (u32 dy = 0; dy < 5; dy++)
        for (u32 dx = 0; dx < 5; dx++) sum = __builtin_fmaf(weights[dy * 5 + dx], tile[local_y() + dy][local_x() + dx], sum);
    if (x < width && y < height) out[y * width + x] = sum;
}

// Philox 4x32 with ten rounds: its published vectors, and points in a circle counted with it.
DEVICE static inline vec<u32, 4> philox(vec<u32, 4> counter, vec<u32, 2> key) {
    for (u32 round = 0; round < 10; round++) {
        u64 a = 0xd2511f53ull * counter.x, b = 0xcd9e8d57ull * counter.z;
        counter = vec<u32, 4>{(u32)(b >> 32) ^ counter.y ^ key.x, (u32)b, (u32)(a >> 32) ^ counter.w ^ key.y, (u32)a};
        key += vec<u32, 2>{0x9e3779b9, 0xbb67ae85};
    }
    return counter;
}

GLOBAL void random_points(const vec<u32, 4>* counters, const vec<u32, 2>* keys, vec<u32, 4>* out, u32* inside) {
    u32 i = group_x() * 128 + local_x();
    out[i] = philox(counters[i], keys[i]);
    u32 count = 0;
    for (u32 k = 0; k < 20; k++) {
        vec<u32, 4> r = philox(vec<u32, 4>{i, k, 0, 0}, vec<u32, 2>{1, 2});
        u64 x = r.x >> 1, y = r.y >> 1;
        count += x * x + y * y < 1ull << 62;
    }
    add(inside, count);
}

// Lengths of runs of equal bytes, written where a scan over the group says.
GLOBAL void run_lengths(const u8* in, u8* values, u32* starts, u32* count) {
    SHARED u32 scan[256];
    u32 i = local_x();
    bool head = i == 0 || in[i] != in[i - 1];
    scan[i] = head;
    barrier();
    for (u32 distance = 1; distance < 256; distance *= 2) {
        u32 other = i >= distance ? scan[i - distance] : 0;
        barrier();
        scan[i] += other;
        barrier();
    }
    if (head) {
        values[scan[i] - 1] = in[i];
        starts[scan[i] - 1] = i;
    }
    if (i == 255) *count = scan[255];
}

// The largest element and where it is, the first one of several: pairs are compared as one number.
GLOBAL void largest(const float* in, u32 count, u64* out) {
    SHARED u64 best[128];
    u32 i = local_x();
    u64 mine = 0;
    for (u32 k = i; k < count; k += 128) {
        u32 raw = bits_as<u32>(in[k]);
        u32 ordered = raw >> 31 ? ~raw : raw | 1u << 31;
        u64 candidate = (u64)ordered << 32 | ~k;
        if (candidate > mine) mine = candidate;
    }
    best[i] = mine;
    for (u32 distance = 64; distance; distance /= 2) {
        barrier();
        if (i < distance && best[i + distance] > best[i]) best[i] = best[i + distance];
    }
    if (i == 0) *out = best[0];
}
