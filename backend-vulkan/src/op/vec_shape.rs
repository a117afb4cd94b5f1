//! Shapes and specifications of matrix-vector kernels (`mat_vec.glsl`).

use super::weights::Weights;
use crate::pipeline::PipelineSpec;

/// Number of matrices that the kernel binds.
pub(super) const MATRICES: usize = 3;

/// The properties of a product that select a matrix-vector kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) weights: &'a Weights,
    /// Number of columns; more than the kernels support need several work-groups.
    pub(super) columns: u32,
    /// Rows of all matrices that are computed at a time, and weights of each row.
    pub(super) rows: u64,
    pub(super) k: u32,
    /// Rows of a team that belong together: 2 with a GLU.
    pub(super) pair: u32,
    pub(super) aligned: bool,
    /// True if rows begin at whole words, for types whose blocks have an odd number of half-words.
    pub(super) even: bool,
    /// True if activations are rounded to 8 bits.
    pub(super) int8: bool,
    /// True if weights may be read through workgroup-shared memory: that kernel processes one matrix at a
    /// time.
    pub(super) staged: bool,
}

impl Shape<'_> {
    /// Returns true for the usual shape in models: one column, many rows, aligned.
    pub(super) fn is_usual(&self) -> bool {
        self.rows > 1 && self.aligned && self.columns == 1
    }
}

/// A matrix-vector kernel's constants, and the rows and columns that a work-group computes.
#[derive(Debug)]
pub(super) struct VecSpec {
    pub(super) variant: &'static str,
    pub(super) constants: Vec<u32>,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Number of times that a work-group computes its rows, one set after the other.
    pub(super) passes: u32,
    /// Required subgroup size, if any.
    pub(super) subgroup: Option<u32>,
}

impl VecSpec {
    /// Returns the kernel of a shader with these constants.
    pub(super) fn pipeline(&self, shader: &'static str, constants: Vec<u32>) -> PipelineSpec {
        let (variant, specialization) = (self.variant, constants);
        PipelineSpec { shader, variant, specialization, subgroup: self.subgroup }
    }

    /// Returns the constants of the kernel with up to three matrices, `used` of which exist, and the fused
    /// operations in `parts`.
    pub(super) fn of_products(&self, parts: u32, used: u32) -> Vec<u32> {
        let passes = Some(self.passes).filter(|_| self.variant.ends_with("_staged"));
        self.constants.iter().copied().chain([parts, used]).chain(passes).collect()
    }
}
