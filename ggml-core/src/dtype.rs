//! Element types and their block layouts.
//!
//! One table ([`DType::info`]) lists every type that a GGUF file can hold: its name, its GGUF type number,
//! the elements of a block and the bytes of a block. Block layouts are bit-exact with GGUF files (source: the
//! GGUF specification and the block structures of ggml).
//!
//! Decoders are separate from this table: the reference backend, the CPU backend and the GPU kernels each
//! have their own, so that an error in one shows as a mismatch with the others. A new type needs one entry
//! here and one decoder in each of them. [`crate::decode`] makes the CPU's decoders public.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// An element type. The discriminants are the type numbers of GGUF files.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u32)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary32.
    F32 = 0,
    /// IEEE binary16.
    F16 = 1,
    /// 32 elements: one F16 scale, 32 unsigned nibbles, offset 8.
    Q4_0 = 2,
    /// 32 elements: F16 scale, F16 minimum, 32 unsigned nibbles.
    Q4_1 = 3,
    /// 32 elements: F16 scale, 32 fifth bits, 32 nibbles, offset 16.
    Q5_0 = 6,
    /// 32 elements: F16 scale, F16 minimum, 32 fifth bits, 32 nibbles.
    Q5_1 = 7,
    /// 32 elements: one F16 scale, 32 signed bytes.
    Q8_0 = 8,
    /// 32 elements: F16 scale, F16 scaled sum, 32 signed bytes (activations only).
    Q8_1 = 9,
    /// 256 elements, 2-bit.
    Q2_K = 10,
    /// 256 elements, 3-bit.
    Q3_K = 11,
    /// 256 elements, 4-bit with 6-bit scales and minima.
    Q4_K = 12,
    /// 256 elements, 5-bit with 6-bit scales and minima.
    Q5_K = 13,
    /// 256 elements, 6-bit with 8-bit scales.
    Q6_K = 14,
    /// 256 elements, 8-bit with F32 scale (activations only).
    Q8_K = 15,
    /// 256 elements, 2.06 bits per element.
    IQ2_XXS = 16,
    /// 256 elements, 2.31 bits per element.
    IQ2_XS = 17,
    /// 256 elements, 3.06 bits per element.
    IQ3_XXS = 18,
    /// 256 elements, 1.56 bits per element.
    IQ1_S = 19,
    /// 32 elements, 4-bit through a nonlinear table.
    IQ4_NL = 20,
    /// 256 elements, 3.44 bits per element.
    IQ3_S = 21,
    /// 256 elements, 2.56 bits per element.
    IQ2_S = 22,
    /// 256 elements, 4-bit through a nonlinear table with 6-bit scales.
    IQ4_XS = 23,
    /// Signed byte.
    I8 = 24,
    /// Signed 16-bit integer.
    I16 = 25,
    /// Signed 32-bit integer.
    I32 = 26,
    /// Signed 64-bit integer.
    I64 = 27,
    /// IEEE binary64.
    F64 = 28,
    /// 256 elements, 1.75 bits per element.
    IQ1_M = 29,
    /// bfloat16: the upper half of a binary32.
    BF16 = 30,
    /// 256 ternary elements, 1.69 bits per element.
    TQ1_0 = 34,
    /// 256 ternary elements, 2.06 bits per element.
    TQ2_0 = 35,
    /// 32 elements: E8M0 scale, 4-bit E2M1 floats (OCP MX specification).
    MXFP4 = 39,
    /// 64 elements: four unsigned E4M3 scales, 4-bit E2M1 floats.
    NVFP4 = 40,
    /// 128 elements: F16 scale, sign bits only.
    Q1_0 = 41,
    /// 64 elements: F16 scale, 2-bit integers from -1 to 2.
    Q2_0 = 42,
}

/// Table entry of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypeInfo {
    /// The type.
    pub dtype: DType,
    /// Name as GGUF tools print it.
    pub name: &'static str,
    /// Elements in one block (1 for plain types).
    pub block: usize,
    /// Bytes of one block.
    pub bytes: usize,
    /// True if this library can decode the type, so that it can be an operand. Types without decoders can
    /// still be listed, copied and written.
    pub computable: bool,
}

const fn entry(dtype: DType, name: &'static str, block: usize, bytes: usize, computable: bool) -> DTypeInfo {
    DTypeInfo { dtype, name, block, bytes, computable }
}

