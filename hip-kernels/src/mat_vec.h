// Products with few columns: the weights are read once, so their bandwidth is the limit.
//
// One launch computes up to three products of one input, with operations before and after them (ProductsParams): the input may
// be RMS_NORM(x) * w; a product may have a bias and a residual; two products may be gate and `up` of a GLU. A single product of
// any batch, and products with experts (MatVecParams), use the same kernels: these choices are the same for all threads and
// outside of the loop over k.
//
// A wavefront computes R rows of the weights times N columns, in `passes` passes; for a GLU R / 2 rows of the gate and the same
// rows of `up`. If there are few rows, 1 << split wavefronts of a work-group share them, each with a part of k. Lane l has
// elements 8l .. 8l + 8 of each 8 * WAVE elements, or twice as many:
//
//   * Weights: loads of 8 to 32 bytes for each lane and row directly from the quantised blocks (plus the head of the block,
//     which adjacent lanes share), so that a wavefront reads contiguous memory.
//   * Activations: of one column, or of two that are rounded, the work-group first brings a chunk of k into LDS, so that all
//     rows of the work-group share its preparation. With more columns they come from the caches.
//   * A step is one or two pieces of k of R rows. If a byte holds parts of elements that are APART, the two pieces have this
//     distance: each byte is loaded once, and the head of a block serves both.
//
// The norm needs no pass of its own: sum(a x w) * rsqrt(mean(x^2) + eps); the squares are summed while x is brought into LDS.
//
// The sum of a lane is kept in F32. After one reduction over the lanes, lane r + R * n has row r of column n.
#pragma once
#include "activation.h"
#include "blocks.h"
#include "vec_arguments.h"

// ---- Columns ----
//
// Every structure for a column has
//
//   Raw<E>   E adjacent elements, as loaded
//   fetch    loads elements base + k .. base + k + E; `base` is the same in all lanes
//   bias     the contribution of the bias of the weights to the sum of these products; the sum of the elements if weights
//            have an offset
//   add      adds the product with E weights to a sum

struct InMemory {
    static constexpr bool IS_LDS = false;
    typedef const u8 *Bytes;
    typedef const float *Floats;
    template <int E> using Words = const ::Bytes<E> *;
};
struct InLds {
    static constexpr bool IS_LDS = true;
    typedef const IN_LDS u8 *Bytes;
    typedef const IN_LDS float *Floats;
    template <int E> using Words = const IN_LDS ::Bytes<E> *;
};

// Unchanged. In LDS, elements 0 .. 4 of each eight of a chunk come first, then 4 .. 8, so that adjacent lanes read adjacent
// words.
template <class PLACE, u32 SECOND> struct ColumnF32 {
    static constexpr bool IS_LDS = PLACE::IS_LDS, ONE_LOOP = false;
    typename PLACE::Floats at;
    template <int E> struct Raw { WeightF32::Raw eight[E / 8]; };
    template <int E> INLINED Raw<E> fetch(u32 base, u32 k) const {
        Raw<E> raw;
        UNROLL for (int i = 0; i < E / 8; i++) {
            if constexpr (SECOND == 0) {
                raw.eight[i] = WeightF32::fetch((const u8 *)(at + base), k + i * 8);
            } else {
                auto four = (const IN_LDS lds_f32x4 *)(at + base / 2 + k / 2) + i;
                raw.eight[i] = {four[0], four[SECOND / 4]};
            }
        }
        return raw;
    }
    INLINED float one(u32 k) const {
        return SECOND == 0 ? at[k] : at[k / 8 * 4 + k % 4 + (k & 4 ? SECOND : 0)];
    }
    template <class W, class B> DEVICE float bias(const B &b) {
        float sum = 0.0f;
        if constexpr (W::BIAS != 0.0f || W::OFFSET) {
            UNROLL for (const auto &eight : b.eight) {
                UNROLL for (int j = 0; j < 4; j++) sum += eight.low[j] + eight.high[j];
            }
        }
        return W::OFFSET ? sum : sum * W::BIAS;
    }
    template <class W, class A, class B> DEVICE void add(const A &raw, const B &b, float bias, float *sum) {
        constexpr int E = sizeof(b) / sizeof(float);
        float w[E], y[E];
        W::decode(raw, w);
        UNROLL for (int i = 0; i < E / 8; i++) WeightF32::decode(b.eight[i], y + i * 8);
        if constexpr (W::BLOCK == 1) {
            UNROLL for (int j = 0; j < E; j++) *sum = mad(w[j], y[j], *sum);
        } else {
            float s = w[0] * y[0];
            UNROLL for (int j = 1; j < E; j++) s = mad(w[j], y[j], s);
            if constexpr (W::OFFSET) {
                *sum = mad(W::factor(raw), s, mad(W::offset(raw), bias, *sum));
            } else {
                *sum = mad(W::factor(raw), s - bias, *sum);
            }
        }
    }
};

