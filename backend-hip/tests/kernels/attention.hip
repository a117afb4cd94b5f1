// Attention with the fragments of a matrix unit, UNIT: WMMA11, WMMA12, MFMA, MFMA90A or MMA. NVIDIA's tiles have 64 elements along k.
#define WMMA11 1
#define WMMA12 2
#define MFMA 3
#define MMA 4
#define MFMA90A 5
#if UNIT == MMA
#define TILE_K 64u
#endif
#include "attention_kernels.h"
#include "written.h"

#if UNIT == WMMA11
typedef FragmentWmma11 WrittenFragment;
#elif UNIT == WMMA12
typedef FragmentWmma12 WrittenFragment;
#elif UNIT == MFMA
typedef FragmentMfma WrittenFragment;
#elif UNIT == MFMA90A
typedef FragmentMfma90a WrittenFragment;
#else
typedef FragmentMma WrittenFragment;
#endif

#define ATTENTION(type, KV, D) \
    KERNEL(MATRIX_WAVES * WrittenFragment::LANES) attention_##type##_d##D(ATTENTION_OPERANDS) { \
        typedef MatrixKernel<AttentionFragment<WrittenFragment>, KV, D> K; \
        LDS K::Shared shared[K::STAGES]; \
        attention_matrix<K>(q, k, v, mask, sinks, out, stats, p, shared); \
    }
#define ATTENTIONS(type, KV) ATTENTION(type, KV, 64) ATTENTION(type, KV, 128)
ATTENTIONS(f16, WeightF16)
KERNEL(MATRIX_WAVES * WrittenFragment::LANES) attention_f16_long(ATTENTION_OPERANDS) {
    typedef LatentKernel<AttentionFragment<WrittenFragment>, WeightF16> K;
    LDS K::Shared shared;
    attention_latent<K>(q, k, v, mask, sinks, out, stats, p, &shared);
}
ATTENTIONS(q8_0, WeightQ8_0)
ATTENTIONS(q4_0, WeightQ4_0)
