//! Decoders: convert the bytes of a type to F32 values. [`crate::encode`] is the inverse.
//!
//! Blocks are decoded by the decoders of the `cpu` backend. The reference backend has its own decoders. They
//! are not used here, because code that is checked against the reference must not share them.
//!
//! ```
//! use ggml_core::{DType, decode::decode, encode::encode};
//!
//! let mut weights = [0.0f32; 32];
//! (weights[0], weights[31]) = (127.0, -3.0);
//! let block = encode(DType::Q8_0, 32, &weights)?;
//! assert_eq!(decode(DType::Q8_0, &block)?, weights);
//! # Ok::<(), ggml_core::Error>(())
//! ```

use crate::backend::host_memory;
use crate::cpu;
use crate::dtype::DType;
use crate::error::{Error, Result};
use half::{bf16, f16};

/// Decodes whole blocks of every [`computable`](crate::dtype::DTypeInfo::computable) type. Values are rounded
/// to F32 once where F32 cannot represent them (types with minima). I32 is converted.
///
/// # Errors
/// [`Error::InvalidArgument`] if the length is no multiple of the block size or the type has no decoder;
/// [`Error::OutOfMemory`].
pub fn decode(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    if !bytes.len().is_multiple_of(dtype.block_bytes()) {
        return Err(wrong_length(dtype, bytes, format!("whole blocks of {}", dtype.block_bytes())));
    }
    let mut out = host_memory(bytes.len() / dtype.block_bytes() * dtype.block())?;
    decode_into(dtype, bytes, &mut out)?;
    Ok(out)
}

/// Decodes into existing memory, as [`decode`]: one row or several consecutive rows.
///
/// # Errors
/// [`Error::InvalidArgument`] if the length of `out` is no multiple of the block, `bytes` does not have the
/// matching length, or the type has no decoder.
pub fn decode_into(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    match dtype.row_bytes(out.len()) {
        Some(wanted) if wanted == bytes.len() => {}
        Some(wanted) => {
            return Err(wrong_length(dtype, bytes, format!("{wanted} for {} elements", out.len())));
        }
        None => {
            let expected = format!("whole blocks of {} {dtype}", dtype.block());
            return Err(Error::argument("elements to decode", out.len(), expected));
        }
    }
    match dtype {
        DType::F32 => plain(bytes, f32::from_le_bytes, out),
        DType::I32 => plain(bytes, |b| i32::from_le_bytes(b) as f32, out),
        DType::F16 => plain(bytes, |b| f16::from_le_bytes(b).to_f32(), out),
        DType::BF16 => plain(bytes, |b| bf16::from_le_bytes(b).to_f32(), out),
        _ => {
            let no_decoder = || Error::argument("type", dtype, "one that has a decoder");
            cpu::decode_blocks(dtype, bytes, out)?.ok_or_else(no_decoder)?;
        }
    }
    Ok(())
}

fn wrong_length(dtype: DType, bytes: &[u8], expected: String) -> Error {
    Error::argument(format!("bytes of {dtype}"), bytes.len(), expected)
}

fn plain<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32, out: &mut [f32]) {
    for (to, from) in out.iter_mut().zip(bytes.as_chunks().0) {
        *to = value(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DTYPES;
    use crate::exact::Operand;
    use crate::rng::Rng;
    use crate::shape::Shape;

    /// Decodes a row with the reference's own decoders.
    fn by_reference(dtype: DType, bytes: &[u8]) -> Vec<f64> {
        let row = Shape {
            name: "row".into(),
            dtype,
            ne: [bytes.len() / dtype.block_bytes() * dtype.block(), 1, 1, 1],
            nb: [dtype.block_bytes(), bytes.len(), bytes.len(), bytes.len()],
        };
        Operand::new(&row, 0, bytes).row([0, 0, 0]).unwrap()
    }

    /// Random bytes, so that every scale, code and sign of every type occurs.
    #[test]
    fn any_block_is_what_the_reference_makes_of_it_rounded_once() {
        let mut rng = Rng::new(11);
        for info in DTYPES.iter().filter(|i| i.computable) {
            let bytes: Vec<u8> = (0..200 * info.bytes).map(|_| rng.below(256) as u8).collect();
            let got = decode(info.dtype, &bytes).unwrap();
            assert_eq!(got.len(), 200 * info.block, "{}", info.name);
            for (i, (got, want)) in got.iter().zip(by_reference(info.dtype, &bytes)).enumerate() {
                let same = *got == want as f32 || got.is_nan() && want.is_nan();
                assert!(same, "{} element {i}: {got:e}, not {want:e}", info.name);
            }
        }
    }

    #[test]
    fn lengths_and_types_are_checked() {
        #[track_caller]
        fn says<T: std::fmt::Debug>(result: Result<T>, fields: [&str; 3]) {
            match result.unwrap_err() {
                Error::InvalidArgument { what, found, expected } => {
                    assert_eq!([what, found, expected], fields);
                }
                other => panic!("{other}"),
            }
        }
        let block = [0u8; 34];
        says(decode(DType::Q8_0, &block[..33]), ["bytes of Q8_0", "33", "whole blocks of 34"]);
        says(decode(DType::F32, &block), ["bytes of F32", "34", "whole blocks of 4"]);
        let into = |dtype, bytes, n| decode_into(dtype, bytes, &mut vec![0.0; n]);
        says(into(DType::Q8_0, &block, 64), ["bytes of Q8_0", "34", "68 for 64 elements"]);
        says(into(DType::Q8_0, &block, 31), ["elements to decode", "31", "whole blocks of 32 Q8_0"]);
        says(decode(DType::Q8_1, &[0; 36]), ["type", "Q8_1", "one that has a decoder"]);
        assert_eq!(decode(DType::Q6_K, &[]).unwrap(), [0.0; 0]);
        for info in DTYPES {
            let decoded = decode(info.dtype, &vec![0; 3 * info.bytes]);
            assert_eq!(decoded.is_ok(), info.computable, "{}", info.name);
        }
    }

    /// Also from an odd address.
    #[test]
    fn values_that_a_type_has_come_back() {
        let halves: Vec<f32> = (-8..8).map(|i| i as f32 / 2.0).collect();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut bytes = vec![0];
            bytes.extend(crate::encode::encode(dtype, 16, &halves).unwrap());
            assert_eq!(decode(dtype, &bytes[1..]).unwrap(), halves, "{dtype}");
        }
        assert_eq!(decode(DType::I32, &(-7i32).to_le_bytes()).unwrap(), [-7.0]);
    }
}
