//! Tensor entries of a file, and the rules for their shapes.

use crate::dtype::DType;

/// Maximum number of dimensions of a tensor.
pub const MAX_DIMS: usize = 4;

/// Maximum length of a tensor name in bytes. (llama.cpp allows 63.)
pub const MAX_NAME: usize = 1024;

/// A tensor of a file: type, shape and data range. All values were checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Name, unique among all parts of the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents in elements, `ne[0]` contiguous; 1 from `n_dims` on. No extent is 0, and `ne[0]` is a multiple
    /// of the type's block.
    pub ne: [usize; MAX_DIMS],
    /// Number of dimensions in the file, 1 to 4.
    pub n_dims: usize,
    /// Index of the part that holds the data; 0 in a model of one file.
    pub part: usize,
    /// Offset of the data in bytes from the start of that part's file.
    pub offset: usize,
    /// Size of the data in bytes.
    pub bytes: usize,
}

impl TensorInfo {
    /// Returns the extents in the file: the first `n_dims` of `ne`.
    pub fn shape(&self) -> &[usize] {
        self.ne.get(..self.n_dims).unwrap_or(&self.ne)
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        // Cannot overflow for tensors of the reader, which checked the product.
        self.ne.iter().fold(1, |n, e| n.saturating_mul(*e))
    }
}

/// Shape that conforms to the rules of its type.
pub(super) struct Extents {
    pub(super) ne: [usize; MAX_DIMS],
    pub(super) n_dims: usize,
    pub(super) bytes: usize,
}

impl Extents {
    /// Checks a shape: 1 to 4 extents, none of them 0, `ne[0]` a multiple of the block, and products that fit
    /// into `i64`. The error holds the shape found and the rule.
    pub(super) fn check(dtype: DType, shape: &[u64]) -> Result<Extents, (String, String)> {
        let wrong = |expected: String| (format!("{dtype} {shape:?}"), expected);
        if shape.is_empty() || shape.len() > MAX_DIMS {
            return Err(wrong(format!("1 to {MAX_DIMS} dimensions")));
        }
        let too_large = || wrong("a size that can be addressed".into());
        let mut ne = [1; MAX_DIMS];
        for (extent, given) in ne.iter_mut().zip(shape) {
            *extent = usize::try_from(*given).map_err(|_| too_large())?;
        }
        if ne.contains(&0) {
            return Err(wrong("no extent of 0".into()));
        }
        let [row, others @ ..] = ne;
        if !row.is_multiple_of(dtype.block()) {
            return Err(wrong(format!("rows of whole blocks of {}", dtype.block())));
        }
        let product = |first: usize| others.iter().try_fold(first, |n, e| n.checked_mul(*e));
        let elements = product(row).filter(|n| i64::try_from(*n).is_ok());
        let bytes = dtype.row_bytes(row).and_then(product).filter(|n| i64::try_from(*n).is_ok());
        match (elements, bytes) {
            (Some(_), Some(bytes)) => Ok(Extents { ne, n_dims: shape.len(), bytes }),
            _ => Err(too_large()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_keep_the_rules() {
        let ok = Extents::check(DType::Q8_0, &[64, 3]).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((ok.ne, ok.n_dims, ok.bytes), ([64, 3, 1, 1], 2, 204));
        let wrong = |dtype, shape: &[u64]| Extents::check(dtype, shape).err().unwrap();
        assert_eq!(wrong(DType::F32, &[]), ("F32 []".into(), "1 to 4 dimensions".into()));
        assert_eq!(wrong(DType::F32, &[1; 5]), ("F32 [1, 1, 1, 1, 1]".into(), "1 to 4 dimensions".into()));
        assert_eq!(wrong(DType::F32, &[4, 0]), ("F32 [4, 0]".into(), "no extent of 0".into()));
        assert_eq!(wrong(DType::Q4_K, &[128]), ("Q4_K [128]".into(), "rows of whole blocks of 256".into()));
        // In the last case the number of elements overflows, but the number of bytes does not.
        let large: [(DType, &[u64]); 4] = [
            (DType::F32, &[u64::MAX]),
            (DType::I8, &[1 << 32, 1 << 32]),
            (DType::I8, &[1 << 31, 1 << 32]),
            (DType::IQ1_S, &[1 << 32, 1 << 31]),
        ];
        for (dtype, shape) in large {
            assert_eq!(wrong(dtype, shape).1, "a size that can be addressed", "{dtype} {shape:?}");
        }
    }
}
