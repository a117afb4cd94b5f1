// Q4_K and Q5_K, read from shared memory. See weights_k.glsl and stage.glsl.
//
// A piece is two sub-blocks, whose 32 bytes of nibbles an invocation reads: the head of the block is unpacked once for 64
// weights.
#ifndef WEIGHTS_K_STAGED_GLSL
#define WEIGHTS_K_STAGED_GLSL

// Sub-blocks 2 g and 2 g + 1; fifth bits are shifted so that those of sub-block 2 g are the lowest.
#define PIECE 64
#define GROUPS 2

struct Piece {
    uvec4 q[2];
#ifdef A_Q5_K
    uvec4 fifth[2];
#endif
    uint scale;
    vec2 d;
};

Piece load_piece(uint row, uint i) {
    const uint block = ROW_FOURS(row, A_HALVES / 8) + i / 4 * (A_HALVES / 8);
    const uint g = i % 4;
    const uvec4 header = words4[block];
    Piece w;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        w.q[j] = words4[block + A_HALVES / 8 - 8 + 2 * g + j];
#ifdef A_Q5_K
        w.fifth[j] = words4[block + 1 + j] >> 2 * g;
#endif
    }
    w.scale = six_bits(header.yzw, g);
    w.d = unpackHalf2x16(header.x);
    return w;
}

uint bytes(Piece w, uint g, uint j) {
    const uint q = half_bytes(w.q[j / 4][j % 4], g);
#ifdef A_Q5_K
    return q | up(w.fifth[j / 4][j % 4], 4, g) & 0x10101010u;
#else
    return q;
#endif
}

#endif
