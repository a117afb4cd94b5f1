//! Operations, each defined once.
//!
//! A family of operations is one file. It holds the parameters, the shape rule, the reference implementation (the
//! plain text of the definition, in f64) and the test cases that every backend has to pass. A new operation is such a
//! file, its kernels, and one dispatch entry for each backend.

use crate::bound::Bound;
use crate::dtype::DType;
use crate::plan::Precision;
use crate::reference::{NoMemory, Operand, OperandMut};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub mod binary;
pub mod cache_mask;
pub mod copy;
pub mod delta_net;
pub mod flash_attn;
pub mod glu;
mod lossless;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod norm;
pub mod rope;
pub mod rows;
pub mod soft_max;
pub mod ssm_conv;
pub mod ssm_scan;
pub mod top_k;
pub mod unary;
pub mod view;

pub use binary::Binary;
pub use cache_mask::CacheMask;
pub use copy::{Cont, Cpy};
pub use delta_net::GatedDeltaNet;
pub use flash_attn::FlashAttnExt;
pub use glu::{Clamped, Glu};
pub use mul_mat::MulMat;
pub use mul_mat_id::MulMatId;
pub use norm::RmsNorm;
pub use rope::{Rope, RopeMode};
pub use rows::{GetRows, SetRows};
pub use soft_max::SoftMax;
pub use ssm_conv::SsmConv;
pub use ssm_scan::SsmScan;
pub use top_k::TopK;
pub use unary::{Activation, Scale, Unary};
pub use view::{Permute, Reshape, Transpose, View};

/// What an operation makes of its operands.
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
    /// Which operand.
    pub src: usize,
    /// Strides in bytes.
    pub nb: [usize; 4],
    /// Bytes after the beginning of the operand.
    pub offset: usize,
}

/// What a reference implementation gives besides its result: an error where there is no memory for what it keeps on the way.
pub type Computed = Result<(), NoMemory>;

/// The definition of an operation.
pub trait Operation {
    /// Name as ggml prints it.
    fn name(&self) -> &'static str;

    /// Checks the operands and says what comes out; the error is the rule that is broken.
    fn output(&self, src: &[&Tensor]) -> Result<Output, String>;

    /// Computes the result from the definition. For an alias `out` holds what the storage held before.
    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed;

    /// How far from the reference a result may be that is computed from the reference's operands, the first of which has
    /// the type `operand`: the weights of a product, the rows that are written into.
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

/// An operation with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op")]
#[non_exhaustive]
pub enum Op {
    /// Rows of a matrix by index.
    GetRows(GetRows),
    /// Writes rows of a matrix by index.
    SetRows(SetRows),
    /// Matrix product.
    MulMat(MulMat),
    /// Products with matrices chosen for each token.
    MulMatId(MulMatId),
    /// Indices of the largest elements.
    TopK(TopK),
    /// ADD and MUL.
    Binary(Binary),
    /// Root mean square normalisation.
    RmsNorm(RmsNorm),
    /// Rotary position embedding.
    Rope(Rope),
    /// Soft-max of rows.
    SoftMax(SoftMax),
    /// Element-wise function.
    Unary(Unary),
    /// `x * scale + bias`.
    Scale(Scale),
    /// Gated linear unit.
    Glu(Glu),
    /// Copy into another tensor.
    Cpy(Cpy),
    /// Copy into contiguous storage.
    Cont(Cont),
    /// Attention with online soft-max.
    FlashAttnExt(FlashAttnExt),
    /// Which cells of a cache tokens see.
    CacheMask(CacheMask),
    /// Short convolution with state.
    SsmConv(SsmConv),
    /// Linear attention with state.
    GatedDeltaNet(GatedDeltaNet),
    /// See [`SsmScan`].
    SsmScan(SsmScan),
    /// Window with given strides.
    View(View),
    /// Other extents, same elements.
    Reshape(Reshape),
    /// Other order of dimensions.
    Permute(Permute),
    /// First two dimensions exchanged.
    Transpose(Transpose),
}

impl Op {
    /// The definition.
    pub fn definition(&self) -> &dyn Operation {
        match self {
            Op::GetRows(o) => o,
            Op::SetRows(o) => o,
            Op::MulMat(o) => o,
            Op::MulMatId(o) => o,
            Op::TopK(o) => o,
            Op::Binary(o) => o,
            Op::RmsNorm(o) => o,
            Op::Rope(o) => o,
            Op::SoftMax(o) => o,
            Op::Unary(o) => o,
            Op::Scale(o) => o,
            Op::Glu(o) => o,
            Op::Cpy(o) => o,
            Op::Cont(o) => o,
            Op::FlashAttnExt(o) => o,
            Op::CacheMask(o) => o,
            Op::SsmConv(o) => o,
            Op::GatedDeltaNet(o) => o,
            Op::SsmScan(o) => o,
            Op::View(o) => o,
            Op::Reshape(o) => o,
            Op::Permute(o) => o,
            Op::Transpose(o) => o,
        }
    }

    /// Name as ggml prints it.
    pub fn name(&self) -> &'static str {
        self.definition().name()
    }

    /// Whether the operation only looks at its operand in another way and costs nothing.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::View(_) | Op::Reshape(_) | Op::Permute(_) | Op::Transpose(_))
    }
}

/// Checks the number of operands.
pub(crate) fn operands(src: &[&Tensor], min: usize, max: usize) -> Result<(), String> {
    if (min..=max).contains(&src.len()) {
        Ok(())
    } else {
        Err(format!("takes {min} to {max} operands, {} were given", src.len()))
    }
}

/// Checks an operand's type.
pub(crate) fn typed(t: &Tensor, allowed: &[DType], role: &str) -> Result<(), String> {
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
