// A piece of eight weights of a type with blocks, in the form that weights.glsl requires: one group of two quads.
#ifndef WEIGHTS_PIECE_GLSL
#define WEIGHTS_PIECE_GLSL

// A byte for each weight.
struct Piece {
    uvec2 q;
    float scale;
#ifdef HAS_MINIMUM
    float low;
#endif
};

uint bytes(Piece w, uint g, uint j) {
    return w.q[j];
}

float factor(Piece w, uint g) {
    return w.scale;
}

#ifdef HAS_MINIMUM
float minimum(Piece w, uint g) {
    return w.low;
}
#endif

#endif
