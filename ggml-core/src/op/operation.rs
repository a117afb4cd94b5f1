//! The definition of an operation: [`Operation`].

use crate::dtype::DType;
use crate::exact::{NoMemory, Operand, OperandMut, Rounding};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;

/// Type and extents of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    /// Storage of an operand that the result uses: for views and operations that write into an operand.
    pub alias: Option<Alias>,
}

impl Output {
    /// Creates a contiguous result with its own storage.
    pub fn new(dtype: DType, ne: [usize; 4]) -> Output {
        Output { dtype, ne, alias: None }
    }
}

/// Location of a result in the storage of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// Index of the operand.
    pub src: usize,
    /// Strides in bytes.
    pub nb: [usize; 4],
    /// Offset in bytes from the beginning of the operand.
    pub offset: usize,
}

/// Status of a reference implementation: an error if there is no memory for intermediate values.
pub type Computed = Result<(), NoMemory>;

/// The definition of an operation.
pub trait Operation {
    /// Returns the name as ggml prints it.
    fn name(&self) -> &'static str;

    /// Checks the operands and returns the type and extents of the result.
    ///
    /// # Errors
    /// The rule that the operands violate.
    fn output(&self, src: &[&Shape]) -> Result<Output, String>;

    /// Computes the result from the definition. For an alias, `out` holds the previous contents of the
    /// storage.
    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed;

    /// Returns the largest allowed error of a result that is computed from the reference's operands.
    /// `operand` is the type of the first one: the weights of a product, or the destination of written rows.
    fn bound(&self, operand: DType, precision: Precision) -> Bound {
        let _ = operand;
        Bound::plain(precision)
    }

    /// Returns the indices of the operands that a backend may round, and how; every other F32 operand is used as
    /// [`Rounding::F32`] allows. `operand` is the type of the first one.
    fn rounds(&self, operand: DType, precision: Precision) -> &'static [(usize, Rounding)] {
        let _ = (operand, precision);
        &[]
    }

    /// Returns the operands whose storage the result may take over if nothing else needs them. Every kernel
    /// must read the elements that an output element depends on before it writes that element, or in the same
    /// thread.
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