// Sources of columns: SOURCE has
//
//   Column   the structure of a column
//   CHUNK    number of elements of a column that are available at a time
//   WIDE     number of adjacent elements that a lane takes in long rows
//   Shared   its LDS
//   begin    starts a plane of the input
//   bring    makes `count` elements from `chunk` on available to the work-group; EIGHTS: a multiple of 8. All threads
//            take part
//   column   column n, or the last one if there are fewer
//   scale    factor of the norm for results of a column

// F32 from memory, without the norm.
template <int N> struct FromMemoryF32 {
    typedef ColumnF32<InMemory, 0> Column;
    static constexpr u32 CHUNK = ~0u;
    static constexpr int WIDE = 8;
    struct Shared {};
    const float *at;
    INLINED void begin(const VecOperands &o, const VecParams &, const UseStart &z) {
        at = (const float *)o.b + z.input;
    }
    template <bool> INLINED void bring(const VecOperands &, const VecParams &, Shared *, u32, u32) {}
    INLINED Column column(const VecParams &p, Shared *, u32 n) const {
        return {at + (u64)minimum(group_y() * N + n, p.p.n - 1) * p.p.nb1[0]};
    }
    DEVICE float scale(const VecParams &, const Shared *, u32) { return 1.0f; }
};

// Loads eight adjacent elements of `at` or, with EIGHTS false, as many as there are before `end`.
template <bool EIGHTS> DEVICE WeightF32::Raw fetch_eight_or_rest(const float *at, u32 k, u32 end) {
#if !DEVICE_AMD
    // Two loads if the base is aligned, which is the same for all threads.
    if (EIGHTS && (u64)at % 16 == 0) return Aligned<WeightF32>::fetch((const u8 *)at, k);
#endif
    if constexpr (EIGHTS) return WeightF32::fetch((const u8 *)at, k);
    return fetch_any<WeightF32>((const u8 *)at, k, end);
}

// Brings chunks of F32 columns into LDS in the form of FORM: `stage` puts eight adjacent elements of a column into a
// FORM::Chunk<N>.
template <class FORM, int N> struct FromLds {
    typedef typename FORM::Column Column;
    static constexpr u32 CHUNK = FORM::CHUNK / N;
    static constexpr int WIDE = FORM::WIDE;
    struct Shared {
        typename FORM::template Chunk<N> chunk;
        float squares[N][VEC_WAVES];
    };
    const float *x[N];
    float squares[N];
    INLINED void begin(const VecOperands &o, const VecParams &p, const UseStart &z) {
        UNROLL for (u32 n = 0; n < N; n++) {
            x[n] = (const float *)o.b + z.input + (u64)minimum(group_y() * N + n, p.p.n - 1) * p.p.nb1[0];
            squares[n] = 0.0f;
        }
    }
    template <bool EIGHTS>
    INLINED void bring(const VecOperands &o, const VecParams &p, Shared *shared,
                                                      u32 chunk, u32 count) {
        auto fetch = fetch_eight_or_rest<EIGHTS>;
        bool norm = p.p.parts & PART_NORM;
        barrier();
        NO_UNROLL for (u32 at = offset_here(thread_id()) * 8; at < count; at += VEC_THREADS * 8) {
            WeightF32::Raw y[N];
            UNROLL for (int n = 0; n < N; n++) y[n] = fetch(x[n] + chunk, at, count);
            if (norm) {
                WeightF32::Raw w = fetch(o.w + chunk, at, count);
                UNROLL for (int n = 0; n < N; n++) {
                    UNROLL for (int j = 0; j < 4; j++) {
                        squares[n] = mad(y[n].low[j], y[n].low[j], squares[n]);
                        squares[n] = mad(y[n].high[j], y[n].high[j], squares[n]);
                    }
                    y[n].low *= w.low;
                    y[n].high *= w.high;
                }
            }
            UNROLL for (int n = 0; n < N; n++) FORM::stage(&shared->chunk, n, at, y[n]);
        }
        if (norm && chunk + count == p.p.k) {
            UNROLL for (int n = 0; n < N; n++) {
                float sum = wave_reduce<Sum>(squares[n]);
                if (lane_id() == 0) shared->squares[n][wave_id()] = sum;
            }
        }
        barrier();
    }
    INLINED Column column(const VecParams &, Shared *shared, u32 n) const {
        return FORM::column(&shared->chunk, n);
    }
    DEVICE float scale(const VecParams &p, const Shared *shared, u32 n) {
        if (!(p.p.parts & PART_NORM)) return 1.0f;
        float sum = 0.0f;
        UNROLL for (int i = 0; i < VEC_WAVES; i++) sum += shared->squares[n][i];
        return 1.0f / __builtin_sqrtf(sum / (float)p.p.k + p.p.eps);
    }
};

