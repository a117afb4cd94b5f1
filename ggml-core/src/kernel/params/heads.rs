//! Parameters of the heads between the projections and attention.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fuse::{Head, Heads, NormPart, Rotated, Stored};
use crate::graph::Graph;
use crate::kernel::{narrow, rope, strides};
use crate::op::RopeMode;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of [`Heads`], of up to three parts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct HeadsParams {
    /// Elements in a head.
    pub d: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Heads of each part; 0 for a missing part.
    pub heads: [u32; 3],
    /// Strides of heads, for each part.
    pub nbh: [u32; 3],
    /// Strides of tokens, for each part.
    pub nbt: [u32; 3],
    /// Strides of rows of the results, in blocks.
    pub nbd: [u32; 3],
    /// Eight bits for each part: the sum of [`HeadsParams::NORMED`], [`HeadsParams::ROTATED`] and
    /// [`HeadsParams::STORED`], and 16 times the type code of the result: 0 F32, 1 F16, 2 Q8_0, 3 Q4_0.
    pub parts: u32,
    /// Number of cells in the cache.
    pub rows: u32,
    /// ROPE: number of rotated elements.
    pub n_dims: u32,
    /// ROPE: 0 if pairs are neighbours, 1 if they are the halves.
    pub neox: u32,
    /// ROPE: 1 if there are factors.
    pub has_factors: u32,
    /// ROPE: factor of sine and cosine.
    pub magnitude: f32,
    /// Norms: epsilon added to the mean square.
    pub eps: f32,
    /// Offsets of the parts.
    pub offx: [u32; 3],
    /// Offsets of the norm weights of the first two parts.
    pub offw: [u32; 2],
    /// Offsets of the results in blocks.
    pub offd: [u32; 3],
    /// Offset of the positions.
    pub off_positions: u32,
    /// Offset of the cells.
    pub off_cells: u32,
    /// Offset of the factors.
    pub off_factors: u32,
}

/// Tensors of a group in the order of the kernel's operands. A missing operand is replaced by another tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsOperands {
    /// The parts.
    pub x: [TensorId; 3],
    /// Norm weights of the first two parts.
    pub w: [TensorId; 2],
    /// ROPE's positions.
    pub positions: TensorId,
    /// Cells of the cache.
    pub cells: TensorId,
    /// Node whose constant is the frequency table.
    pub table: TensorId,
    /// ROPE's factors, if there are any.
    pub factors: Option<TensorId>,
    /// The results.
    pub d: [TensorId; 3],
}

fn refused(what: &str, found: impl ToString, expected: &str) -> Error {
    Error::argument(format!("heads: {what}"), found.to_string(), expected)
}

/// Returns the value shared by all parts that have one; an error if they differ.
fn common<T: PartialEq>(parts: impl Iterator<Item = T>, what: &str) -> Result<Option<T>> {
    let mut found = None;
    for part in parts {
        match &found {
            Some(first) if *first != part => return Err(refused(what, "several", "one")),
            _ => found = Some(part),
        }
    }
    Ok(found)
}

impl HeadsParams {
    /// In `parts`: heads are normalised.
    pub const NORMED: u32 = 1;
    /// In `parts`: heads are rotated by ROPE.
    pub const ROTATED: u32 = 2;
    /// In `parts`: the result is stored in rows of the cache.
    pub const STORED: u32 = 4;

    /// Maximum number of elements in a head.
    pub const LONGEST: usize = 256;

