//! The best of the logits, chosen where they are computed, so that nobody has to read all of them.
//!
//! The best one is TOP_K of the row, which backends compute together with what is read besides it
//! ([`Best`](ggml_core::fuse::Best)): they cut rows as they like.
//!
//! Of several a work-group takes a row of TOP_K, and a vocabulary is long for one. So a row is cut into parts of equal length;
//! the best of each part are the candidates, and the best of those are the best of all. Candidates stand in the order of
//! their parts, and of equals in a part the first comes first: so the first of equals wins, as in a search through the row.

use ggml_core::{Error, Graph, Result, TensorId};

/// Rows that one work-group goes through as they are.
const SHORT: usize = 1024;

/// The nodes that choose the best `k` of each row of logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestNodes {
    /// F32 `[1, k, outputs]`: the logits, the largest first.
    pub logits: TensorId,
    /// I32, `k` for each output: their tokens.
    pub tokens: TensorId,
    /// F32 `[parts, 1, outputs]`: sums to which every logit of a part contributes. They are finite if the logits are.
    pub sums: TensorId,
    /// Parts of a row: one where one is chosen.
    pub parts: usize,
}

impl BestNodes {
    /// Adds nodes that choose the best `k` of each row of F32 `[n, rows]`, contiguous.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `k` is from 1 to `n`.
    pub fn new(graph: &mut Graph, logits: TensorId, k: usize) -> Result<BestNodes> {
        let [n, rows, ..] = graph.tensor(logits).ne;
        if k == 0 || k > n {
            return Err(Error::argument("best logits", k, format!("from 1 to {n}")));
        }
        let single = graph.reshape(logits, [1, n, rows, 1])?;
        if k == 1 {
            let tokens = graph.top_k(logits, 1)?;
            graph.name(tokens, "best.tokens")?;
            let value = graph.get_rows(single, tokens)?;
            graph.name(value, "best.logits")?;
            // The product of a row with itself: what is no number stays none, and nothing takes anything away.
            let row = graph.reshape(logits, [n, 1, rows, 1])?;
            let sums = graph.mul_mat(row, row)?;
            graph.name(sums, "best.sums")?;
            return Ok(BestNodes { logits: value, tokens, sums, parts: 1 });
        }
        let part = part(n, k);
        let parts = n / part;
        let cut = graph.reshape(logits, [part, parts, rows, 1])?;
        let candidates = graph.top_k_flat(cut, k)?;
        graph.name(candidates, "best.candidates")?;
        let ids = graph.reshape(candidates, [k * parts, rows, 1, 1])?;
        let values = graph.get_rows(single, ids)?;
        graph.name(values, "best.values")?;
        // The products of all parts with the first: what is no number in either stays none.
        let first = graph.view(logits, [part, 1, rows, 1], [4, 4 * part, 4 * n, 4 * n * rows], 0)?;
        let sums = graph.mul_mat(cut, first)?;
        graph.name(sums, "best.sums")?;
        if parts == 1 {
            return Ok(BestNodes { logits: values, tokens: candidates, sums, parts });
        }
        let row = graph.reshape(values, [k * parts, rows, 1, 1])?;
        let places = graph.top_k(row, k)?;
        graph.name(places, "best.places")?;
        let mut chosen = |from: TensorId, name: &str| {
            let single = graph.reshape(from, [1, k * parts, rows, 1])?;
            let chosen = graph.get_rows(single, places)?;
            graph.name(chosen, name).map(|()| chosen)
        };
        let (logits, tokens) = (chosen(values, "best.logits")?, chosen(candidates, "best.tokens")?);
        Ok(BestNodes { logits, tokens, sums, parts })
    }

    /// The nodes that have to be outputs.
    pub fn outputs(&self) -> [TensorId; 3] {
        [self.logits, self.tokens, self.sums]
    }
}

/// Length of the parts of a row of `n`, from which the best `k` are chosen: a divisor of `n`. A work-group looks `k` times
/// through a part, and the last one through `k` elements of each part; that is least where both have the same number,
/// the root of `n k`.
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
    // The nearer one; where both are as near, the one that leaves fewer candidates.
    below.filter(|below| below * above > n * k).unwrap_or(above)
}

#[cfg(test)]
mod tests {
    use super::{BestNodes, part};
    use ggml_core::plan::Plan;
    use ggml_core::precision::Precision;
    use ggml_core::{DType, Error, Graph, Source};

    /// What chooses the token, and, where the next step reads it, leaves it there, is one group.
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
            // A prime.
            (50_261, 2, 50_261),
            (1031, 1031, 1031),
        ] {
            let part = part(n, k);
            assert_eq!(part, wanted, "{n}, {k}");
            assert!(n % part == 0 && part >= k);
        }
    }
}
