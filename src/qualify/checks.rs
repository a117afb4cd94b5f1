//! The checks of one route: its results against the reference, known answers and the plain way, and its time.

use super::large::Kept;
use super::ready::{compile, judged};
use super::work::{self, Work};
use crate::isolate::protocol::ProductShape;
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Usage};
use ggml_core::catalogue::{self, Case, Judged, Outcome};
use ggml_core::evaluate::{bind, write_inputs};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::{State, Verdict};
use ggml_core::{DType, Deadline, Error, Graph, Result};
use rayon::prelude::*;
use std::cell::RefCell;

/// Runs of the first cases, each in other memory; later cases have two.
const RUNS: usize = 5;

/// Number of cases with [`RUNS`] runs.
const REPEATED: usize = 8;

/// Part by which a route may be slower before the plain way is used.
const MARGIN: f64 = 1.05;

/// The same for an emulated card, whose times say little.
const EMULATED_MARGIN: f64 = 4.0;

/// Cases for each thread that are made ready at once, before they run one after the other.
const BATCH: usize = 4;

/// Steps of the check that each run reads its own inputs.
const STEPS: usize = 40;

/// Types that most models have. Their cases come first.
const ESSENTIAL: [&str; 5] = ["F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"];

/// Extent of the checks of a route: the devices that they compare, sizes, and time.
pub(super) struct Scope<'a> {
    /// Name of the route.
    pub(super) route: &'a str,
    /// The device without the route, but with those that it needs.
    pub(super) plain: &'a dyn Backend,
    /// The same with the route.
    pub(super) fast: &'a dyn Backend,
    /// True for an emulated card and a processor: small sizes.
    pub(super) small: bool,
    /// True for an emulated card.
    pub(super) emulated: bool,
    /// True to run the cases of all types.
    pub(super) full: bool,
    /// Time for the checks.
    pub(super) deadline: Deadline,
    /// Products of the model at hand.
    pub(super) products: &'a [ProductShape],
    /// The routes of `plain`, and what it has computed.
    pub(super) below: String,
    pub(super) kept: &'a RefCell<Kept>,
}

/// Finding of a check that ends the checks.
pub(super) enum Found {
    /// Wrong results, described.
    Wrong(String),
    /// Time ran out.
    Late,
}

pub(super) type Checked<T> = std::result::Result<T, Stop>;

