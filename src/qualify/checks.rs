//! The checks of one route: its results against the reference, known answers and the plain way, and its time.

use super::programs::{prepared, read, values};
use super::ready::{compile, judged};
use super::scope::{Checked, Checks, Found, Scope, Stop, is_taken, same_bits, wrong};
use super::work::{self, Work};
use ggml_core::backend::Usage;
use ggml_core::catalogue::{self, Case, Judged, Outcome};
use ggml_core::precision::Precision;
use ggml_core::routes::{State, Verdict};
use ggml_core::{DType, Error, Result};
use rayon::prelude::*;

/// Runs of the first cases, each in other memory; later cases have two.
const RUNS: usize = 5;

/// Number of cases with [`RUNS`] runs.
const REPEATED: usize = 8;

/// Cases for each thread that are made ready at once, before they run one after the other.
const BATCH: usize = 4;

/// Steps of the check that each run reads its own inputs.
const STEPS: usize = 40;

/// Types that most models have. Their cases come first.
const ESSENTIAL: [&str; 5] = ["F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"];

/// Heads of few models, whose kernels compilers take seconds for.
const LARGE_HEADS: [&str; 4] = ["d=512", "d=544", "d=552", "d=576"];

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

impl Checks<'_> {
    fn seen(&self) -> String {
        let others = self.passed - self.cases;
        let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        match self.cases {
            0 => of(others, "check"),
            cases => format!("{} and {}", of(cases, "case"), of(others, "other check")),
        }
    }

    /// Runs all checks. Returns true if some cases were left out.
    fn all(&mut self) -> Checked<bool> {
        self.begin("compiling")?;
        let (answers, large) = (self.answers()?, self.large()?);
        let works: Vec<&Work> =
            answers.iter().chain(large.iter().flatten().map(|work| work.as_ref())).collect();
        let (cases, partial) = self.cases();
        let mut batches = cases.chunks(BATCH * rayon::current_num_threads());
        let (fast, deadline) = (self.scope.fast, self.scope.deadline);
        let first = batches.next().unwrap_or_default();
        // The host compiles for the cases while the device computes the rest.
        let ready = std::thread::scope(|threads| -> Checked<Vec<Judged>> {
            let ready = threads.spawn(|| judged(fast, first, &deadline));
            compile([self.scope.plain, fast], &works)?;
            self.check_answers(&answers)?;
            self.compare(&large)?;
            let panicked = |_| Err(Error::argument("a check", "a panic", "none"));
            Ok(ready.join().unwrap_or_else(panicked)?)
        })?;
        if self.is_slower() {
            return Ok(false);
        }
        self.catalogue(first, ready)?;
        for batch in batches {
            self.begin(&batch[0].0.name)?;
            self.catalogue(batch, judged(fast, batch, &deadline)?)?;
        }
        // A mechanism changes no kernel.
        if self.passed == 0 {
            self.steps()?;
        }
        Ok(partial)
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

    /// Returns the cases of the catalogue that take the route, those that most models have first. Others are left out
    /// unless all are wanted, or there are none of the first kind; then the second value is true.
    fn cases(&self) -> (Vec<(Case, Precision)>, bool) {
        let devices = [self.scope.plain, self.scope.fast];
        let taken = |case: Case| {
            let graph = case.graph.as_ref().ok()?;
            let both = [Precision::Fast, Precision::Exact];
            let precision = both.into_iter().find(|&precision| is_taken(devices, graph, precision))?;
            Some((case, precision))
        };
        let mut cases: Vec<(Case, Precision)> =
            catalogue::cases().into_par_iter().filter_map(taken).collect();
        let is_essential = |case: &Case| {
            let types = ESSENTIAL.iter().any(|name| case.name.contains(name));
            types && LARGE_HEADS.iter().all(|heads| !case.name.contains(heads))
        };
        cases.sort_by_key(|(case, _)| !is_essential(case));
        let essential = cases.partition_point(|(case, _)| is_essential(case));
        let partial = !self.scope.full && essential > 0 && essential < cases.len();
        if partial {
            cases.truncate(essential);
        }
        (cases, partial)
    }

    /// Runs cases that were made ready.
    fn catalogue(&mut self, cases: &[(Case, Precision)], ready: Vec<Judged>) -> Checked<()> {
        for (judged, (_, precision)) in ready.into_iter().zip(cases) {
            self.begin(&judged.case.name)?;
            self.case(&judged, *precision)?;
        }
        Ok(())
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
