//! Values that are NaN or infinite: in the input, or only in the output.

use ggml_core::decode::decode;
use ggml_core::{DType, Error, Result};

/// Magnitude below which finite values stay finite in every type. Blocks have scales in F16, whose largest
/// number is 65504.
const SAFE: f32 = 16384.0;

/// True if a type has NaN and infinity for single values. In the others, one such value spoils its block.
fn keeps_non_finite(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn count(values: &[f32]) -> usize {
    values.iter().filter(|x| !x.is_finite()).count()
}

/// Counts the values of a tensor's bytes that are NaN or infinite. In types of blocks they are not looked
/// for.
///
/// # Errors
/// Errors of decoding.
pub(super) fn count_in(dtype: DType, bytes: &[u8]) -> Result<usize> {
    if keeps_non_finite(dtype) { Ok(count(&decode(dtype, bytes)?)) } else { Ok(0) }
}

/// Encodes values of the tensor `name` by `encode`. Returns their bytes, and the number of values that are NaN
/// or infinite and stay so.
///
/// # Errors
/// [`Error::InvalidModel`] if a value is NaN or infinite in a type of blocks, or becomes so in a type with a
/// smaller range; errors of `encode`.
pub(super) fn encode_finite(
    name: &str,
    dtype: DType,
    values: &[f32],
    encode: impl FnOnce(&[f32]) -> Result<Vec<u8>>,
) -> Result<(Vec<u8>, usize)> {
    let tensor = || format!("tensor {name:?}");
    let kept = count(values);
    if let Some(value) = values.iter().find(|x| !x.is_finite())
        && !keeps_non_finite(dtype)
    {
        return Err(Error::model(
            tensor(),
            format!("a value that is {value}"),
            format!("numbers, for {dtype}"),
        ));
    }
    let bytes = encode(values)?;
    let largest = values.iter().filter(|x| x.is_finite()).fold(0.0f32, |most, x| most.max(x.abs()));
    if largest >= SAFE && count(&decode(dtype, &bytes)?) > kept {
        let expected = format!("smaller values: this one is infinite in {dtype}");
        return Err(Error::model(tensor(), format!("a value of magnitude {largest:e}"), expected));
    }
    Ok((bytes, kept))
}
