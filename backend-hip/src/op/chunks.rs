//! Recurrences with a state, computed by chunks of tokens (`chunks.h`) in two launches: the first computes
//! the interactions of the tokens within each chunk, the second carries the state from chunk to chunk.

use super::grid::{launch, scratch};
use super::{Context, Launch, Operand, Refusal};
use bytemuck::NoUninit;
use ggml_core::kernel::chunks::Chunks;

/// Threads of a work-group of both kernels, and state columns of a work-group of the second one.
const THREADS: u32 = 256;
const COLUMNS: u32 = 16;

/// Kernels of an operation; each pair is the first and the second kernel.
pub(super) struct Family {
    /// Stem of their source.
    pub(super) module: &'static str,
    /// Kernels for specific column lengths; they load keys and queries 16 bytes at a time.
    pub(super) of_length: &'static [(u32, [&'static str; 2])],
    /// Kernels for all other lengths.
    pub(super) any: [&'static str; 2],
    /// Indices of the operands with keys and queries.
    pub(super) rows: [usize; 2],
    /// Operands that the first kernel reads; they are followed by the scratch memory it writes.
    pub(super) first: &'static [usize],
    /// Operands that the second kernel reads; they are followed by the scratch memory.
    pub(super) second: [usize; 5],
}

/// Plans the launches of a node. `extents`: length and number of the columns of a head, heads and slots.
/// `strides`: those of keys and queries.
pub(super) fn plan<P: NoUninit>(
    c: &Context<'_>,
    family: &Family,
    p: &P,
    chunks: Chunks,
    [[length, columns], [heads, slots]]: [[u32; 2]; 2],
    strides: [[u32; 2]; 2],
) -> Result<Vec<Launch>, Refusal> {
    let src = c.graph.tensor(c.node).src();
    let begins = family.rows.iter().all(|&i| c.graph.tensor(src[i]).offset.is_multiple_of(16));
    let aligned = begins && strides.as_flattened().iter().all(|nb| nb.is_multiple_of(4));
    let known = family.of_length.iter().find(|&&(of, _)| aligned && of == length);
    let [chunk, walk] =
        known.map_or(family.any, |&(_, kernels)| kernels).map(|kernel| (family.module, kernel));
    let [between] = scratch(c, [(chunks.bytes, 1)])?;
    let with = |read: &[usize], more: &[Operand]| -> Vec<Operand> {
        read.iter().map(|&i| Operand::Tensor(src[i])).chain(more.iter().copied()).collect()
    };
    let first = with(family.first, &[between]);
    let second = with(&family.second, &[between, Operand::Tensor(c.node)]);
    // One extra slot for tokens without a slot.
    let groups = [columns.div_ceil(COLUMNS), heads, slots + 1].map(u64::from);
    Ok(vec![
        launch(c, chunk, first, p, [chunks.count, heads, 1].map(u64::from), THREADS)?,
        launch(c, walk, second, p, groups, THREADS)?,
    ])
}
