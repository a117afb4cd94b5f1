//! Definition of an operation.

use crate::dtype::DType;
use crate::exact::{NoMemory, Operand, OperandMut};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;

/// Type and extents of an operation's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    /// Storage of an operand that the result uses, for views and for operations that write into an operand.
    pub alias: Option<Alias>,
}

impl Output {
    /// A result with storage of its own, contiguous.
    pub fn new(dtype: DType, ne: [usize; 4]) -> Output {
        Output { dtype, ne, alias: None }
    }
}

/// A result that lies in the storage of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// Index of the operand.
    pub src: usize,
    /// Strides in bytes.
    pub nb: [usize; 4],
    /// Bytes after the beginning of the operand.
    pub offset: usize,
}

/// Outcome of a reference implementation: an error if there is not enough memory for its intermediate
/// results.
pub type Computed = Result<(), NoMemory>;

/// The definition of an operation.
pub trait Operation {
    /// Name as ggml prints it.
    fn name(&self) -> &'static str;

    /// Checks the operands and says what comes out; the error is the rule that is broken.
    fn output(&self, src: &[&Shape]) -> Result<Output, String>;

    /// Computes the result from the definition. For an alias `out` holds what the storage held before.
    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed;

    /// Returns the largest allowed distance from the reference of a result that is computed from the
    /// reference's operands, the first of which has the type `operand`: the weights of a product, the rows
    /// that are written into.
    fn bound(&self, operand: DType, precision: Precision) -> Bound {
        let _ = (operand, precision);
        Bound::F32
    }

    /// Operands whose storage the result may take over when nothing else needs them: every kernel reads the elements
    /// that an output element depends on before, or in the same thread as, it writes that element.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }
}

/// Checks the number of operands.
pub(crate) fn operands(src: &[&Shape], min: usize, max: usize) -> Result<(), String> {
    if (min..=max).contains(&src.len()) {
        Ok(())
    } else {
        Err(format!("takes {min} to {max} operands, {} were given", src.len()))
    }
}

/// Checks an operand's type.
pub(crate) fn typed(t: &Shape, allowed: &[DType], role: &str) -> Result<(), String> {
    if allowed.contains(&t.dtype) {
        Ok(())
    } else {
        let names: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
        Err(format!("{role} must be {}, not {}", names.join(" or "), t.dtype))
    }
}

/// Checks a rule.
pub(crate) fn rule(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
