// Control flow, calls, memory of every width and address space.

GLOBAL void collatz(const u32* in, u32* steps, u32 count) {
    u32 i = group_x() * 128 + local_x();
    if (i >= count) return;
    u64 n = in[i];
    u32 taken = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        taken++;
    }
    steps[i] = taken;
}

GLOBAL void mandelbrot(u16* out, u32 width, u32 height) {
    u32 x = group_x() * 16 + local_x(), y = group_y() * 16 + local_y();
    if (x >= width || y >= height) return;
    float cr = -2.0f + 3.0f * (float)x / (float)width, ci = -1.0f + 2.0f * (float)y / (float)height;
    float zr = 0, zi = 0;
    u16 n = 0;
    for (; n < 200; n++) {
        float rr = zr * zr, ii = zi * zi;
        if (rr + ii > 4.0f) break;
        zi = 2.0f * zr * zi + ci;
        zr = rr - ii + cr;
    }
    out[y * width + x] = n;
}

DEVICE NOINLINE u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

DEVICE NOINLINE u32 ackermann(u32 m, u32 n) {
    if (m == 0) return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

GLOBAL void recursion(u32* out) {
    u32 i = local_x();
    out[i] = i & 1 ? fibonacci(i % 10) : ackermann(i % 6 / 2, i % 3) + 1000;
}

DEVICE NOINLINE u32 twice(u32 x) { return 2 * x; }
DEVICE NOINLINE u32 square(u32 x) { return x * x; }
DEVICE NOINLINE u32 negate(u32 x) { return 0 - x; }
DEVICE NOINLINE u32 mix(u32 x) { return (x ^ x >> 7) * 0x9e3779b1u; }

typedef u32 (*Function)(u32);
DEVICE Function functions[4] = {twice, square, negate, mix};

// A table of function pointers that differ from lane to lane: relocations, s_swappc and the loop over lanes.
GLOBAL void indirect(const u32* which, u32* data) {
    u32 i = group_x() * 64 + local_x();
    data[i] = functions[which[i] & 3](data[i]);
}

CONSTANT u32 primes[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
DEVICE u32 called;

GLOBAL void globals(u32* out) {
    out[local_x()] = primes[local_x() & 15];
    __hip_atomic_fetch_add(&called, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    barrier();
    if (local_x() == 0) out[64] = __hip_atomic_load(&called, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// A small machine: the switch of an interpreter, different in every lane.
GLOBAL void interpreter(const u8* programs, u32 length, u32* out) {
    const u8* program = programs + (group_x() * 64 + local_x()) * length;
    u32 stack[16];
    for (u32 i = 0; i < 16; i++) stack[i] = i;
    u32 top = 4;
    for (u32 pc = 0; pc < length; pc++) {
        u32 a = stack[top & 15], b = stack[(top - 1) & 15];
        switch (program[pc] & 15) {
            case 0: stack[++top & 15] = program[pc] >> 4; break;
            case 1: stack[--top & 15] = a + b; break;
            case 2: stack[--top & 15] = b - a; break;
            case 3: stack[--top & 15] = a * b; break;
            case 4: stack[top & 15] = 0 - a; break;
            case 5: stack[top & 15] = a ^ b; break;
            case 6: stack[top & 15] = b; stack[(top - 1) & 15] = a; break;
            case 7: stack[top & 15] = a << (b & 31); break;
            case 8: stack[top & 15] = (u32)((i32)a >> (b & 31)); break;
            case 9: if ((i32)a > (i32)b) pc++; break;
            case 10: if ((a & 3) == 0) continue; stack[++top & 15] = a + 1; break;
            case 11: stack[top & 15] = a & b; break;
            case 12: stack[top & 15] = a | b; break;
            case 13: stack[a & 15] = b; break;
            case 14: if (a == b) goto done; break;
            default: stack[top & 15] = stack[b & 15]; break;
        }
    }
done:
    u32 sum = top;
    for (u32 i = 0; i < 16; i++) sum = sum * 31 + stack[i];
    out[group_x() * 64 + local_x()] = sum;
}

struct Particle {
    float position[3];
    i8 charge;
    u16 kind;
    double mass;
    u8 name[11];
};

DEVICE NOINLINE Particle moved(Particle p, float by) {
    for (int i = 0; i < 3; i++) p.position[i] += by * (float)(i + 1);
    p.charge = (i8)-p.charge;
    p.kind ^= 0x8001;
    p.mass *= 0.5;
    for (int i = 0; i < 5; i++) {
        u8 kept = p.name[i];
        p.name[i] = p.name[10 - i];
        p.name[10 - i] = kept;
    }
    return p;
}

GLOBAL void structures(const Particle* in, Particle* out, Particle extra, float by) {
    u32 i = group_x() * 64 + local_x();
    Particle p = in[i];
    if (i % 3 == 0) p = extra;
    p = moved(p, by);
    out[i] = p;
}

// Loads and stores of every width, at every alignment that its type allows.
GLOBAL void widths(const u8* in, u8* out) {
    u32 i = local_x();
    const u8* from = in + i * 64;
    u8* to = out + i * 64;
    *(i32*)to = *(const i8*)from + *(const i16*)(from + 2);
    *(u32*)(to + 4) = from[1] * 256u + *(const u16*)(from + 4);
    *(i64*)(to + 8) = *(const i64*)(from + 8) - *(const i32*)(from + 16);
    to[16] = (u8)(from[17] + 1);
    to[17] = from[16] >> 1;
    *(u16*)(to + 18) = (u16)(*(const u16*)(from + 18) * 3);
    *(u32*)(to + 20) = *(const u32*)(from + 20) ^ 0x80000001u;
    for (int k = 0; k < 3; k++) ((u32*)(to + 24))[k] = ((const u32*)(from + 24))[2 - k];
    for (int k = 36; k < 47; k++) to[k] = from[k];
    to[47] = 0;
    for (int k = 0; k < 4; k++) ((u32*)(to + 48))[k] = ((const u32*)(from + 48))[k] + 1;
}

DEVICE NOINLINE u32 through(const u32* anywhere, u32 index) { return anywhere[index]; }
DEVICE NOINLINE void into(u32* anywhere, u32 index, u32 value) { anywhere[index] = value; }

// Generic pointers: the same code reads and writes global memory, LDS and scratch.
GLOBAL void generic(u32* data, u32* out) {
    SHARED u32 shared[64];
    u32 own[4];
    u32 i = local_x();
    for (u32 k = 0; k < 4; k++) own[k] = i * 10 + k;
    shared[i] = 1000 + i;
    barrier();
    u32* where = i % 3 == 0 ? data + 4 * i : i % 3 == 1 ? own : shared + (i & ~3u);
    u32 seen = through(where, i & 3);
    barrier();
    into(where, (i + 1) & 3, seen + 7);
    barrier();
    out[i] = i % 3 == 1 ? own[(i + 1) & 3] * 2 + own[i & 3] : seen;
    out[64 + i] = shared[i];
}

// Nested divergence with early exits from loops.
GLOBAL void divergence(const u32* in, u32* out) {
    u32 i = group_x() * 64 + local_x();
    u32 v = in[i], sum = 0;
    for (u32 a = 0; a < (v & 15); a++) {
        if ((v >> (a & 15)) & 1) continue;
        for (u32 b = a; b < 12; b++) {
            if (((v >> 4) & 15) == b) break;
            if ((a ^ b) == ((v >> 8) & 15)) {
                sum += 1000;
                goto out_of_both;
            }
            sum += a * b + 1;
        }
        if (sum > 300) {
            out[i] = sum;
            return;
        }
    }
out_of_both:
    out[i] = sum ^ v;
}
