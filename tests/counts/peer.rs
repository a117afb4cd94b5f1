//! Counts of llama.cpp's HIP kernels for gfx906, ggml 0.27.0 as Debian compiles it (`libggml0-backend-hip` 0.27.0-1, clang
//! 21.1.8), executed with the same emulator; their results were compared with numpy's. Measured on 2026-11-26. Vector,
//! memory and other instructions, rounding of activations included; of attention without the others.

use super::Peer;

pub(super) const MAT_VEC: Peer = Peer {
    columns: &["llama.cpp, gfx906, n=1", "llama.cpp, gfx906, n=8"],
    rows: &[
        ("Q8_0", &["3.21 + 0.92 + 2.7", "9.77 + 2.20 + 3.9"]),
        ("Q4_0", &["2.71 + 0.74 + 2.3", "7.20 + 1.82 + 3.1"]),
        ("Q4_K", &["5.49 + 1.17 + 2.6", "15.40 + 2.82 + 3.4"]),
        ("Q6_K", &["6.09 + 1.55 + 3.0", "17.09 + 3.57 + 3.7"]),
        ("MXFP4", &["5.12 + 0.92 + 2.7", "9.34 + 2.01 + 3.3"]),
        ("IQ4_XS", &["4.34 + 0.61 + 2.2", "7.56 + 1.42 + 2.4"]),
    ],
};

/// The number of rows of 896 is not recorded; the count depends little on it.
pub(super) const LENGTHS: Peer = Peer {
    columns: &["llama.cpp, gfx906"],
    rows: &[("896 rows of 896", &["4.28 + 1.51 + 4.5"]), ("4864 rows of 896", &["4.28 + 1.51 + 4.5"])],
};

pub(super) const TILES: Peer = Peer {
    columns: &["llama.cpp, gfx906, n=128"],
    rows: &[
        ("Q8_0", &["0.431 + 0.096 + 0.096"]),
        ("Q4_0", &["0.472 + 0.097 + 0.103"]),
        ("Q4_K", &["0.538 + 0.088 + 0.071"]),
        ("Q6_K", &["0.546 + 0.180 + 0.125"]),
        ("MXFP4", &["0.479 + 0.110 + 0.104"]),
        ("IQ4_XS", &["0.473 + 0.108 + 0.106"]),
    ],
};

pub(super) const ATTENTION: Peer = Peer {
    columns: &["llama.cpp, gfx906"],
    rows: &[
        ("one token, 4096 positions, 8 heads of 2", &["0.921 + 0.262"]),
        ("one token, 4096 positions, 8 heads of 8", &["1.502 + 0.354"]),
        ("512 tokens, causal, 8 heads of 2", &["0.674 + 0.082"]),
        ("512 tokens, nothing hidden, 8 heads of 2", &["0.674 + 0.082"]),
        ("1024 tokens, causal, 4 heads of 1", &["0.423 + 0.052"]),
    ],
};
