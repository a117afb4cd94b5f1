//! Operations, each defined once.
//!
//! A family of operations is one file. It holds the parameters, the shape rule and the reference
//! implementation, which computes the definition in f64. The test cases that every backend must pass are in a
//! file of the same name in [`crate::catalogue`]. A new operation needs these two files, its kernels, and one
//! dispatch entry for each backend.

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
mod operation;
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
pub use operation::{Alias, Computed, Operation, Output};
pub use rope::{Rope, RopeMode};
pub use rows::{GetRows, SetRows};
pub use soft_max::SoftMax;
pub use ssm_conv::SsmConv;
pub use ssm_scan::SsmScan;
pub use top_k::TopK;
pub use unary::{Activation, Scale, Unary};
pub use view::{Permute, Reshape, Transpose, View};

use operation::{operands, rule, typed};

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
    /// Mask of the cache cells that tokens see.
    CacheMask(CacheMask),
    /// Short convolution with state.
    SsmConv(SsmConv),
    /// Linear attention with state.
    GatedDeltaNet(GatedDeltaNet),
    /// Selective state space of Mamba-2.
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
    /// Returns the definition.
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

    /// Returns the name as ggml prints it.
    pub fn name(&self) -> &'static str {
        self.definition().name()
    }

    /// True if the operation is only another view of its operand and computes nothing.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::View(_) | Op::Reshape(_) | Op::Permute(_) | Op::Transpose(_))
    }
}