// F32.
struct FormF32 {
    static constexpr u32 CHUNK = 4096;
    static constexpr int WIDE = 16;
    template <int N> struct __attribute__((aligned(16))) Chunk {
        float y[N][CHUNK / N];
    };
    typedef ColumnF32<InLds, CHUNK / 2> Column;
    DEVICE void stage(Chunk<1> *chunk, u32 n, u32 at, const WeightF32::Raw &y) {
        *(lds_f32x4 *)(chunk->y[n] + at / 2) = y.low;
        *(lds_f32x4 *)(chunk->y[n] + CHUNK / 2 + at / 2) = y.high;
    }
    DEVICE Column column(Chunk<1> *chunk, u32 n) { return {(InLds::Floats)chunk->y[n]}; }
};

// ---- Rows times columns ----

template <class W, class C, int N, int R> struct MatVec {
    typedef C Column;
    const u8 *row[R];
    C column[N];
    float sum[R][N];

    // Pieces of a lane's weights, loaded and not yet multiplied. Columns outside of LDS are loaded with them.
    template <int E, int COUNT> struct Step {
        decltype(W::template fetch<E>(nullptr, 0)) a[COUNT][R];
        typename C::template Raw<E> b[C::IS_LDS ? 1 : COUNT][C::IS_LDS ? 1 : N];
    };
    // Two pieces whose elements are in the same bytes. Elements of such pairs are numbered without the second ones; `spread`
    // returns where they are.
    template <int COUNT> static constexpr bool PAIRS = COUNT == 2 && W::APART > 0;
    template <int COUNT> INLINED static u32 spread(u32 k) {
        if constexpr (PAIRS<COUNT>) return (k / W::APART * 2 * W::APART) | k % W::APART;
        return k;
    }
    // Distance of piece `i` from the first one.
    template <int E, int COUNT> static constexpr u32 further(u32 i) { return i * (PAIRS<COUNT> ? W::APART : E * WAVE); }

    // Loads the step from element `from` of a chunk on, which starts at `chunk`. WHOLE: all of it is before the `end`;
    // otherwise the first piece stands for those after that. Where blocks count the elements, the rows' addresses then stay the
    // same and only a lane's offset grows.
    template <int E, int COUNT, bool WHOLE> INLINED void load(Step<E, COUNT> *step, u32 chunk, u32 from, u32 end) {
        constexpr bool PAIR = PAIRS<COUNT>;
        constexpr u32 HALVES = PAIR ? 2 : 1;
        u32 lane = lane_id() * E, known = spread<COUNT>(lane), here[COUNT], skip[COUNT] = {};
        u32 base = WHOLE ? from : 0;
        UNROLL for (u32 i = 0; i < COUNT; i++) {
            u32 more = further<E, COUNT>(i), k = (from - base) / HALVES + lane + (WHOLE ? 0 : more);
            if (WHOLE && !PAIR) skip[i] = more;
            if (i > 0 && (PAIR || WHOLE)) {
                here[i] = here[0] + more - skip[i];
            } else {
                here[i] = spread<COUNT>(offset_here(WHOLE || k < (end - base) / HALVES ? k : 0));
            }
        }
        if constexpr (!WHOLE) UNROLL for (int r = 0; r < R; r++) row[r] = address_here(row[r]);
        UNROLL for (u32 i = 0; i < COUNT; i++) {
            UNROLL for (int r = 0; r < R; r++) {
                u64 block = (chunk + base) / W::BLOCK;
                const u8 *at = WHOLE ? row[r] + block * W::BYTES + skip[i] / W::BLOCK * W::BYTES : row[r];
                step->a[i][r] = W::template fetch<E>(at, WHOLE ? here[i] : chunk + here[i]);
                if constexpr (W::BLOCK > 1) W::settle(&step->a[i][r], known + further<E, COUNT>(i));
            }
            if constexpr (!C::IS_LDS) {
                UNROLL for (int n = 0; n < N; n++) {
                    step->b[i][n] = column[n].template fetch<E>(chunk + base + skip[i], here[i]);
                }
            }
        }
        LOADS_FIRST();
    }

    // Multiplies a step by elements of the columns. Pieces of a pair end together.
    template <int E, int COUNT, bool WHOLE> INLINED void multiply(const Step<E, COUNT> &step, u32 from, u32 end) {
        constexpr u32 TOGETHER = PAIRS<COUNT> ? COUNT : 1;
        UNROLL for (u32 i = 0; i < COUNT; i += TOGETHER) {
            u32 k = spread<COUNT>(offset_here(lane_id() * E)), skip = further<E, COUNT>(i);
            if (!WHOLE && from + k + skip >= end) continue;
            UNROLL for (u32 j = i; j < i + TOGETHER; j++) {
                multiply_piece<E, COUNT>(step, j, from + skip, k + further<E, COUNT>(j - i));
            }
        }
    }
    template <int E, int COUNT> INLINED void multiply_piece(const Step<E, COUNT> &step, u32 i, u32 base, u32 k) {
        typename C::template Raw<E> b[N];
        UNROLL for (int n = 0; n < N; n++) {
            if constexpr (C::IS_LDS) b[n] = column[n].template fetch<E>(base, k);
            else b[n] = step.b[i][n];
        }
        decltype(C::template bias<W>(b[0])) bias[N];
        UNROLL for (int n = 0; n < N; n++) bias[n] = C::template bias<W>(b[n]);
        UNROLL for (int r = 0; r < R; r++) {
            UNROLL for (int n = 0; n < N; n++) C::template add<W>(step.a[i][r], b[n], bias[n], &sum[r][n]);
            // Decoding weights of several rows at a time would take registers.
            ONE_BY_ONE();
        }
    }

    // Rows after the last are computed as the last one, and not stored. The rows of a matrix follow each other, so that only
    // the first needs a product.
    INLINED void begin(const VecArguments &here, const Rows &of, const UseStart &z) {
        const VecParams &p = here.p;
        bool glu = p.p.parts & PART_GLU;
        u32 last = of.m - 1, first = minimum(of.row, last);
        u64 step = (u64)p.p.nb0[0] * W::BYTES, begin = first * (u64)p.p.nb0[0] + z.matrix;
        UNROLL for (int r = 0; r < R; r++) {
            if (r == 0 || (r == R / 2 && glu)) {
                row[r] = of.memory(here, r > 0) + (begin + of.offset(here, r > 0)) * W::BYTES;
            } else {
                u32 before = of.row + (r > R / 2 && glu ? r - R / 2 : r) - 1;
                row[r] = row[r - 1] + (before < last ? step : 0);
            }
            UNROLL for (int n = 0; n < N; n++) sum[r][n] = 0.0f;
        }
    }

    // Pieces in flight: activations of many columns take the registers, and so do two pieces without common bytes where a step
    // is under way while columns are brought.
    static constexpr int DEPTH = N > 2 || (C::ONE_LOOP && W::APART == 0) ? 1 : 2;

    // Processes this wavefront's part of `count` elements from `chunk` on. If `bring` is wanted, calls it once.
    //
    // With columns in 8 bits, one loop does for all lengths on AMD's processors, and the weights of the first step are asked
    // for before `bring`, as far as registers allow it. Otherwise a loop over whole steps comes first. It takes fewer registers
    // for columns in F32; and NVIDIA's compiler interleaves the pieces of a step: with one loop decode of a 1B in Q8_0 was 6 %
    // slower on an H200, of a 0.5B in Q4_0 3 % faster.
    template <int E, class BRING> INLINED void run(u32 chunk, u32 count, u32 split, u32 wanted, const BRING &bring) {
        constexpr u32 LONG = DEPTH * E * WAVE;
        u32 part = wave_id() % (1u << split), from = part * LONG;
        if constexpr (C::ONE_LOOP) {
            // Not two pieces of Q5_K, which has the most.
            constexpr bool FIRST = N == 1 && (DEPTH == 1 || sizeof(decltype(W::template fetch<E>(nullptr, 0))) <= 48);
            if (!FIRST && wanted) bring();
            NO_UNROLL do {
                Step<E, DEPTH> step;
                load<E, DEPTH, false>(&step, chunk, from, count);
                if (FIRST && wanted) bring();
                wanted = 0;
                multiply<E, DEPTH, false>(step, from, count);
                from += LONG << split;
            } while (from < count);
            return;
        }
        if (wanted) bring();
        constexpr int LAST = N <= 2 && WAVE > 32 ? 8 : E;
        if constexpr (DEPTH > 1) {
            NO_UNROLL for (; from + LONG <= count; from += LONG << split) {
                Step<E, DEPTH> step;
                load<E, DEPTH, true>(&step, chunk, from, count);
                multiply<E, DEPTH, true>(step, from, count);
            }
            from = count / LONG * LONG + part * (LAST * WAVE);
        }
        u32 lane = offset_here(lane_id());
        NO_UNROLL for (; from + lane * LAST + LAST <= count; from += LAST * WAVE << split) {
            Step<LAST, 1> step;
            load<LAST, 1, true>(&step, chunk, from, count);
            multiply<LAST, 1, true>(step, from, count);
        }
        // The rest of rows whose length is not a multiple of 8; rows of blocks have none.
        if constexpr (W::BLOCK == 1) {
            NO_UNROLL for (u32 k = from + lane * LAST; k < count; k++) {
                float w[R];
                UNROLL for (int r = 0; r < R; r++) w[r] = W::one(row[r], chunk + k);
                UNROLL for (int n = 0; n < N; n++) {
                    float y = column[n].one(k);
                    UNROLL for (int r = 0; r < R; r++) sum[r][n] = mad(w[r], y, sum[r][n]);
                }
            }
        }
    }

    // Returns this lane's sum over all wavefronts that share the rows; for the gate of a GLU, `up` gets the other sum.
    INLINED float finish(u32 split, float (*scratch)[N * R], float *up) const {
        u32 lane = offset_here(lane_id());
        float mine = 0.0f;
        UNROLL for (u32 i = 0; i < N * R; i += 4) {
            float four[4];
            UNROLL for (u32 j = 0; j < 4; j++) four[j] = sum[(i + j) % R][(i + j) / R];
            float s = wave_sum_of_four(four);
            mine = lane / 4 == i / 4 || N * R == 4 ? s : mine;
        }
        if (split > 0) {
            barrier();
            if (lane < N * R) scratch[wave_id()][lane] = mine;
            barrier();
            u32 first = wave_id() >> split << split;
            mine = 0.0f;
            NO_UNROLL for (u32 i = first; i < first + (1u << split); i++) mine += scratch[i][lane % (N * R)];
        }
        *up = lanes_xor<R / 2>(mine);
        return mine;
    }
};

