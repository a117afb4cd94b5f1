//! Test cases of SSM_SCAN.

use super::case::{Case, Fill};
use super::ssm_conv::leaf_of_runs;
use crate::dtype::DType;

/// Creates a case: `[n, groups]`, `[d, heads]`, tokens and runs.
type Scan = (&'static str, [usize; 2], [usize; 2], usize, Vec<[usize; 3]>);

fn case(scan: Scan) -> Case {
    drafts(scan, &[])
}

/// Creates a case with the tokens of each run that are no drafts.
fn drafts(scan: Scan, kept: &'static [usize]) -> Case {
    with(scan, kept, Fill::Uniform(-4.0, 2.0), &[])
}

/// Creates a case with a fill of `dt`, and NaN in some elements of x, b and c.
fn with(
    (name, [n, groups], [d, heads], tokens, runs): Scan,
    kept: &'static [usize],
    steps: Fill,
    nan: &[usize],
) -> Case {
    let slots = runs.len();
    let name =
        format!("SSM_SCAN({name}: b=[{n}, {groups}], x=[{d}, {heads}], tokens={tokens}, slots={slots})");
    Case::new(name, |g, c| {
        // x, b and c are windows of one tensor, like the output of a convolution.
        let row = d * heads + 2 * n * groups;
        let fill = Fill::Uniform(-1.0, 1.0).but(nan.iter().map(|&at| (at..at + 1, f32::NAN)));
        let all = c.leaf(g, "xbc", DType::F32, [row, tokens, 1, 1], fill)?;
        let mut window = |d: usize, heads: usize, first: usize| {
            g.view(all, [d, heads, tokens, 1], [4, 4 * d, 4 * row, 4 * row * tokens], 4 * first)
        };
        let x = window(d, heads, 0)?;
        let to = window(n, groups, d * heads)?;
        let from = window(n, groups, d * heads + n * groups)?;
        let dt = c.leaf(g, "dt", DType::F32, [heads, tokens, 1, 1], steps)?;
        let a = c.leaf(g, "a", DType::F32, [1, heads, 1, 1], Fill::Uniform(-2.0, -0.1))?;
        let state = c.leaf(g, "state", DType::F32, [n, d, heads, slots], Fill::Uniform(-0.1, 0.1))?;
        let runs = leaf_of_runs(g, c, &runs, kept)?;
        g.ssm_scan([x, dt, a, to, from, state, runs])
    })
}

/// Test cases: one token and prompts, heads in groups, states and heads of usual and odd lengths, several
/// slots.
pub(super) fn cases() -> Vec<Case> {
    let one = |tokens, position| vec![[0, tokens, position]];
    let cases: Vec<Scan> = vec![
        ("one token, going on", [128, 1], [64, 4], 1, one(1, 5)),
        ("one token, first", [64, 2], [32, 4], 1, one(1, 0)),
        ("a prompt", [128, 2], [64, 4], 23, one(23, 0)),
        ("a prompt that goes on", [128, 1], [32, 3], 9, one(9, 100)),
        ("short states", [16, 1], [48, 3], 6, one(6, 2)),
        ("odd lengths", [21, 2], [7, 4], 5, one(5, 1)),
        ("long states", [256, 1], [20, 2], 4, one(4, 3)),
        ("one channel", [1, 1], [1, 1], 3, one(3, 1)),
        ("several slots", [32, 2], [32, 4], 9, vec![[5, 2, 1], [0, 0, 9], [0, 5, 0], [7, 1, 40]]),
    ];
    let with_drafts = [
        drafts(("no draft", [128, 1], [64, 2], 4, one(4, 3)), &[4]),
        drafts(("two drafts of three", [128, 1], [64, 4], 3, one(3, 0)), &[1]),
        drafts(("drafts alone", [21, 2], [7, 4], 5, one(5, 2)), &[0]),
        drafts(("drafts alone, first", [16, 1], [40, 1], 2, one(2, 0)), &[0]),
        drafts(
            ("drafts behind many tokens", [64, 1], [32, 2], 41, vec![[30, 10, 1], [0, 0, 9], [0, 30, 0]]),
            &[7, 0, 25],
        ),
    ];
    cases.into_iter().map(case).chain(with_drafts).chain(chunk_cases()).collect()
}

/// Cases about chunks of 32 tokens: runs that end before, at and after a chunk's end, steps that forget
/// everything or do nothing.
fn chunk_cases() -> Vec<Case> {
    let one = |tokens, position| vec![[0, tokens, position]];
    let cases: Vec<Scan> = vec![
        ("a chunk but one", [128, 1], [32, 2], 31, one(31, 4)),
        ("a chunk", [64, 1], [64, 2], 32, one(32, 0)),
        ("a chunk and one", [128, 1], [64, 2], 33, one(33, 0)),
        ("two chunks and three", [128, 2], [64, 4], 67, one(67, 9)),
        ("many chunks", [128, 1], [20, 2], 200, one(200, 1)),
        ("chunks of odd lengths", [21, 2], [7, 4], 67, one(67, 2)),
        ("chunks of long states", [256, 1], [20, 2], 40, one(40, 2)),
        ("chunks of two sequences", [128, 1], [48, 2], 111, vec![[42, 65, 7], [3, 37, 0]]),
        ("one run of many", [16, 1], [16, 1], 80, vec![[0, 0, 3], [2, 1, 5], [4, 76, 1], [80, 0, 0]]),
    ];
    let steps = |name, steps| with((name, [64, 1], [32, 2], 70, one(70, 3)), &[], steps, &[]);
    // NaN in x of token 40 (affects it and later tokens in one channel), c of 45 (affects only it), and b of
    // 50.
    let nan = [40 * 192 + 37, 45 * 192 + 128 + 3, 50 * 192 + 64 + 3];
    let no_numbers =
        with(("no numbers", [64, 1], [32, 2], 70, one(70, 3)), &[], Fill::Uniform(-4.0, 2.0), &nan);
    let some = [(10..12, 1e30), (62..68, 200.0), (100..101, f32::NEG_INFINITY), (101..110, -1e30)];
    let extreme = vec![
        steps("closed gates", Fill::Uniform(150.0, 2000.0)),
        steps("nothing is written", Fill::Values(vec![f32::NEG_INFINITY])),
        steps("closed and open gates", Fill::Uniform(-4.0, 2.0).but(some)),
    ];
    cases.into_iter().map(case).chain(extreme).chain([no_numbers]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::Precision;

    /// Steps of ln 2, a decay of one half: the remainder of old inputs halves, and each group reads its own
    /// heads.
    #[test]
    fn a_state_halves_and_adds() {
        let case = Case::new("halves", |g, c| {
            let values = |v: &[f32]| Fill::Values(v.to_vec());
            let x = c.leaf(g, "x", DType::F32, [1, 2, 2, 1], values(&[8.0, 1.0, 4.0, 1.0]))?;
            let dt = c.leaf(g, "dt", DType::F32, [2, 2, 1, 1], values(&[0.0]))?;
            let a = c.leaf(g, "a", DType::F32, [1, 2, 1, 1], values(&[-1.0]))?;
            let b = c.leaf(g, "b", DType::F32, [1, 2, 2, 1], values(&[1.0, 2.0, 1.0, 2.0]))?;
            let read = c.leaf(g, "c", DType::F32, [1, 2, 2, 1], values(&[1.0, 10.0, 1.0, 10.0]))?;
            let state = c.leaf(g, "state", DType::F32, [1, 1, 2, 1], values(&[2.0, 0.0]))?;
            let runs = c.leaf(g, "runs", DType::I32, [3, 1, 1, 1], values(&[0.0, 2.0, 1.0]))?;
            g.ssm_scan([x, dt, a, b, read, state, runs])
        });
        let backend = crate::reference::ReferenceBackend::default();
        let got = crate::catalogue::run(&case, &backend, Precision::Exact).unwrap();
        let crate::catalogue::Outcome::Values(got) = got else { panic!("{got:?}") };
        let step = 2f32.ln();
        let (first, second) = (1.0 + 8.0 * step, 0.5 + 8.0 * step);
        let (other, others) = (2.0 * step, 3.0 * step);
        let wanted = [first, 10.0 * other, second, 10.0 * others, second, others];
        assert!(got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} {wanted:?}");
    }
}
