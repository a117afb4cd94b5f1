// States of recurrent layers by columns. A column is the part of the state that belongs to one element of a head. It stays in
// registers over all tokens of a run, eight elements in each of D / 8 lanes. D is the length of a column, or 0 for any length
// up to 256. A work-group has columns of one head and slot; the work-groups of one additional slot write zeros for tokens
// without a slot.
#pragma once
#include "blocks.h"
#include "runs.h"

#define COLUMN_THREADS 128u

template <int D> struct Columns {
    static constexpr u32 LANES = (D > 0 ? D : 256) / 8, COUNT = COLUMN_THREADS / LANES;
};

// This lane's eight elements of a row of D or, if D is 0, of length `end`; zeros after it.
template <int D> DEVICE WeightF32::Raw part_of_row(const float *row, u32 part, u32 end) {
    if constexpr (D > 0) return WeightF32::fetch((const u8 *)row, part);
    return fetch_any<WeightF32>((const u8 *)row, part, end);
}

// Loads a lane's eight elements of a column at the start of a run: zeros at position 0.
template <int D> DEVICE void load_column(const float *column, u32 part, u32 end, const Run &run, float *s) {
    UNROLL for (int i = 0; i < 8; i++) s[i] = 0.0f;
    if (run.count == 0 || run.position > 0) WeightF32::decode(part_of_row<D>(column, part, end), s);
}

template <int D> DEVICE void store_column(float *column, u32 part, u32 end, const float *s) {
    store_any(column + part, s, D > 0 ? 8 : minimum(end - minimum(part, end), 8));
}

// Writes zeros for one head of the tokens without a slot, one token in each thread. P: a parameter structure with heads and
// their lengths.
template <u32 THREADS = COLUMN_THREADS, class P> DEVICE void zero_others(const i32 *runs, float *d, const P &p) {
    for (u32 t = thread_id(); t < p.tokens; t += THREADS) {
        if (slot_of(runs, p.slots, t, p.tokens, p.run_fields) < p.slots) continue;
        float *row = d + ((u64)t * p.heads[1] + group_y()) * p.d[1];
        for (u32 i = 0; i < p.d[1]; i++) row[i] = 0.0f;
    }
}

DEVICE float dot8(const float *a, const float *b) {
    float s = a[0] * b[0];
    UNROLL for (int i = 1; i < 8; i++) s = mad(a[i], b[i], s);
    return s;
}
