//! The checks of one route: its results against the reference, known answers and the plain way, and its time.

use super::work::{self, Work};
use crate::isolate::protocol::ProductShape;
use ggml_core::backend::{Backend, PrepareOptions, Program, Usage};
use ggml_core::catalogue::{self, Case, Judged, Outcome};
use ggml_core::evaluate::{bind, write_inputs};
use ggml_core::metrics::{Bound, distance_in_rows};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::routes::{State, Verdict};
use ggml_core::{DType, Deadline, Error, Graph, Result, bound};

/// Runs of the first cases, each in other memory; later cases have two.
const RUNS: usize = 5;

/// Number of cases with [`RUNS`] runs.
const REPEATED: usize = 8;

/// Part by which a route may be slower before the plain way is used.
const MARGIN: f64 = 1.05;

/// The same for an emulated card, whose times say little.
const EMULATED_MARGIN: f64 = 4.0;

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
}

/// Finding of a check that ends the checks.
enum Found {
    /// Wrong results, described.
    Wrong(String),
    /// Time ran out.
    Late,
}

type Checked<T> = std::result::Result<T, Stop>;

/// Reasons to stop.
enum Stop {
    Found(Found),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

fn wrong<T>(what: String) -> Checked<T> {
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
struct Checks<'a> {
    scope: &'a Scope<'a>,
    about: &'a mut dyn FnMut(&str),
    passed: usize,
    /// Cases of the catalogue among them.
    cases: usize,
    /// Time of the plain way divided by that of the route.
    ratio: Option<f64>,
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
        self.answers()?;
        self.shapes()?;
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
    fn is_slower(&self) -> bool {
        let margin = if self.scope.emulated { EMULATED_MARGIN } else { MARGIN };
        self.ratio.is_some_and(|ratio| ratio * margin < 1.0)
    }

    fn begin(&mut self, what: &str) -> Checked<()> {
        (self.about)(what);
        if self.scope.deadline.passed() { Err(Stop::Found(Found::Late)) } else { Ok(()) }
    }

    /// True if the route changes the kernels of a graph.
    fn is_taken(&self, graph: &Graph, precision: Precision) -> bool {
        let of = |backend: &dyn Backend| {
            let plan = Plan::fused(graph, backend, precision).ok()?;
            backend.kernels(graph, &plan).ok()
        };
        let fast = of(self.scope.fast);
        fast.is_some() && fast != of(self.scope.plain)
    }

    /// Checks known answers to the bit, and that infinities and NaN stay in their columns.
    fn answers(&mut self) -> Checked<()> {
        for dtype in [DType::F16, DType::Q8_0] {
            for columns in work::COUNTS {
                let work = work::whole_numbers(dtype, columns)?;
                if self.is_taken(&work.graph, Precision::Fast) {
                    self.begin(&work.name)?;
                    let got = self.repeated(&work, RUNS)?;
                    let exact = work.exact.as_deref().unwrap_or_default();
                    if let Some(at) = got.iter().zip(exact).position(|(got, want)| got != want) {
                        return wrong(format!(
                            "{}: {} in place of {} at {at}",
                            work.name, got[at], exact[at]
                        ));
                    }
                    self.passed += 1;
                }
            }
            let work = work::special_values(dtype)?;
            if self.is_taken(&work.graph, Precision::Fast) {
                self.begin(&work.name)?;
                let (got, want) = (self.repeated(&work, 1)?, values(self.scope.plain, &work)?);
                let differs = |(got, want): (&f32, &f32)| got.is_finite() != want.is_finite();
                if let Some(at) = got.iter().zip(&want).position(differs) {
                    return wrong(format!("{}: {} in place of {} at {at}", work.name, got[at], want[at]));
                }
                self.passed += 1;
            }
        }
        Ok(())
    }

    /// Runs the cases of the catalogue that take the route, those of essential types first. Returns true if time ran out
    /// after these.
    fn catalogue(&mut self) -> Checked<bool> {
        let taken = |case: &Case| {
            let graph = case.graph.as_ref().ok()?;
            [Precision::Fast, Precision::Exact].into_iter().find(|&precision| self.is_taken(graph, precision))
        };
        let mut cases: Vec<(Case, Precision)> = catalogue::cases()
            .into_iter()
            .filter_map(|case| Some((taken(&case)?, case)))
            .map(|(p, c)| (c, p))
            .collect();
        let is_essential = |case: &Case| ESSENTIAL.iter().any(|name| case.name.contains(name));
        cases.sort_by_key(|(case, _)| !is_essential(case));
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        for batch in cases.chunks(2 * threads) {
            let later = batch.iter().all(|(case, _)| !is_essential(case));
            if later && self.cases > 0 && (self.scope.deadline.passed() || !self.scope.full) {
                return Ok(true);
            }
            self.begin(&batch[0].0.name)?;
            for (judged, (_, precision)) in judged(self.scope.fast, batch, threads)?.into_iter().zip(batch) {
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

    /// Compares large products and attention with the plain way, and measures both by turns.
    fn shapes(&mut self) -> Checked<()> {
        let (mut plain_s, mut fast_s) = (0.0, 0.0);
        let small = self.scope.small;
        let columns = if small { [40, 1] } else { [512, 1] };
        let products = self.products();
        let products = products.iter().flat_map(|&shape| columns.map(|n| (Some(shape), n)));
        // Made one by one, because they are large.
        for (shape, columns) in products.chain([(None, 0)]) {
            let work = match shape {
                Some(shape) => work::product(shape, columns)?,
                None if small => work::attention(64, 2, 160, 40)?,
                None => work::attention(128, 16, 2048, 512)?,
            };
            if !self.is_taken(&work.graph, Precision::Fast) {
                continue;
            }
            self.begin(&work.name)?;
            let got = self.repeated(&work, 2)?;
            let want = values(self.scope.plain, &work)?;
            let bound = bound::of_node(&work.graph, work.node, Precision::Fast);
            // Two results within the bound of a third are within four times the bound of each other.
            let bound = Bound { nmse: 4.0 * bound.nmse, row: 4.0 * bound.row };
            let row = work.graph.tensor(work.node).ne[0];
            let distance = distance_in_rows(&got, &want, row);
            if !bound.holds(&distance) {
                let what = bound.excess(&distance);
                return wrong(format!(
                    "{}: {what} from the plain way, worst at {}",
                    work.name, distance.worst
                ));
            }
            self.passed += 1;
            let [plain, fast] = self.by_turns(&work)?;
            (plain_s, fast_s) = (plain_s + plain, fast_s + fast);
        }
        if fast_s > 0.0 {
            self.ratio = Some(plain_s / fast_s);
        }
        Ok(())
    }

    /// Returns the shapes of large products: those of the model, else usual ones.
    fn products(&self) -> Vec<ProductShape> {
        let of = |dtype, k, rows| ProductShape { dtype, k, rows };
        match (self.scope.products, self.scope.small) {
            ([], true) => vec![of(DType::Q4_K, 4096, 64), of(DType::F16, 4096, 40)],
            ([], false) => {
                vec![of(DType::Q4_K, 4096, 14336), of(DType::F16, 14336, 4096), of(DType::Q8_0, 4096, 4096)]
            }
            (products, _) => products.to_vec(),
        }
    }

    /// Returns the seconds of the plain way and of the route, the least of several runs by turns.
    fn by_turns(&self, work: &Work) -> Checked<[f64; 2]> {
        let mut programs = [prepared(self.scope.plain, work)?, prepared(self.scope.fast, work)?];
        let mut least = [f64::INFINITY; 2];
        let runs = if self.scope.emulated { 2 } else { 8 };
        for _ in 0..runs {
            for (program, least) in programs.iter_mut().zip(&mut least) {
                let timing = program.run()?;
                // The clock of an emulated card is made up.
                let device = timing.device.filter(|_| !self.scope.emulated);
                *least = least.min(device.unwrap_or(timing.host).as_secs_f64());
            }
        }
        Ok(least)
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

/// Computes the results of cases on the reference, and has the device compile what the cases need, on several threads:
/// compiling takes longer than everything else.
fn judged(fast: &dyn Backend, batch: &[(Case, Precision)], threads: usize) -> Result<Vec<Judged>> {
    let one = |(case, precision): &(Case, Precision)| -> Result<Judged> {
        let judged = Judged::new(case.clone(), &ReferenceBackend::default())?;
        let graph = judged.case.graph.clone()?;
        let bindings = bind(fast, &graph, &judged.contents)?;
        let plan = Plan::fused(&graph, fast, *precision)?;
        match fast.prepare(&graph, &plan, &bindings, PrepareOptions::default()) {
            // The check of the case says so.
            Ok(_) | Err(Error::Unsupported { .. }) => Ok(judged),
            Err(error) => Err(error),
        }
    };
    let of_thread =
        |n: usize| -> Vec<Result<Judged>> { batch.iter().skip(n).step_by(threads).map(one).collect() };
    let all: Vec<Vec<Result<Judged>>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || of_thread(n))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let mut columns: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
    (0..batch.len()).filter_map(|at| columns.get_mut(at % threads)?.next()).collect()
}

fn same_bits(name: &str, run: usize, first: &[f32], values: &[f32]) -> Checked<()> {
    match first.iter().zip(values).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(at) => wrong(format!(
            "{name}: other bits in run {run}: {} in place of {} at {at}",
            values[at], first[at]
        )),
        None => Ok(()),
    }
}

fn prepared(backend: &dyn Backend, work: &Work) -> Result<Box<dyn Program>> {
    let bindings = bind(backend, &work.graph, &work.data)?;
    let plan = Plan::fused(&work.graph, backend, Precision::Fast)?;
    let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), &work.graph, &work.data)?;
    Ok(program)
}

fn values(backend: &dyn Backend, work: &Work) -> Result<Vec<f32>> {
    let mut program = prepared(backend, work)?;
    program.run()?;
    read(program.as_mut(), work)
}

fn read(program: &mut dyn Program, work: &Work) -> Result<Vec<f32>> {
    let mut bytes = vec![0; work.graph.tensor(work.node).dense_bytes()];
    program.read(work.node, &mut bytes)?;
    ggml_core::decode::decode(DType::F32, &bytes)
}
