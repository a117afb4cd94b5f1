//! Types that do not fit the rows of some tensors, and the types in their place.

use super::mix::Choice;
use ggml_core::DType;
use ggml_core::gguf::TensorInfo;
use std::fmt;

/// Type that does not fit the rows of some tensors, and the type that they got in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// Type by the rules of the mix.
    pub wanted: DType,
    /// Type of the tensors in the output.
    pub used: DType,
    /// Length of the tensors' rows, no multiple of the blocks of `wanted`.
    pub columns: usize,
    /// Names of the tensors.
    pub tensors: Vec<String>,
}

impl fmt::Display for Substitution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Substitution { wanted, used, columns, tensors } = self;
        let first = tensors.first().map_or("", String::as_str);
        let (count, block) = (tensors.len(), wanted.block());
        write!(f, "{used} in place of {wanted}, whose blocks of {block} do not fit rows of {columns}: ")?;
        if count == 1 { write!(f, "{first}") } else { write!(f, "{count} tensors, {first} first") }
    }
}

/// Records the type of a tensor if it is not the wanted one.
pub(super) fn add(all: &mut Vec<Substitution>, t: &TensorInfo, Choice { dtype: used, wanted }: Choice) {
    let columns = t.ne[0];
    if used == wanted {
        return;
    }
    match all.iter_mut().find(|s| (s.wanted, s.used, s.columns) == (wanted, used, columns)) {
        Some(found) => found.tensors.push(t.name.clone()),
        None => all.push(Substitution { wanted, used, columns, tensors: vec![t.name.clone()] }),
    }
}
