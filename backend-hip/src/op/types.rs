//! Weight types with kernels for products: one list for all product kernels.

/// Expands `$entry` for a type, given its kind, its name in kernel names, and a flag if products of few columns
/// have all kernels. `None` for other types.
///
/// Kinds: `plain`; `f16`, which also has tiles of F16; `blocks_32`; `wide_32`, blocks whose values exceed
/// F16; `blocks_256`; `low`, types of few bits.
macro_rules! of_type {
    ($dtype:expr, $entry:ident) => {
        match $dtype {
            DType::F32 => Some($entry!(plain "f32" true)),
            DType::F16 => Some($entry!(f16 "f16" true)),
            DType::BF16 => Some($entry!(plain "bf16" true)),
            DType::Q8_0 => Some($entry!(blocks_32 "q8_0" true)),
            DType::Q4_0 => Some($entry!(blocks_32 "q4_0" true)),
            DType::Q4_1 => Some($entry!(blocks_32 "q4_1" false)),
            DType::Q5_0 => Some($entry!(blocks_32 "q5_0" false)),
            DType::Q5_1 => Some($entry!(blocks_32 "q5_1" false)),
            DType::IQ4_NL => Some($entry!(blocks_32 "iq4_nl" false)),
            DType::MXFP4 => Some($entry!(wide_32 "mxfp4" false)),
            DType::Q2_K => Some($entry!(blocks_256 "q2_k" false)),
            DType::Q3_K => Some($entry!(blocks_256 "q3_k" false)),
            DType::Q4_K => Some($entry!(blocks_256 "q4_k" true)),
            DType::Q5_K => Some($entry!(blocks_256 "q5_k" true)),
            DType::Q6_K => Some($entry!(blocks_256 "q6_k" true)),
            DType::IQ4_XS => Some($entry!(blocks_256 "iq4_xs" false)),
            DType::Q1_0 => Some($entry!(low "q1_0" false)),
            DType::Q2_0 => Some($entry!(low "q2_0" false)),
            DType::NVFP4 => Some($entry!(low "nvfp4" false)),
            DType::TQ1_0 => Some($entry!(low "tq1_0" false)),
            DType::TQ2_0 => Some($entry!(low "tq2_0" false)),
            DType::IQ1_S => Some($entry!(low "iq1_s" false)),
            DType::IQ1_M => Some($entry!(low "iq1_m" false)),
            DType::IQ2_XXS => Some($entry!(low "iq2_xxs" false)),
            DType::IQ2_XS => Some($entry!(low "iq2_xs" false)),
            DType::IQ2_S => Some($entry!(low "iq2_s" false)),
            DType::IQ3_XXS => Some($entry!(low "iq3_xxs" false)),
            DType::IQ3_S => Some($entry!(low "iq3_s" false)),
            _ => None,
        }
    };
}
pub(super) use of_type;
