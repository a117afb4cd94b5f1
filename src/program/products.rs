//! The products of a model, for the checks of a card at its first use.

use crate::model::ModelFile;
use crate::qualify::ProductShape;
use ggml_core::DType;
use ggml_core::encode::encode;
use std::collections::HashMap;

/// Products that are checked at most: those with the most weights in the model.
const MOST: usize = 4;

/// Bytes of the weights of a product that is checked. A larger one, such as an output layer, is checked with fewer
/// rows: its weights alone would take longer to be made and computed by the processor than a first start may take.
const LARGEST: usize = 48 << 20;

/// Returns the products of a model that most of its weights are in, those with the most weights first: types, and lengths
/// and numbers of rows (at most [`checked_rows`]). Mixtures have no plain products but those of their attention and of
/// shared experts.
pub(super) fn products(file: &ModelFile) -> Vec<ProductShape> {
    let mut bytes: HashMap<ProductShape, usize> = HashMap::new();
    for tensor in file.gguf().tensors() {
        let [k, rows, 1, 1] = tensor.ne else { continue };
        // Rows of the token table are looked up, and computed with only where it is the output, too.
        let is_product = tensor.name.ends_with(".weight") && !tensor.name.starts_with("token_");
        let rows = checked_rows(rows, tensor.bytes);
        if is_product && rows > 1 && has_encoder(tensor.dtype) {
            *bytes.entry(ProductShape { dtype: tensor.dtype, k, rows }).or_default() += tensor.bytes;
        }
    }
    let mut shapes: Vec<(ProductShape, usize)> = bytes.into_iter().collect();
    shapes.sort_by_key(|(shape, bytes)| (std::cmp::Reverse(*bytes), shape.k, shape.rows));
    shapes.into_iter().map(|(shape, _)| shape).take(MOST).collect()
}

/// Returns the rows of a product that are checked: all `rows`, or as many as [`LARGEST`] bytes hold. `bytes`: those of all
/// rows.
fn checked_rows(rows: usize, bytes: usize) -> usize {
    rows.min(LARGEST / (bytes / rows.max(1)).max(1))
}

/// True if rows of a type can be made for the checks.
fn has_encoder(dtype: DType) -> bool {
    encode(dtype, dtype.block(), &vec![0.0; dtype.block()]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthesize::{Shape, bytes};
    use ggml_core::gguf::GgufFile;

    #[test]
    fn large_products_have_fewer_rows() {
        let row = 1152;
        assert_eq!(checked_rows(768, 768 * row), 768);
        let rows = checked_rows(151_936, 151_936 * row);
        assert!(rows * row <= LARGEST && (rows + 1) * row > LARGEST, "{rows}");
        // Rows that are longer than all bytes are none, and so are no rows.
        assert_eq!((checked_rows(2, 4 * LARGEST), checked_rows(0, 0)), (0, 0));
    }

    /// The shapes are those of the matrices of layers, and those that hold most of the weights come first.
    #[test]
    fn products_are_those_of_the_layers() {
        let shape = Shape::small("llama").with_type(DType::Q8_0);
        let file = ModelFile::from_gguf(GgufFile::from_bytes(bytes(&shape, 1).unwrap()).unwrap()).unwrap();
        let found = products(&file);
        assert!((2..=MOST).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|product| product.dtype == DType::Q8_0), "{found:?}");
        let of = |name: &str| file.gguf().require(&format!("blk.0.{name}.weight")).unwrap().ne;
        let is_listed = |ne: [usize; 4]| found.iter().any(|product| [product.k, product.rows] == ne[..2]);
        assert!(is_listed(of("ffn_up")) && is_listed(of("ffn_down")), "{found:?}");
    }
}
