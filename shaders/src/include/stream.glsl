// Tiles that work-groups share evenly, for mul_mat_tile.comp. With a tile for each work-group, most of a device is idle in the
// last round: 448 tiles keep 264 resident work-groups busy for 1.7 rounds but take two. Here there are as many work-groups as
// are resident (STREAMED, which is the grid's x). They take whole tiles as long as there is one for each. The remaining tiles
// are divided: all their steps along k, tile after tile, become pieces of equal length (within one step), one for each
// work-group.
//
// A piece usually starts and ends within tiles. The sums of a part of a tile go to memory: each work-group has room for two
// parts, of the tile in which its piece starts and of the one in which it ends. The last of a tile's work-groups adds all of
// its parts in the order of k, so that a result does not depend on which one is last. Whole tiles come after pieces, so that no
// work-group waits for the parts.
//
// STREAMED is 0 if each work-group has a tile of its own. The host ensures that each has work: if there are fewer tiles than
// work-groups, at least one step.
#ifndef STREAM_GLSL
#define STREAM_GLSL

layout(constant_id = 13) const uint STREAMED = 0;

// Sums of parts, columns of BM; a counter for each tile.
layout(set = 0, binding = 3, std430) coherent buffer Parts { float parts[]; };
layout(set = 0, binding = 3, std430) coherent buffer Parts4 { vec4 parts4[]; };
layout(set = 0, binding = 4, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"

// Vectors of four sums that an invocation adds at a time.
const uint QUADS = 4;

struct Stream {
    // Steps of a tile.
    uint steps;
    // Steps of a piece; number of pieces, the first ones, with one step more.
    uint each, longer;
    // Next step of this work-group's piece, and the end of the piece.
    uint next, after;
    // Next whole tile of this work-group, and their end.
    uint whole, end_of_whole;
    // The tile, and its part along k.
    uint tile, begin, end;
};

// First step of piece i.
uint begin_of_piece(Stream s, uint i) {
    return i * s.each + min(i, s.longer);
}

// Index of the piece with a step.
uint piece_with(Stream s, uint step) {
    const uint of_longer = s.longer * (s.each + 1);
    return step < of_longer ? step / (s.each + 1) : s.longer + (step - of_longer) / max(s.each, 1);
}

// Work of this work-group, for this many tiles.
Stream own_piece(uint tiles_of_all) {
    const uint groups = max(STREAMED, 1);
    Stream s;
    s.steps = (p.k + BK - 1) / BK;
    const uint rounds = tiles_of_all / groups;
    uint cut = tiles_of_all - rounds * groups;
    // Almost a whole round: not divided.
    cut = rounds > 0 && cut * 8 >= groups * 7 ? 0 : cut;
    s.each = cut * s.steps / groups;
    s.longer = cut * s.steps - s.each * groups;
    s.next = begin_of_piece(s, gl_WorkGroupID.x);
    s.after = begin_of_piece(s, gl_WorkGroupID.x + 1);
    s.whole = cut + gl_WorkGroupID.x;
    s.end_of_whole = tiles_of_all;
    return s;
}

bool has_parts(Stream s) {
    return s.next < s.after || s.whole < s.end_of_whole;
}

// Place of the sums of piece i for a tile.
uint place_of_part(uint i, bool is_first) {
    return (2 * i + (is_first ? 1 : 0)) * BM * BN;
}

uint own_place;

// Stores a sum of this work-group's part.
void put_sum(uint r, uint c, float sum) {
    parts[own_place + c * BM + r] = sum;
}

// Advances to the next part of a tile.
void next_part(inout Stream s) {
    s.begin = 0;
    s.end = p.k;
    part_of_tile = false;
    if (STREAMED == 0) {
        return;
    }
    if (s.next == s.after) {
        s.tile = s.whole;
        s.whole += STREAMED;
        return;
    }
    s.tile = s.next / s.steps;
    const uint first = s.next - s.tile * s.steps;
    const uint last = min(s.after - s.tile * s.steps, s.steps);
    s.begin = first * BK;
    s.end = min(last * BK, p.k);
    s.next = s.tile * s.steps + last;
    part_of_tile = first > 0 || last < s.steps;
    own_place = place_of_part(gl_WorkGroupID.x, first == 0);
}

// Called by all invocations of a work-group that has its sums of a tile. If these are of a part, and it is the last one, adds
// all parts.
void join_parts(Stream s) {
    if (!part_of_tile) {
        return;
    }
    part_of_tile = false;
    const uint first = piece_with(s, s.tile * s.steps);
    const uint last = piece_with(s, (s.tile + 1) * s.steps - 1);
    if (!is_last(s.tile, last - first + 1)) {
        return;
    }
    for (uint i = gl_LocalInvocationIndex; i < BM * BN / 4; i += QUADS * gl_WorkGroupSize.x) {
        vec4 total[QUADS];
        [[unroll]] for (uint j = 0; j < QUADS; j++) {
            total[j] = vec4(0.0);
        }
        for (uint piece = first; piece <= last; piece++) {
            const uint at = place_of_part(piece, piece == first) / 4 + i;
            [[unroll]] for (uint j = 0; j < QUADS; j++) {
                total[j] += parts4[at + j * gl_WorkGroupSize.x];
            }
        }
        [[unroll]] for (uint j = 0; j < QUADS; j++) {
            const uint at = 4 * (i + j * gl_WorkGroupSize.x);
            const float factor = factor_of(at / BM);
            [[unroll]] for (uint e = 0; e < 4; e++) {
                store(at % BM + e, at / BM, total[j][e] * factor);
            }
        }
    }
    if (gl_LocalInvocationIndex == 0) {
        arrived[s.tile] = 0;
    }
}

#endif
