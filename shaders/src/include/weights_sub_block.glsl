// Pieces of eight weights of Q4_K or Q5_K as stored, so that nothing waits for them before they are unpacked. All pieces that
// are loaded at a time have the same sub-block index, so shifts and masks are the same for all rows.
#ifndef WEIGHTS_SUB_BLOCK_GLSL
#define WEIGHTS_SUB_BLOCK_GLSL

struct Piece {
    // Factor and minimum of all, F16; 12 bytes with those of sub-blocks, six bits each.
    uvec4 header;
    // Nibbles of sub-blocks 2 g and 2 g + 1; fifth bits of all sub-blocks.
    uvec2 q;
#ifdef A_Q5_K
    uvec2 fifth;
#endif
};

// Sub-block of the pieces that were loaded last.
uint sub_block;

uint bytes(Piece w, uint g, uint j) {
    const uint low = w.q[j] >> sub_block % 2 * 4 & 0x0f0f0f0fu;
#ifdef A_Q5_K
    return low | (w.fifth[j] >> sub_block & 0x01010101u) << 4;
#else
    return low;
#endif
}

// Six bits: for sub-blocks 0 to 3 the lower ones of bytes 0 to 3 of `own`; for sub-blocks 4 to 7 the remaining bits of these
// bytes and, below them, four of each byte of `rest`.
float six_bits(uint own, uint rest) {
    const uint byte = sub_block % 4 * 8;
    const bool is_first = sub_block < 4;
    const uint upper = own >> (is_first ? byte : byte + 2) & (is_first ? 0x3fu : 0x30u);
    return float(upper | rest >> byte & (is_first ? 0u : 0x0fu));
}

float factor(Piece w, uint g) {
    return unpackHalf2x16(w.header.x).x * six_bits(w.header.y, w.header.w);
}

float minimum(Piece w, uint g) {
    return unpackHalf2x16(w.header.x).y * -six_bits(w.header.z, w.header.w >> 4);
}

#endif
