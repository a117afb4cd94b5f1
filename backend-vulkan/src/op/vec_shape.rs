//! What the kernels of mat-vec are chosen by, and what is chosen (`mat_vec.glsl`).

use super::weights::Weights;

/// What decides about the form of a mat-vec kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) weights: &'a Weights,
    /// Columns; more than the kernels have take several work-groups.
    pub(super) columns: u32,
    /// Rows of all matrices that are computed at a time, and weights of each.
    pub(super) rows: u64,
    pub(super) k: u32,
    /// Rows of a team that belong together: 2 with a GLU.
    pub(super) pair: u32,
    pub(super) aligned: bool,
    /// Whether rows of types whose blocks are an odd number of half-words begin with whole words.
    pub(super) even: bool,
    /// Whether activations are rounded to 8 bits.
    pub(super) int8: bool,
    /// Whether weights may go through shared memory: that kernel takes one matrix at a time.
    pub(super) staged: bool,
}

impl Shape<'_> {
    /// Whether it is one that models have: of one column, with many rows in a usual place.
    pub(super) fn is_usual(&self) -> bool {
        self.rows > 1 && self.aligned && self.columns == 1
    }
}

/// A mat-vec kernel's constants, and how many rows and columns a work-group computes.
#[derive(Debug)]
pub(super) struct VecSpec {
    pub(super) variant: &'static str,
    pub(super) constants: Vec<u32>,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Times that a work-group computes so many rows, one after the other.
    pub(super) passes: u32,
}

impl VecSpec {
    /// The constants of the kernel of up to three matrices, of which `used` are there, with what `parts` says.
    pub(super) fn of_products(&self, parts: u32, used: u32) -> Vec<u32> {
        let passes = Some(self.passes).filter(|_| self.variant.ends_with("_staged"));
        self.constants.iter().copied().chain([parts, used]).chain(passes).collect()
    }
}
