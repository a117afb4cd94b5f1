// Control flow: loops with every kind of exit, jump tables, calls, barriers in loops, grids of any shape.

// Queens on a board of n x n: backtracking with a stack of its own; each item has the first two queens given.
GLOBAL void queens(u32* counts, u32 n) {
    u32 i = group_x() * 64 + local_x();
    if (i >= n * n) return;
    u32 all = (1u << n) - 1, first = 1u << i % n, second = 1u << i / n;
    u32 columns[12], left[12], right[12], free[12], depth = 1, found = 0;
    columns[0] = first, left[0] = first << 1, right[0] = first >> 1;
    if (second & (columns[0] | left[0] | right[0])) {
        counts[i] = 0;
        return;
    }
    columns[1] = first | second, left[1] = (left[0] | second) << 1, right[1] = (right[0] | second) >> 1;
    free[1] = all & ~(columns[1] | left[1] | right[1]);
    while (true) {
        if (columns[depth] == all) {
            found++;
            depth--;
        }
        while (depth >= 1 && free[depth] == 0) depth--;
        if (depth == 0) break;
        u32 queen = free[depth] & (0u - free[depth]);
        free[depth] ^= queen;
        columns[depth + 1] = columns[depth] | queen;
        left[depth + 1] = (left[depth] | queen) << 1;
        right[depth + 1] = (right[depth] | queen) >> 1;
        depth++;
        free[depth] = all & ~(columns[depth] | left[depth] | right[depth]);
    }
    counts[i] = found;
}

// A parser of sums and products by recursive descent: value, or the position of an error with the highest bit set.
struct Text { const u8* at; u32 length, next; bool failed; };
DEVICE NOINLINE i32 sum_of(Text& text);

DEVICE NOINLINE i32 factor_of(Text& text) {
    if (text.next >= text.length) {
        text.failed = true;
        return 0;
    }
    u8 c = text.at[text.next];
    switch (c) {
        case '(': {
            text.next++;
            i32 value = sum_of(text);
            if (text.failed) return 0;
            if (text.next < text.length && text.at[text.next] == ')') text.next++;
            else text.failed = true;
            return value;
        }
        case '-': text.next++; return -factor_of(text);
        case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9': {
            i32 value = 0;
            while (text.next < text.length && text.at[text.next] >= '0' && text.at[text.next] <= '9')
                value = value * 10 + (text.at[text.next++] - '0');
            return value;
        }
        default: text.failed = true; return 0;
    }
}

DEVICE NOINLINE i32 product_of(Text& text) {
    i32 value = factor_of(text);
    while (!text.failed && text.next < text.length && text.at[text.next] == '*') {
        text.next++;
        value *= factor_of(text);
    }
    return value;
}

DEVICE NOINLINE i32 sum_of(Text& text) {
    i32 value = product_of(text);
    while (!text.failed && text.next < text.length) {
        u8 sign = text.at[text.next];
        if (sign != '+' && sign != '-') break;
        text.next++;
        i32 next = product_of(text);
        value = sign == '+' ? value + next : value - next;
    }
    return value;
}

GLOBAL void parser(const u8* texts, const u32* offsets, i32* values, u32* ends) {
    u32 i = local_x();
    Text text = {texts + offsets[i], offsets[i + 1] - offsets[i], 0, false};
    values[i] = sum_of(text);
    ends[i] = text.failed || text.next < text.length ? 1u << 31 | text.next : text.next;
}

// Loops entered in the middle, left from the middle, and left by several ways at once.
GLOBAL void jumps(const u32* in, u32* out) {
    u32 i = group_x() * 64 + local_x(), v = in[i], steps = 0, state = v & 3;
    if (v & 4) goto second;
first:
    steps += 3;
    state = state * 5 + 1;
    if (steps > 200) goto end;
    if (state & 8) goto third;
second:
    steps += 7;
    state ^= v >> (steps & 15);
    for (u32 k = 0; k < (state & 7); k++) {
        if ((v >> k & 3) == 3) goto first;
        if ((v >> k & 3) == 1) continue;
        steps++;
        if (state >> k & 1) break;
    }
third:
    do {
        state += v >> 28 | 1;
        if ((steps += 11) > 220) goto end;
        switch (state % 7) {
            case 0: goto first;
            case 1: goto second;
            case 2: continue;
            case 3: state += 2; [[fallthrough]];
            case 4: state ^= 5; break;
            default: goto again;
        }
        steps++;
    } while (state % 3);
again:
    if (state % 5) goto first;
    goto second;
end:
    out[i] = state ^ steps << 24;
}