/// All types, sorted by GGUF type number.
pub const DTYPES: &[DTypeInfo] = &[
    entry(DType::F32, "F32", 1, 4, true),
    entry(DType::F16, "F16", 1, 2, true),
    entry(DType::Q4_0, "Q4_0", 32, 18, true),
    entry(DType::Q4_1, "Q4_1", 32, 20, true),
    entry(DType::Q5_0, "Q5_0", 32, 22, true),
    entry(DType::Q5_1, "Q5_1", 32, 24, true),
    entry(DType::Q8_0, "Q8_0", 32, 34, true),
    entry(DType::Q8_1, "Q8_1", 32, 36, false),
    entry(DType::Q2_K, "Q2_K", 256, 84, true),
    entry(DType::Q3_K, "Q3_K", 256, 110, true),
    entry(DType::Q4_K, "Q4_K", 256, 144, true),
    entry(DType::Q5_K, "Q5_K", 256, 176, true),
    entry(DType::Q6_K, "Q6_K", 256, 210, true),
    entry(DType::Q8_K, "Q8_K", 256, 292, false),
    entry(DType::IQ2_XXS, "IQ2_XXS", 256, 66, true),
    entry(DType::IQ2_XS, "IQ2_XS", 256, 74, true),
    entry(DType::IQ3_XXS, "IQ3_XXS", 256, 98, true),
    entry(DType::IQ1_S, "IQ1_S", 256, 50, true),
    entry(DType::IQ4_NL, "IQ4_NL", 32, 18, true),
    entry(DType::IQ3_S, "IQ3_S", 256, 110, true),
    entry(DType::IQ2_S, "IQ2_S", 256, 82, true),
    entry(DType::IQ4_XS, "IQ4_XS", 256, 136, true),
    entry(DType::I8, "I8", 1, 1, false),
    entry(DType::I16, "I16", 1, 2, false),
    entry(DType::I32, "I32", 1, 4, true),
    entry(DType::I64, "I64", 1, 8, false),
    entry(DType::F64, "F64", 1, 8, false),
    entry(DType::IQ1_M, "IQ1_M", 256, 56, true),
    entry(DType::BF16, "BF16", 1, 2, true),
    entry(DType::TQ1_0, "TQ1_0", 256, 54, true),
    entry(DType::TQ2_0, "TQ2_0", 256, 66, true),
    entry(DType::MXFP4, "MXFP4", 32, 17, true),
    entry(DType::NVFP4, "NVFP4", 64, 36, true),
    entry(DType::Q1_0, "Q1_0", 128, 18, true),
    entry(DType::Q2_0, "Q2_0", 64, 18, true),
];

impl DType {
    /// Returns the table entry of this type.
    pub fn info(self) -> &'static DTypeInfo {
        // Every variant has an entry (a test asserts it); F32 is an unreachable fallback.
        DTYPES.iter().find(|i| i.dtype == self).unwrap_or(&DTYPES[0])
    }

    /// Returns the type with a GGUF type number, if there is one.
    pub fn from_gguf(number: u32) -> Option<DType> {
        DTYPES.iter().find(|i| i.dtype as u32 == number).map(|i| i.dtype)
    }

    /// Returns the type with a name, in any case ("q8_0", "Q8_0").
    pub fn from_name(name: &str) -> Option<DType> {
        DTYPES.iter().find(|i| i.name.eq_ignore_ascii_case(name)).map(|i| i.dtype)
    }

    /// Returns the name as GGUF tools print it.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Returns the number of elements in one block.
    pub fn block(self) -> usize {
        self.info().block
    }

    /// Returns the number of bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.info().bytes
    }

    /// True if a block holds more than one element.
    pub fn is_quantized(self) -> bool {
        self.block() > 1
    }

    /// Returns the bytes of a row of `n` elements; `None` if `n` is no multiple of the block or the product
    /// overflows.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        let info = self.info();
        if !n.is_multiple_of(info.block) { None } else { (n / info.block).checked_mul(info.bytes) }
    }
}

impl std::str::FromStr for DType {
    type Err = Error;

    /// Parses a type name, as [`DType::from_name`].
    fn from_str(text: &str) -> Result<DType> {
        DType::from_name(text)
            .ok_or_else(|| Error::argument("type", format!("'{text}'"), "a type as Q8_0 or F16"))
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_consistent() {
        for pair in DTYPES.windows(2) {
            assert!((pair[0].dtype as u32) < pair[1].dtype as u32, "{:?}", pair[1]);
        }
        for info in DTYPES {
            assert_eq!(info.dtype.info(), info);
            assert_eq!(DType::from_gguf(info.dtype as u32), Some(info.dtype));
            assert_eq!(DType::from_name(&info.name.to_lowercase()), Some(info.dtype));
            assert_eq!(format!("{:?}", info.dtype), info.name);
        }
        assert_eq!(DType::from_gguf(4), None);
        assert_eq!(DType::Q8_0.row_bytes(64), Some(68));
        assert_eq!(DType::Q8_0.row_bytes(63), None);
        assert_eq!(DType::F64.row_bytes(usize::MAX), None);
    }
}