    /// Builds the parameters and operands of a group. `off` gives the remainder of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a group that the kernels do not support.
    pub fn new(
        graph: &Graph,
        group: &Heads,
        off: &dyn Fn(TensorId) -> u32,
    ) -> Result<(HeadsParams, HeadsOperands)> {
        let parts = &group.heads[..];
        let norms = || parts.iter().filter_map(|part| part.norm);
        let ropes = || parts.iter().filter_map(|part| part.rope);
        let stores = || parts.iter().filter_map(|part| part.stored);
        if parts.is_empty() || parts.len() > 3 || parts.get(2).is_some_and(|part| part.norm.is_some()) {
            return Err(refused("parts", parts.len(), "up to three, the third without a norm"));
        }
        let same =
            common(ropes().map(|Rotated { op, positions, factors, .. }| (op, positions, factors)), "ROPE")?;
        let eps = common(norms().map(|NormPart { eps, .. }| eps), "eps")?.unwrap_or_default();
        let cells = common(stores().map(|Stored { cells, .. }| cells), "cells")?;
        let rows = common(stores().map(|stored| graph.tensor(stored.node).ne[1]), "numbers of cells")?;
        let (Some((op, positions, factors)), Some(table)) = (same, ropes().next()) else {
            return Err(refused("heads", "none has ROPE", "ROPE of at least one part"));
        };
        let [d, _, tokens, _] = graph.tensor(table.node).ne;
        if d > Self::LONGEST {
            return Err(refused("elements", d, "256 or fewer"));
        }
        if let Some(cells) = cells.map(|id| graph.tensor(id))
            && (cells.ne != [tokens, 1, 1, 1] || !cells.is_contiguous())
        {
            return Err(refused("cells", cells.describe(), "one for each token"));
        }
        let x = parts[0].x;
        let w = |i: usize| parts.get(i).and_then(|part| part.norm).map_or(x, |norm| norm.weight);
        let part = |i: usize| parts.get(i).unwrap_or(&parts[0]);
        let operands = HeadsOperands {
            x: [0, 1, 2].map(|i| part(i).x),
            w: [w(0), w(1)],
            positions,
            cells: cells.unwrap_or(positions),
            table: table.node,
            factors,
            d: [0, 1, 2].map(|i| part(i).result()),
        };
        let at = graph.tensor(table.node);
        let mut p = HeadsParams {
            d: narrow(d, "head", at)?,
            tokens: narrow(tokens, "tokens", at)?,
            rows: narrow(rows.unwrap_or_default(), "cells", at)?,
            n_dims: narrow(op.n_dims, "n_dims", at)?,
            neox: (op.mode == RopeMode::Neox) as u32,
            has_factors: factors.is_some() as u32,
            magnitude: rope::magnitude(&op),
            eps,
            offx: operands.x.map(off),
            offw: operands.w.map(off),
            offd: operands.d.map(off),
            off_positions: off(positions),
            off_cells: off(operands.cells),
            off_factors: factors.map_or(0, off),
            ..HeadsParams::default()
        };
        for (i, part) in parts.iter().enumerate() {
            p.set_part(graph, i, part, [d, tokens])?;
        }
        Ok((p, operands))
    }

    fn set_part(&mut self, graph: &Graph, i: usize, part: &Head, [d, tokens]: [usize; 2]) -> Result<()> {
        let (x, result) = (graph.tensor(part.x), graph.tensor(part.result()));
        let nb = strides(x)?;
        let heads = if part.rope.is_some() { x.ne[1] } else { x.ne[0] / d };
        let expected = if part.rope.is_some() { [d, heads, tokens, 1] } else { [d * heads, tokens, 1, 1] };
        if x.ne != expected || x.dtype != DType::F32 {
            return Err(refused("x", x.describe(), "F32 heads of one length, of the same tokens"));
        }
        (self.nbh[i], self.nbt[i]) = if part.rope.is_some() { (nb[1], nb[2]) } else { (self.d, nb[1]) };
        self.heads[i] = narrow(heads, "heads", x)?;
        let kind = match result.dtype {
            DType::F32 => 0,
            DType::F16 => 1,
            DType::Q8_0 => 2,
            DType::Q4_0 => 3,
            other => return Err(refused("cache", other, "F32, F16, Q8_0 or Q4_0")),
        };
        if !d.is_multiple_of(result.dtype.block()) {
            return Err(refused("elements", d, "whole blocks of the cache"));
        }
        let stored = if part.stored.is_some() {
            if result.ne[0] != d * heads || result.ne[2..] != [1, 1] {
                return Err(refused("cache", result.describe(), "rows of all heads"));
            }
            Self::STORED
        } else {
            0
        };
        self.nbd[i] = match part.stored {
            Some(_) => strides(result)?[1],
            None => narrow(d * heads, "row", result)?,
        };
        let norm = part.norm.map_or(0, |_| Self::NORMED);
        let rotated = part.rope.map_or(0, |_| Self::ROTATED);
        self.parts |= (norm | rotated | stored | kind << 4) << (8 * i);
        Ok(())
    }
}