/// Reasons to stop.
pub(super) enum Stop {
    Found(Found),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

pub(super) fn wrong<T>(what: String) -> Checked<T> {
    Err(Stop::Found(Found::Wrong(what)))
}

/// Checks a route and returns the verdict. `about` is called with the description of each check before it runs.
///
/// # Errors
/// Errors of the device, which say something about the route: a deadline, a lost device.
pub(super) fn examine(scope: &Scope<'_>, about: &mut dyn FnMut(&str)) -> Result<Verdict> {
    let mut checks = Checks { scope, about, passed: 0, cases: 0, ratio: None };
    let verdict = |state, evidence: String| Verdict::new(scope.route, state, evidence);
    match checks.all() {
        Ok(partial) => {
            let seen = checks.seen();
            let gain = checks.ratio;
            let state = match checks.is_slower() {
                _ if checks.passed == 0 => State::Unknown,
                true => State::Slower,
                false => State::Verified,
            };
            let seen = if checks.passed == 0 { "no check takes it".into() } else { seen };
            // An emulated card has no speed.
            let gain = gain.filter(|_| !scope.emulated || state == State::Slower);
            Ok(Verdict { gain, partial, ..verdict(state, seen) })
        }
        Err(Stop::Found(Found::Wrong(what))) => Ok(verdict(State::Wrong, what)),
        Err(Stop::Found(Found::Late)) => {
            let seen = format!("time ran out after {}", checks.seen());
            Ok(Verdict { partial: true, ..verdict(State::Unknown, seen) })
        }
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The checks of a route under way.
pub(super) struct Checks<'a> {
    pub(super) scope: &'a Scope<'a>,
    about: &'a mut dyn FnMut(&str),
    pub(super) passed: usize,
    /// Cases of the catalogue among them.
    cases: usize,
    /// Time of the plain way divided by that of the route.
    pub(super) ratio: Option<f64>,
}

impl Checks<'_> {
    fn seen(&self) -> String {
        let others = self.passed - self.cases;
        let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        match self.cases {
            0 => of(others, "check"),
            cases => format!("{} and {}", of(cases, "case"), of(others, "other check")),
        }
    }

    /// Runs all checks. Returns true if some were left out for lack of time.
    fn all(&mut self) -> Checked<bool> {
        let answers = self.answers()?;
        let large = self.large()?;
        let works: Vec<&Work> =
            answers.iter().chain(large.iter().flatten().map(|work| work.as_ref())).collect();
        self.begin("compiling")?;
        compile([self.scope.plain, self.scope.fast], &works)?;
        self.check_answers(&answers)?;
        self.compare(&large)?;
        if self.is_slower() {
            return Ok(false);
        }
        let partial = self.catalogue()?;
        // A mechanism changes no kernel.
        if self.passed == 0 {
            self.steps()?;
        }
        Ok(partial)
    }

    /// True if the plain way is faster by more than the margin.
    pub(super) fn is_slower(&self) -> bool {
        let margin = if self.scope.emulated { EMULATED_MARGIN } else { MARGIN };
        self.ratio.is_some_and(|ratio| ratio * margin < 1.0)
    }

    pub(super) fn begin(&mut self, what: &str) -> Checked<()> {
        (self.about)(what);
        if self.scope.deadline.passed() { Err(Stop::Found(Found::Late)) } else { Ok(()) }
    }

    /// True if the route changes the kernels of a graph.
    pub(super) fn is_taken(&self, graph: &Graph) -> bool {
        is_taken([self.scope.plain, self.scope.fast], graph, Precision::Fast)
    }

    /// Returns the works with known answers, and those with infinities and NaN, that take the route.
    fn answers(&self) -> Checked<Vec<Work>> {
        let mut works = Vec::new();
        for dtype in [DType::F16, DType::Q8_0] {
            for columns in work::COUNTS {
                works.push(work::whole_numbers(dtype, columns)?);
            }
            works.push(work::special_values(dtype)?);
        }
        works.retain(|work| self.is_taken(&work.graph));
        Ok(works)
    }

    /// Checks known answers to the bit, and that infinities and NaN stay in their columns.
    fn check_answers(&mut self, works: &[Work]) -> Checked<()> {
        for work in works {
            self.begin(&work.name)?;
            let differs = |(got, want): (&f32, &f32)| match work.exact {
                Some(_) => got != want,
                None => got.is_finite() != want.is_finite(),
            };
            let (got, want) = match &work.exact {
                Some(exact) => (self.repeated(work, RUNS)?, exact.clone()),
                None => (self.repeated(work, 1)?, values(self.scope.plain, work)?),
            };
            if let Some(at) = got.iter().zip(&want).position(differs) {
                return wrong(format!("{}: {} in place of {} at {at}", work.name, got[at], want[at]));
            }
            self.passed += 1;
        }
        Ok(())
    }

    /// Runs the cases of the catalogue that take the route, those of essential types first. Returns true if time ran out
    /// after these.
    fn catalogue(&mut self) -> Checked<bool> {
        let devices = [self.scope.plain, self.scope.fast];
        let taken = |case: &Case| {
            let graph = case.graph.as_ref().ok()?;
            let both = [Precision::Fast, Precision::Exact];
            both.into_iter().find(|&precision| is_taken(devices, graph, precision))
        };
        let mut cases: Vec<(Case, Precision)> = catalogue::cases()
            .into_par_iter()
            .filter_map(|case| Some((taken(&case)?, case)))
            .map(|(p, c)| (c, p))
            .collect();
        let is_essential = |case: &Case| ESSENTIAL.iter().any(|name| case.name.contains(name));
        cases.sort_by_key(|(case, _)| !is_essential(case));
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        for batch in cases.chunks(BATCH * threads) {
            let later = batch.iter().all(|(case, _)| !is_essential(case));
            if later && self.cases > 0 && (self.scope.deadline.passed() || !self.scope.full) {
                return Ok(true);
            }
            self.begin(&batch[0].0.name)?;
            let ready = judged(self.scope.fast, batch, &self.scope.deadline)?;
            for (judged, (_, precision)) in ready.into_iter().zip(batch) {
                self.begin(&judged.case.name)?;
                self.case(&judged, *precision)?;
            }
        }
        Ok(false)
    }

    fn case(&mut self, judged: &Judged, precision: Precision) -> Checked<()> {
        let runs = if self.cases < REPEATED { RUNS } else { 2 };
        let mut memory = Vec::new();
        let mut first: Option<Vec<f32>> = None;
        for run in 0..runs {
            let values = match judged.run(self.scope.fast, precision)? {
                Outcome::Values(values) => values,
                Outcome::Unsupported(_) => return Ok(()),
            };
            let name = &judged.case.name;
            let distance = catalogue::distance(&judged.case, &values, &judged.wanted);
            let bound = catalogue::bound(&judged.case, precision);
            if !bound.holds(&distance) {
                return wrong(format!("{name}: {}, worst at {}", bound.excess(&distance), distance.worst));
            }
            match &first {
                Some(first) => same_bits(name, run, first, &values)?,
                None => first = Some(values),
            }
            memory.push(self.scope.fast.allocate(4096 * (run + 1), Usage::State)?);
        }
        self.cases += 1;
        self.passed += 1;
        Ok(())
    }

    /// Runs a step again and again with other inputs. A mechanism changes no kernel, so the bits are those of the plain
    /// way.
    fn steps(&mut self) -> Checked<()> {
        let (n, layers) = if self.scope.small { (64, 12) } else { (1024, 40) };
        let work = work::chain(n, layers)?;
        self.begin(&work.name)?;
        let mut programs = [prepared(self.scope.plain, &work)?, prepared(self.scope.fast, &work)?];
        let input = work.graph.ids().find(|&id| work.graph.tensor(id).name == "x").unwrap_or(work.node);
        let mut seconds = [Vec::new(), Vec::new()];
        for step in 0..if self.scope.small { STEPS / 4 } else { 5 * STEPS } {
            let mut results = [Vec::new(), Vec::new()];
            for ((program, result), seconds) in programs.iter_mut().zip(&mut results).zip(&mut seconds) {
                program.write(input, &work::chain_input(n, step)?)?;
                seconds.push(program.run()?.host.as_secs_f64());
                *result = read(program.as_mut(), &work)?;
            }
            let [plain, fast] = results;
            same_bits(&work.name, step, &plain, &fast)?;
        }
        self.passed += 1;
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        self.ratio = Some(least(&seconds[0]) / least(&seconds[1]));
        Ok(())
    }

    /// Computes a work several times in other memory; all results must have the same bits.
    fn repeated(&self, work: &Work, runs: usize) -> Checked<Vec<f32>> {
        let first = values(self.scope.fast, work)?;
        let mut memory = Vec::new();
        for run in 1..runs {
            memory.push(self.scope.fast.allocate(4096 * run, Usage::State)?);
            same_bits(&work.name, run, &first, &values(self.scope.fast, work)?)?;
        }
        Ok(first)
    }
}

/// True if the kernels of a graph differ between the plain way and the route.
fn is_taken(devices: [&dyn Backend; 2], graph: &Graph, precision: Precision) -> bool {
    let [plain, fast] = devices.map(|device| {
        let plan = Plan::fused(graph, device, precision).ok()?;
        device.kernels(graph, &plan).ok()
    });
    fast.is_some() && fast != plain
}

pub(super) fn same_bits(name: &str, run: usize, first: &[f32], values: &[f32]) -> Checked<()> {
    match first.iter().zip(values).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(at) => wrong(format!(
            "{name}: other bits in run {run}: {} in place of {} at {at}",
            values[at], first[at]
        )),
        None => Ok(()),
    }
}

fn prepared(backend: &dyn Backend, work: &Work) -> Result<Box<dyn Program>> {
    prepared_in(backend, work, &bind(backend, &work.graph, &work.data)?)
}

/// Prepares a work whose weights are in memory already.
pub(super) fn prepared_in(
    backend: &dyn Backend,
    work: &Work,
    bindings: &Bindings,
) -> Result<Box<dyn Program>> {
    let plan = Plan::fused(&work.graph, backend, Precision::Fast)?;
    let mut program = backend.prepare(&work.graph, &plan, bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), &work.graph, &work.data)?;
    Ok(program)
}

fn values(backend: &dyn Backend, work: &Work) -> Result<Vec<f32>> {
    run(prepared(backend, work)?.as_mut(), work)
}

/// Runs a program, and reads its result.
pub(super) fn run(program: &mut dyn Program, work: &Work) -> Result<Vec<f32>> {
    program.run()?;
    read(program, work)
}

fn read(program: &mut dyn Program, work: &Work) -> Result<Vec<f32>> {
    let mut bytes = vec![0; work.graph.tensor(work.node).dense_bytes()];
    program.read(work.node, &mut bytes)?;
    ggml_core::decode::decode(DType::F32, &bytes)
}
