//! CPY and CONT.

use super::grid::{ROW_THREADS, launch, tensors};
use super::{Context, Launch, Refusal};
use bytemuck::{Pod, Zeroable};
use ggml_core::DType;
use ggml_core::kernel::CopyParams;

/// Elements per thread.
const PIECE: u64 = 4;
/// Side of the transposing kernels' tiles.
const SIDE: u32 = 32;

/// Returns the launch that copies `count` words of 32 bits between two addresses. The caller supplies the two
/// operands.
pub(crate) fn of_words(count: u32) -> Launch {
    let (ne, nb) = ([count, 1, 1, 1], [1, count, count, count]);
    let p = CopyParams { ne0: ne, ned: ne, nb0: nb, nbd: nb, off0: 0, offd: 0, count };
    Launch {
        module: "copy",
        kernel: "copy_b32",
        operands: Vec::new(),
        written: 1,
        params: bytemuck::bytes_of(&p).to_vec(),
        grid: [count.div_ceil(PIECE as u32 * ROW_THREADS), 1, 1],
        block: [ROW_THREADS, 1, 1],
        lds_bytes: 0,
    }
}

/// Maximum number of arrays per launch of [`gather`].
pub(crate) const GATHERED: usize = 4;

/// Parameters of the gathering kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
struct GatherParams {
    /// Words of each array.
    words: [u32; GATHERED],
    /// Offset of each array in the result, in words.
    at: [u32; GATHERED],
}

/// Name of the gathering kernel.
pub(crate) const GATHERER: &str = "gather_words";

/// Returns the launch that copies up to [`GATHERED`] arrays of words into another array, given the words and
/// the destination offset of each. The caller supplies the operands: an address for each of [`GATHERED`]
/// arrays and that of the result.
pub(crate) fn gather(arrays: &[(u32, u32)]) -> Launch {
    let mut p = GatherParams::default();
    for (i, &(words, at)) in arrays.iter().take(GATHERED).enumerate() {
        (p.words[i], p.at[i]) = (words, at);
    }
    let most = p.words.into_iter().max().unwrap_or(0).max(1);
    Launch {
        module: "copy",
        kernel: GATHERER,
        operands: Vec::new(),
        written: 1,
        params: bytemuck::bytes_of(&p).to_vec(),
        grid: [most.div_ceil(ROW_THREADS), GATHERED as u32, 1],
        block: [ROW_THREADS, 1, 1],
        lds_bytes: 0,
    }
}

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = CopyParams::new(c.graph, c.node, &[])?;
    let source = c.graph.tensor(c.node).src()[0];
    let (from, to) = (c.graph.tensor(source).dtype, c.graph.tensor(c.node).dtype);
    let operands = tensors(&[source, c.node]);
    if from == to && is_transposed(&p) {
        let kernel = if from.block_bytes() == 4 { "copy_transposed_b32" } else { "copy_transposed_b16" };
        let tiles = |n: u32| u64::from(n.div_ceil(SIDE));
        let groups = [tiles(p.ned[0]), tiles(p.ned[1]), u64::from(p.ned[2]) * u64::from(p.ned[3])];
        return Ok(vec![launch(c, ("copy", kernel), operands, &p, groups, ROW_THREADS)?]);
    }
    let kernel = match (from, to) {
        (DType::F32, DType::F32) | (DType::I32, DType::I32) => "copy_b32",
        (DType::F16, DType::F16) | (DType::BF16, DType::BF16) => "copy_b16",
        (DType::F32, DType::F16) => "copy_f32_f16",
        (DType::F32, DType::BF16) => "copy_f32_bf16",
        (DType::F16, DType::F32) => "copy_f16_f32",
        (DType::BF16, DType::F32) => "copy_bf16_f32",
        (DType::F16, DType::BF16) => "copy_f16_bf16",
        (DType::BF16, DType::F16) => "copy_bf16_f16",
        _ => return Err(Refusal(format!("CPY has no HIP kernel from {from} to {to}"))),
    };
    let groups = u64::from(p.count).div_ceil(PIECE * u64::from(ROW_THREADS));
    Ok(vec![launch(c, ("copy", kernel), operands, &p, [groups, 1, 1], ROW_THREADS)?])
}

/// Returns true if the source is dense in its second index and the destination in its first; then tiles
/// outweigh the cost of their barrier.
fn is_transposed(p: &CopyParams) -> bool {
    let wide = p.ned[0] >= SIDE / 2 && p.ned[1] >= SIDE / 2;
    p.ne0 == p.ned && p.nb0[1] == 1 && p.nb0[0] != 1 && p.nbd[0] == 1 && wide
}