// A switch with scattered values and one with many neighbours, of 64-bit numbers as well.
GLOBAL void switches(const u32* in, u32* out) {
    u32 i = group_x() * 64 + local_x(), v = in[i], result;
    switch (v & 0xfff) {
        case 3: result = 1; break;
        case 17: result = v >> 12; break;
        case 0x100: result = ~v; break;
        case 0x7ff: case 0x800: case 0x801: result = v * 3; break;
        case 0xfff: result = 7; break;
        default: result = v & 0xf;
    }
    switch (v >> 27) {
        case 0: result += 11; break;
        case 1: result ^= 0x55; break;
        case 2: result *= 3; break;
        case 3: result -= 1000; [[fallthrough]];
        case 4: result += 77; break;
        case 5: result = __builtin_bitreverse32(result); break;
        case 6: result = __builtin_popcount(result); break;
        case 7: result <<= 3; break;
        case 8: result >>= 2; break;
        case 9: result |= 0x8001; break;
        case 10: result %= 1009; break;
        case 11: result /= 13; break;
        case 12: result = result ? __builtin_clz(result) : 32; break;
        default: result ^= v;
    }
    u64 wide = (u64)(v % 5) << 40 | v % 3;
    switch (wide) {
        case 0: result += 1; break;
        case 1ull << 40: result += 2; break;
        case 3ull << 40 | 2: result += 3; break;
        case 4ull << 40 | 1: result += 4; break;
    }
    out[i] = result;
}

struct Shape { float a, b; };
typedef float (*Measure)(const Shape&, float);
DEVICE NOINLINE float box(const Shape& s, float k) { return s.a * s.b * k; }
DEVICE NOINLINE float triangle(const Shape& s, float k) { return s.a * s.b * 0.5f * k; }
DEVICE NOINLINE float ring(const Shape& s, float k) { return (s.a * s.a - s.b * s.b) * 3.0f * k; }
DEVICE NOINLINE float nothing(const Shape&, float) { return -1.0f; }
CONSTANT Measure measures[4] = {box, triangle, ring, nothing};

template <class F> DEVICE NOINLINE float twice(F f, float x) { return f(f(x)); }

// Calls through tables and pointers, references to the stack, lambdas that capture.
GLOBAL void calls(const Shape* in, const u8* kinds, float* out) {
    u32 i = group_x() * 64 + local_x();
    Shape shape = in[i];
    float sum = 0;
    for (u32 k = 0; k < 3; k++) {
        sum += measures[kinds[i] + k & 3](shape, (float)(k + 1));
        shape.a += 1.0f;
    }
    Measure uniform = kinds[0] & 1 ? box : ring;
    sum += uniform(shape, 2.0f);
    sum += twice([&shape, sum](float x) { return x * shape.b + sum; }, 0.5f);
    out[i] = sum;
}

// The game of life on a torus of 32 x 32 in LDS, as many generations as the launch says. The barrier is at the end of
// the loop: before one at its begin, clang 19 drops the wait for stores of the last iteration if the first one needs
// none (gfx90a).
GLOBAL void life(const u8* in, u8* out, u32 generations) {
    SHARED u8 cells[2][1024];
    u32 base = group_x() * 1024;
    for (u32 c = local_x(); c < 1024; c += 256) cells[0][c] = in[base + c];
    barrier();
    for (u32 g = 0; g < generations; g++) {
        const u8* now = cells[g & 1];
        u8* next = cells[~g & 1];
        for (u32 c = local_x(); c < 1024; c += 256) {
            u32 x = c % 32, y = c / 32, around = 0;
            for (u32 dy = 31; dy <= 33; dy++)
                for (u32 dx = 31; dx <= 33; dx++)
                    if (dx != 32 || dy != 32) around += now[(y + dy) % 32 * 32 + (x + dx) % 32];
            next[c] = around == 3 || (around == 2 && now[c]);
        }
        barrier();
    }
    for (u32 c = local_x(); c < 1024; c += 256) out[base + c] = cells[generations & 1][c];
}

// A loop over the whole grid, and groups whose last wavefront is not full. Barriers only where all items come.
GLOBAL void grid_stride(const float* x, float* y, u32 count, float factor, u32* visits) {
    SHARED u32 visited;
    u32 size = __builtin_amdgcn_workgroup_size_x(), groups = ((const u32*)__builtin_amdgcn_implicitarg_ptr())[0];
    if (local_x() == 0) visited = 0;
    barrier();
    u32 mine = 0;
    for (u32 i = group_x() * size + local_x(); i < count; i += groups * size) {
        y[i] = factor * x[i] + y[i];
        mine++;
    }
    if (mine > 2) add(&visited, mine);
    barrier();
    if (local_x() == 0) visits[group_x()] = visited;
}

// Seven points of a grid in three dimensions whose sizes are no multiples of a group's.
GLOBAL void stencil(const float* in, float* out, u32 nx, u32 ny, u32 nz) {
    u32 x = group_x() * __builtin_amdgcn_workgroup_size_x() + local_x();
    u32 y = group_y() * __builtin_amdgcn_workgroup_size_y() + local_y();
    u32 z = group_z() * __builtin_amdgcn_workgroup_size_z() + local_z();
    if (x >= nx || y >= ny || z >= nz) return;
    u32 at = (z * ny + y) * nx + x;
    float sum = in[at] * -6.0f;
    if (x > 0) sum += in[at - 1];
    if (x + 1 < nx) sum += in[at + 1];
    if (y > 0) sum += in[at - nx];
    if (y + 1 < ny) sum += in[at + nx];
    if (z > 0) sum += in[at - nx * ny];
    if (z + 1 < nz) sum += in[at + nx * ny];
    out[at] = sum;
}
