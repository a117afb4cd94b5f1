//! Instruction and memory counts of both drivers' kernels for a family of operations, from the emulated card:
//! free of noise, and without times.

use super::ops::select;
use super::text::align;
use crate::backends::{self, BackendName, OpenOptions};
use ggml_core::backend::{Backend, KernelCounts};
use ggml_core::catalogue::{self, Case, Outcome};
use ggml_core::precision::Precision;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Columns: heading, and the counters that are summed.
const COLUMNS: [(&str, &[&str]); 11] = [
    ("instr", &["instructions"]),
    ("salu", &["salu", "branch"]),
    ("valu", &["valu"]),
    ("dot", &["dot"]),
    ("smem", &["smem"]),
    ("load", &["vmem_load"]),
    ("store", &["vmem_store"]),
    ("lds", &["lds"]),
    ("wait", &["wait", "barrier"]),
    ("read", &["global_read", "scalar_read"]),
    ("written", &["global_written"]),
];

/// Formats a table of the counts of each case that the filter selects, with the counting backends in
/// consecutive rows. Columns are wavefront instructions by class, bytes read and written, and lane
/// instructions per element of the first operand.
///
/// [`Error::InvalidArgument`] if the filter selects nothing or no backend counts; any error of a backend.
pub fn counts(filter: &str, names: &[BackendName], precision: Precision) -> Result<String> {
    let cases = select(filter)?;
    let counting =
        names.iter().filter(|n| matches!(n, BackendName::VulkanVirtual(_) | BackendName::HipVirtual(_)));
    let mut all = Vec::new();
    for name in counting {
        all.push((name.to_string(), backends::open_named(name, &OpenOptions::default())?));
    }
    if all.is_empty() {
        let found = names.iter().map(BackendName::to_string).collect::<Vec<_>>().join(",");
        return Err(Error::argument("backends that count", found, "vulkan-virtual or hip-virtual"));
    }
    let mut head = vec!["case".to_string(), "backend".into()];
    head.extend(COLUMNS.iter().map(|c| c.0.to_string()));
    head.extend(["per element".to_string(), "kernels".into()]);
    let mut rows = vec![row(head)];
    for case in &cases {
        for (name, backend) in &all {
            rows.push(measure(case, name, backend, precision)?);
        }
    }
    Ok(align(&rows))
}

/// Cells per row: case, backend, the columns, and two more.
const CELLS: usize = COLUMNS.len() + 4;

fn row(cells: Vec<String>) -> [String; CELLS] {
    let mut cells = cells.into_iter();
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

/// Runs one case and returns its row of counts.
fn measure(
    case: &Case,
    name: &str,
    backend: &Arc<dyn Backend>,
    precision: Precision,
) -> Result<[String; CELLS]> {
    let before = backend.counts()?;
    let outcome = catalogue::run(case, &**backend, precision)?;
    let mut cells = vec![case.name.clone(), name.to_string()];
    if let Outcome::Unsupported(reason) = outcome {
        cells.push(format!("unsupported: {reason}"));
        return Ok(row(cells));
    }
    let done = difference(&before, &backend.counts()?);
    let sum = |names: &[&str]| -> u64 { done.iter().map(|kernel| kernel.sum(names)).sum() };
    cells.extend(COLUMNS.iter().map(|(_, names)| sum(names).to_string()));
    let of_lanes: f64 = done.iter().map(|kernel| kernel.wave() * kernel.sum(&["instructions"]) as f64).sum();
    cells.push(format!("{:.2}", of_lanes / elements(case)));
    cells.push(done.iter().map(|kernel| kernel.kernel.as_str()).collect::<Vec<_>>().join(", "));
    Ok(row(cells))
}

/// Returns the number of elements of the first operand (of a product, its weights).
fn elements(case: &Case) -> f64 {
    let first = case.graph.as_ref().ok().and_then(|g| {
        let operands = g.operands(case.node);
        operands.first().map(|t| t.ne.iter().product::<usize>())
    });
    first.unwrap_or(1).max(1) as f64
}

/// Returns the counts added since `before`, of the kernels that have run since, by name.
fn difference(before: &[KernelCounts], after: &[KernelCounts]) -> Vec<KernelCounts> {
    let earlier = |kernel: &str, counter: usize| {
        let known = before.iter().find(|b| b.kernel == kernel);
        known.map_or(0, |b| b.counts[counter].1)
    };
    let since = |k: &KernelCounts| KernelCounts {
        kernel: k.kernel.clone(),
        counts: k
            .counts
            .iter()
            .enumerate()
            .map(|(i, (name, n))| (*name, n - earlier(&k.kernel, i)))
            .collect(),
    };
    let mut done: Vec<_> = after.iter().map(since).filter(|k| k.counts.iter().any(|(_, n)| *n > 0)).collect();
    done.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ran_since_is_counted() {
        let counts = |kernel: &str, n: u64| KernelCounts {
            kernel: kernel.into(),
            counts: vec![("instructions", n), ("valu", n / 2)],
        };
        let before = [counts("a", 10), counts("b", 4)];
        let after = [counts("a", 30), counts("b", 4), counts("c", 2)];
        let done = difference(&before, &after);
        assert_eq!(done, [counts("a", 20), counts("c", 2)]);
    }

    #[test]
    fn a_list_without_a_card_is_refused() {
        let error = counts("SILU", &[BackendName::Cpu], Precision::Fast).expect_err("nothing counts");
        assert!(
            matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("cpu"),
            "{error}"
        );
    }
}
