// Parameters of kernels, passed by value after the operand pointers: the structures of `ggml_core::kernel` field by field (a
// test compares them). Extents and strides count elements, or blocks of weights; `off` fields are 0 if pointers are exact.
#pragma once

typedef unsigned int u32;

struct BinaryParams {
    u32 ne[4];
    u32 ne1[4];
    u32 nb0[4];
    u32 nb1[4];
    u32 nbd[4];
    u32 off0;
    u32 off1;
    u32 offd;
    u32 op;
};

struct UnaryParams {
    u32 ne[4];
    u32 nb0[4];
    u32 nb[3][4];
    u32 off0;
    u32 off[3];
    u32 offd;
    u32 count;
    u32 op;
    float scale[2][2];
};

struct GluParams {
    u32 ne[4];
    u32 nb0[4];
    u32 nb1[4];
    u32 nbd[4];
    u32 off0;
    u32 off1;
    u32 offd;
    u32 op;
    float alpha;
    float limit;
};

struct NormParams {
    u32 ne[4];
    u32 nb0[3];
    u32 nb1[3];
    u32 nb2[3];
    u32 nbd[3];
    u32 off0;
    u32 off1;
    u32 off2;
    u32 offw;
    u32 offr;
    u32 offd;
    float eps;
    float factor;
    u32 op;
    u32 parts;
};

struct RopeParams {
    u32 ne[4];
    u32 nb0[4];
    u32 nbd[4];
    u32 off0;
    u32 off1;
    u32 off2;
    u32 offd;
    u32 n_dims;
    u32 neox;
    u32 has_factors;
    float magnitude;
};

struct HeadsParams {
    u32 d;
    u32 tokens;
    u32 heads[3];
    u32 nbh[3];
    u32 nbt[3];
    u32 nbd[3];
    u32 parts;
    u32 rows;
    u32 n_dims;
    u32 neox;
    u32 has_factors;
    float magnitude;
    float eps;
    u32 offx[3];
    u32 offw[2];
    u32 offd[3];
    u32 off_positions;
    u32 off_cells;
    u32 off_factors;
};

struct SoftMaxParams {
    u32 ne[4];
    u32 nb0[3];
    u32 nb1[3];
    u32 nbd[3];
    u32 mask_ne[2];
    u32 off0;
    u32 off1;
    u32 offd;
    u32 mask_type;
    float scale;
    float max_bias;
    u32 heads_log2;
};

struct CopyParams {
    u32 ne0[4];
    u32 ned[4];
    u32 nb0[4];
    u32 nbd[4];
    u32 off0;
    u32 offd;
    u32 count;
};

struct GetRowsParams {
    u32 ne[4];
    u32 rows;
    u32 nb0[3];
    u32 nb1[3];
    u32 nbd[3];
    u32 off0;
    u32 off1;
    u32 offd;
};

struct SetRowsParams {
    u32 ne[4];
    u32 rows;
    u32 ids_ne[2];
    u32 nb0[3];
    u32 nb1[3];
    u32 nbd[3];
    u32 off0;
    u32 off1;
    u32 offd;
};

struct MulMatParams {
    u32 m;
    u32 n;
    u32 k;
    u32 ne2;
    u32 ne3;
    u32 r2;
    u32 r3;
    u32 nb0[3];
    u32 nb1[3];
    u32 nbd[3];
    u32 off0;
    u32 off1;
    u32 offd;
    u32 first_row;
};

struct ProductsParams {
    u32 k;
    u32 n;
    u32 m[3];
    u32 rows[2];
    u32 ne2;
    u32 r2;
    u32 nb0[2];
    u32 nb1[2];
    u32 nbr;
    u32 off0[3];
    u32 off1;
    u32 offd[3];
    u32 offb[3];
    u32 offr;
    u32 offw;
    float eps;
    u32 op;
    float alpha;
    float limit;
    u32 parts;
};

struct MatVecParams {
    u32 begin[2];
    u32 passes;
    u32 split;
    u32 r3;
    u32 nb03;
    u32 nb13;
    u32 experts;
    u32 nb2[2];
    u32 summed;
    u32 nbf[2];
};

struct FlashAttnParams {
    u32 d[2];
    u32 ne[3];
    u32 kv[2];
    u32 nbq[3];
    u32 nbk[3];
    u32 nbv[3];
    u32 nbm[3];
    u32 mask_ne[2];
    u32 off[6];
    u32 mask_type;
    u32 heads_log2;
    float scale;
    float max_bias;
    float logit_softcap;
};

struct MulMatIdParams {
    u32 m;
    u32 k;
    u32 experts;
    u32 used;
    u32 tokens;
    u32 nb0[2];
    u32 nb1[2];
    u32 nb2[2];
    u32 nbd[2];
    u32 off0;
    u32 off1;
    u32 off2;
    u32 offd;
    u32 first_expert;
    u32 window_experts;
};

struct ExpertSumParams {
    u32 m;
    u32 used;
    u32 tokens;
    u32 nb0;
    u32 nbf[2];
    u32 nbr;
    u32 nbd;
    u32 offf;
    u32 offr;
    u32 offd;
};

struct SsmConvParams {
    u32 channels;
    u32 tokens;
    u32 taps;
    u32 slots;
    u32 run_fields;
    u32 nb0;
    u32 off[5];
};

struct DeltaNetParams {
    u32 d[2];
    u32 heads[2];
    u32 tokens;
    u32 slots;
    u32 run_fields;
    u32 nbq[2];
    u32 nbk[2];
    u32 nbv[2];
    u32 off[10];
    float scale;
    float factor;
    float eps;
    u32 gates;
    u32 keeps;
};

struct ConvParams {
    u32 channels;
    u32 tokens;
    u32 taps;
    u32 slots;
    u32 run_fields;
    u32 nb0;
    u32 op;
    u32 bias;
    u32 off[6];
};

struct SsmScanParams {
    u32 d[2];
    u32 heads[2];
    u32 tokens;
    u32 slots;
    u32 run_fields;
    u32 nbx[2];
    u32 nbb[2];
    u32 nbc[2];
    u32 off[8];
};

struct CacheMaskParams {
    u32 kv;
    u32 tokens;
    u32 words;
    u32 causal;
    u32 window;
    u32 chunked;
    u32 off0;
    u32 off1;
    u32 offd;
};

struct TopKParams {
    u32 ne[4];
    u32 nb0[3];
    u32 nbd[3];
    u32 off0;
    u32 offd;
    u32 offw;
    u32 k;
    u32 first;
    u32 weights;
    float scale;
};

struct BestParams {
    u32 n;
    u32 part;
    u32 parts;
    u32 offx;
    u32 offd;
    u32 offe;
    u32 offs;
    u32 offn;
    u32 next;
};

struct GateParams {
    u32 k;
    u32 experts;
    u32 tokens;
    u32 used;
    u32 nbx;
    u32 nbw;
    u32 nbn;
    u32 nbd;
    u32 offx;
    u32 offs;
    u32 offw;
    u32 offb;
    u32 offn;
    u32 offd;
    u32 offe;
    u32 bias;
    float eps;
    float scale;
    u32 probabilities;
    u32 weights;
    float factor;
    u32 biased;
    u32 offc;
    u32 groups;
    u32 groups_used;
    float never;
};
