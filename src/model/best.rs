//! Selection of the best logits on the device, so that the others need not be read back.
//!
//! For one result, the best logit is a TOP_K of the whole row. Backends compute it together with the reads
//! next to it ([`Best`](ggml_core::fuse::Best)) and divide the row themselves.
//!
//! For several results, one work-group processes one row of TOP_K, and a vocabulary is a long row for one
//! work-group. So the row is cut into parts of equal length: the best of each part are the candidates, and
//! the best candidates are the best of the row. Candidates are in the order of their parts, and among equal
//! logits of a part the first comes first. So the first of equals wins, as in a linear search.

use ggml_core::{Error, Graph, Result, TensorId};

/// Length of the longest row that is not cut into parts.
const SHORT: usize = 1024;

/// Nodes that select the best `k` of each row of logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestNodes {
    /// F32 `[1, k, outputs]`: the largest logits in descending order.
    pub logits: TensorId,
    /// I32, `k` for each output: the tokens of these logits.
    pub tokens: TensorId,
    /// F32 `[parts, 1, outputs]`: sums to which every logit of a part contributes. They are finite if the
    /// logits are.
    pub sums: TensorId,
    /// Number of parts of a row; 1 if one token is selected.
    pub parts: usize,
}

impl BestNodes {
    /// Adds nodes that select the best `k` of each row of contiguous F32 `[n, rows]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `k` is from 1 to `n`.
    pub fn new(graph: &mut Graph, logits: TensorId, k: usize) -> Result<BestNodes> {
        BestNodes::named(graph, logits, k, "")
    }

    /// Adds the nodes as [`BestNodes::new`] does, with `suffix` at the end of their names.
    pub(super) fn named(graph: &mut Graph, logits: TensorId, k: usize, suffix: &str) -> Result<BestNodes> {
        let named = |graph: &mut Graph, id: TensorId, name: &str| graph.name(id, &format!("{name}{suffix}"));
        let [n, rows, ..] = graph.tensor(logits).ne;
        if k == 0 || k > n {
            return Err(Error::argument("best logits", k, format!("from 1 to {n}")));
        }
        let single = graph.reshape(logits, [1, n, rows, 1])?;
        if k == 1 {
            let tokens = graph.top_k(logits, 1)?;
            named(graph, tokens, "best.tokens")?;
            let value = graph.get_rows(single, tokens)?;
            named(graph, value, "best.logits")?;
            // Dot product of the row with itself: any NaN or infinity makes it non-finite, and no terms
            // cancel.
            let row = graph.reshape(logits, [n, 1, rows, 1])?;
            let sums = graph.mul_mat(row, row)?;
            named(graph, sums, "best.sums")?;
            return Ok(BestNodes { logits: value, tokens, sums, parts: 1 });
        }
        let part = part(n, k);
        let parts = n / part;
        let cut = graph.reshape(logits, [part, parts, rows, 1])?;
        let candidates = graph.top_k_flat(cut, k)?;
        named(graph, candidates, "best.candidates")?;
        let ids = graph.reshape(candidates, [k * parts, rows, 1, 1])?;
        let values = graph.get_rows(single, ids)?;
        named(graph, values, "best.values")?;
        // Dot product of each part with the first: any NaN or infinity makes it non-finite.
        let first = graph.view(logits, [part, 1, rows, 1], [4, 4 * part, 4 * n, 4 * n * rows], 0)?;
        let sums = graph.mul_mat(cut, first)?;
        named(graph, sums, "best.sums")?;
        if parts == 1 {
            return Ok(BestNodes { logits: values, tokens: candidates, sums, parts });
        }
        let row = graph.reshape(values, [k * parts, rows, 1, 1])?;
        let places = graph.top_k(row, k)?;
        named(graph, places, "best.places")?;
        let mut chosen = |from: TensorId, name: &str| {
            let single = graph.reshape(from, [1, k * parts, rows, 1])?;
            let chosen = graph.get_rows(single, places)?;
            named(graph, chosen, name).map(|()| chosen)
        };
        let (logits, tokens) = (chosen(values, "best.logits")?, chosen(candidates, "best.tokens")?);
        Ok(BestNodes { logits, tokens, sums, parts })
    }

    /// Returns the nodes that have to be graph outputs.
    pub fn outputs(&self) -> [TensorId; 3] {
        [self.logits, self.tokens, self.sums]
    }
}

/// Returns the length of the parts of a row of `n` from which the best `k` are selected: a divisor of `n`. A
/// work-group scans its part `k` times, and the last work-group scans `k` elements of each part. The sum is
/// least if both have the same length, the square root of `n k`.
fn part(n: usize, k: usize) -> usize {
    if n <= SHORT {
        return n;
    }
    let (mut below, mut above) = (None, n);
    for divisor in (1..=n.isqrt()).filter(|d| n.is_multiple_of(*d)).flat_map(|d| [d, n / d]) {
        match divisor {
            _ if divisor <= k => {}
            _ if divisor < (n * k).isqrt() => below = below.max(Some(divisor)),
            _ => above = above.min(divisor),
        }
    }
    // Choose the nearer divisor; of two equally near ones, the one with fewer candidates.
    below.filter(|below| below * above > n * k).unwrap_or(above)
}

#[cfg(test)]
mod tests {
    use super::{BestNodes, part};
    use ggml_core::plan::Plan;
    use ggml_core::precision::Precision;
    use ggml_core::{DType, Error, Graph, Source};

    /// Selecting the token and, in chained graphs, storing it for the next step is one group.
    #[test]
    fn the_best_one_is_one_step() {
        let backend = match crate::open("hip-virtual:gfx906", &crate::OpenOptions::default()) {
            Ok(backend) => backend,
            Err(Error::Unavailable { reason, .. }) => return eprintln!("skipped: {reason}"),
            Err(error) => panic!("{error}"),
        };
        for (chained, wanted) in [(false, 3), (true, 4)] {
            let mut graph = Graph::new();
            let tokens = graph.leaf("tokens", DType::I32, [1, 1, 1, 1], Source::State).unwrap();
            let logits = graph.leaf("logits", DType::F32, [2011, 1, 1, 1], Source::Input).unwrap();
            let best = BestNodes::new(&mut graph, logits, 1).unwrap();
            best.outputs().into_iter().for_each(|id| graph.output(id).unwrap());
            if chained {
                graph.cpy(best.tokens, tokens).unwrap();
            }
            let plan = Plan::fused(&graph, backend.as_ref(), Precision::Fast).unwrap();
            let steps = plan.steps.iter().map(|step| (step.group.name(&graph), step.group.nodes().len()));
            assert_eq!(steps.collect::<Vec<_>>(), [("best", wanted)]);
        }
    }

    #[test]
    fn parts_divide_a_vocabulary() {
        for (n, k, wanted) in [
            (203, 2, 203),
            (1024, 40, 1024),
            (32_000, 2, 256),
            (128_256, 2, 501),
            (128_256, 64, 2672),
            (151_936, 40, 2374),
            (262_144, 2, 1024),
            // Prime length.
            (50_261, 2, 50_261),
            (1031, 1031, 1031),
        ] {
            let part = part(n, k);
            assert_eq!(part, wanted, "{n}, {k}");
            assert!(n % part == 0 && part >= k);
        }
    }
}