template <class SOURCE, int N, int R> struct VecShared {
    typename SOURCE::Shared source;
    float scratch[VEC_WAVES][N * R];
};

// Source of the weights: directly from memory. (mat_vec_ring.h has another one.)
struct FromMemory {
    INLINED void start(const VecArguments &, u32) {}
    // Multiplies `count` elements from `chunk` on, of chunks with at most `most` elements. If `bring` is wanted, calls it once
    // before.
    template <int E, class T, class BRING>
    INLINED void run(const VecArguments &, T &t, const VecParams &p, u32 chunk, u32, u32 count, bool wanted,
                     const BRING &bring) {
        t.template run<E>(chunk, count, p.v.split, wanted, bring);
    }
};

// group_x: rows; group_y: groups of N columns; group_z: planes, or tokens for a sum over experts.
template <class W, class SOURCE, int N, int R, class WEIGHTS = FromMemory>
DEVICE void mat_vec(const VecArguments &known, VecShared<SOURCE, N, R> *shared) {
    WEIGHTS weights;
    weights.start(known, SOURCE::CHUNK);
    VecArguments here = known;
    u32 pass = 0;
    NO_UNROLL do {
        float x = 0.0f;
        Rows rows = Rows::of_group(N > 4 ? arguments_here(known) : known, R, pass);
        NO_UNROLL for (u32 use = 0; use < (known.p.v.summed ? known.p.v.summed : 1); use++) {
            MatVec<W, typename SOURCE::Column, N, R> t;
            UseStart z;
            {
                here = arguments_here(N > 4 ? known : here);
                const VecOperands &o = here.o;
                const VecParams &p = here.p;
                z = start_of_use(o, p, use);
                // Zeros.
                if (z.absent) continue;
                t.begin(here, rows, z);
                SOURCE source;
                source.begin(o, p, z);
                UNROLL for (u32 n = 0; n < N; n++) t.column[n] = source.column(p, &shared->source, n);
                // The host gives further passes only where LDS holds the whole columns of the only use.
                bool wanted = pass == 0;
                // Where no two groups of elements share bytes, AMD's processors take whole blocks with one column.
                constexpr bool WHOLE = SOURCE::Column::ONE_LOOP && N == 1 && W::BLOCK == 32 && W::APART == 0;
                constexpr int E = W::BLOCK == 1 ? 8 : WHOLE ? 32 : SOURCE::WIDE;
                u32 chunk = 0;
                NO_UNROLL do {
                    u32 count = minimum(p.p.k - chunk, SOURCE::CHUNK);
                    weights.template run<E>(known, t, p, chunk, SOURCE::CHUNK, count, wanted, [&] INLINED {
                        source.template bring<(W::BLOCK > 1)>(o, p, &shared->source, chunk, count);
                    });
                    // Columns that are not brought into LDS are one chunk.
                    if constexpr (!SOURCE::Column::IS_LDS) break;
                    chunk += SOURCE::CHUNK;
                } while (chunk < p.p.k);
            }
            here = arguments_here(N > 4 ? known : here);
            const VecOperands &o = here.o;
            const VecParams &p = here.p;
            // The pointers of many columns leave no registers for them.
            if constexpr (N > 4) {
                rows = Rows::of_group(here, R, pass);
                z = start_of_use(o, p, use);
            }
            u32 lane = offset_here(lane_id());
            float up = 0.0f, scale = SOURCE::scale(p, &shared->source, minimum(lane / R, N - 1));
            float y = t.finish(p.v.split, shared->scratch, &up) * scale;
            auto bias = [&] INLINED(const float *of) {
                return of[(u64)z.a2 * rows.m + minimum(rows.row + lane % R, rows.m - 1)];
            };
            u32 parts = p.p.parts >> rows.which;
            if (parts & PART_BIAS) y += bias(rows.bias(here));
            if (p.p.parts & PART_GLU) {
                up *= scale;
                if (parts & PART_BIAS << 1) up += bias(here.o.bias[1] + here.p.p.offb[1]);
                y = gated_by_sigmoid(p.p, y, up);
            }
            x += p.v.summed ? y * o.factor[z.factor] : y;
        }
        const VecOperands &o = here.o;
        const VecParams &p = here.p;
        if constexpr (N > 4) rows = Rows::of_group(here, R, pass);
        // With one column, lanes after the rows have none. One condition, so that all arguments are read before it.
        u32 lane = offset_here(lane_id()), mine = N == 1 ? lane : lane % R, column = N == 1 ? 0 : lane / R;
        u32 row = rows.row + mine;
        bool inside = (wave_id() % (1u << p.v.split) == 0) & (mine < rows.of_wave) & (row < rows.m);
        if constexpr (N > 1) inside &= (lane < N * R) & (group_y() * N + column < p.p.n);
        if (inside) {
            // Index of the first column, and the value that the lane adds to it.
            u64 first = (u64)group_z() * p.p.n + group_y() * N;
            if (p.p.parts & PART_RESIDUAL) x += (o.residual + first * p.p.nbr)[column * p.p.nbr + row];
            (one_of(here, here.o.d, rows.which) + first * rows.m)[column * rows.m + row] = x;
        }
    } while (++pass < known.p.v.passes && !Rows::of_group(N > 4 ? arguments_here(known) : known, R, pass).done());
}

// Addresses and distances of the rows of weights, for by_alignment().
template <class W> DEVICE u64 places_of_rows(const VecArguments &known) {
    const VecOperands &o = known.o;
    const ProductsParams &p = known.p.p;
    u64 rows = (u64)p.nb0[0] | p.nb0[1] | known.p.v.nb03 | p.off0[0] | p.off0[1] | p.off0[2];
    return rows * W::BYTES | (u64)o.a[0] | (u64)o.a[1] | (u64)o.a[2];
}

// A kernel; the last arguments are SOURCE.
#define MAT_VEC(name, W, N, R, ...) \
    KERNEL(VEC_THREADS) name##_n##N##_r##R(VEC_ARGUMENTS) { \
        LDS VecShared<__VA_ARGS__, N, R> shared; \
        VecArguments known = {VEC_OPERANDS, p}; \
        by_alignment<W>(places_of_rows<W>(known), [&] INLINED(auto rows) { \
            mat_vec<decltype(rows), __VA_ARGS__, N, R>(known, &shared); \
        }); \
    }
