//! The checks of one route: its results against the reference, known answers and the plain way, and its time.

use super::found::{Checked, Found, Stop, wrong};
use super::list::list_cases;
use super::listed::{Answer, Listed, ListedCase};
use super::programs::{decoded, prepared, read, run};
use super::retained::Retained;
use super::scope::{Checks, Scope, same_bits};
use super::work;
use ggml_core::Result;
use ggml_core::catalogue;
use ggml_core::routes::{State, Verdict};

/// Steps of the check that each run reads its own inputs.
const STEPS: usize = 40;

/// Checks a route and returns the verdict. `about` is called with the description of each check before it runs.
///
/// # Errors
/// Errors of the device, which say something about the route: a deadline, a lost device.
pub(super) fn examine(
    scope: &Scope<'_>,
    listed: &mut Listed,
    retained: &mut Retained,
    about: &mut dyn FnMut(&str),
) -> Result<Verdict> {
    let mut checks =
        Checks { scope, retained, about, passed: 0, cases: 0, ratio: None, bandwidth: None, spread: 0.0 };
    let verdict = |state, evidence: String| Verdict::new(scope.route, state, evidence);
    match checks.all(listed) {
        Ok(()) => {
            let (state, seen) = match () {
                _ if checks.passed == 0 => (State::Unknown, "no check takes it".into()),
                _ if scope.tunes && checks.is_noisy() => {
                    let spread = 100.0 * checks.spread;
                    (
                        State::Unknown,
                        format!("times of the same kernels differ by {spread:.0} % on this card now"),
                    )
                }
                _ if scope.tunes && !checks.is_faster() => (State::NotFaster, checks.seen()),
                _ if !scope.tunes && checks.is_slower() => (State::Slower, checks.seen()),
                _ => (State::Verified, checks.seen()),
            };
            // An emulated card has no speed.
            let gain = checks.ratio.filter(|_| !scope.emulated || scope.tunes || state == State::Slower);
            let partial = listed.partial && state == State::Verified;
            let gain = gain.filter(|_| state != State::Unknown);
            let bandwidth = checks.bandwidth.filter(|_| !scope.emulated && !scope.tunes && gain.is_some());
            Ok(Verdict { gain, bandwidth, partial, ..verdict(state, seen) })
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
        match (self.cases, others) {
            (0, others) => of(others, "check"),
            (cases, 0) => of(cases, "case"),
            (cases, others) => format!("{} and {}", of(cases, "case"), of(others, "other check")),
        }
    }

    /// Runs all checks.
    fn all(&mut self, listed: &mut Listed) -> Checked<()> {
        for answer in std::mem::take(&mut listed.answers) {
            self.answer(answer)?;
        }
        self.compare(listed)?;
        match self.scope.tunes {
            false if self.is_slower() => return Ok(()),
            true if self.is_noisy() || !self.is_faster() => return Ok(()),
            true => list_cases(self.scope, listed),
            false => {}
        }
        for case in std::mem::take(&mut listed.cases) {
            self.case(case)?;
        }
        // A mechanism changes no kernel.
        if self.passed == 0 && !self.scope.tunes {
            self.steps(listed)?;
        }
        Ok(())
    }

    /// Checks known answers to the bit, or that infinities and NaN stay in their columns. Further runs in other memory
    /// must have the same bits.
    fn answer(&mut self, answer: Answer) -> Checked<()> {
        let (work, deadline) = (answer.work, self.scope.deadline);
        self.begin(&work.name)?;
        let mut got: Option<Vec<f32>> = None;
        for (n, mut program) in answer.programs.wait(&deadline)?.into_iter().enumerate() {
            let values = run(program.as_mut(), &work)?;
            match &got {
                Some(first) => same_bits(&work.name, n, first, &values)?,
                None => got = Some(values),
            }
        }
        let plain = answer.plain.map(|plain| run(plain.wait(&deadline)?.as_mut(), &work).map_err(Stop::from));
        let want = plain.transpose()?.or_else(|| work.exact.clone()).unwrap_or_default();
        let differs = |(got, want): (&f32, &f32)| match work.exact {
            Some(_) => got != want,
            None => got.is_finite() != want.is_finite(),
        };
        let got = got.unwrap_or_default();
        if let Some(at) = got.iter().zip(&want).position(differs) {
            return wrong(format!("{}: {} in place of {} at {at}", work.name, got[at], want[at]));
        }
        self.passed += 1;
        Ok(())
    }

    /// Runs the programs of a case; all results must have the same bits.
    fn case(&mut self, case: ListedCase) -> Checked<()> {
        let ListedCase { name, precision, ready } = case;
        self.begin(&name)?;
        let Some((judged, programs)) = ready.wait(&self.scope.deadline)? else { return Ok(()) };
        let mut first: Option<Vec<f32>> = None;
        for (n, mut program) in programs.into_iter().enumerate() {
            let values = judged.values(program.as_mut())?;
            let distance = catalogue::distance(&judged.case, &values, &judged.wanted);
            let bound = catalogue::bound(&judged.case, precision);
            if !bound.holds(&distance) {
                return wrong(format!("{name}: {}, worst at {}", bound.excess(&distance), distance.worst));
            }
            match &first {
                Some(first) => same_bits(&name, n, first, &values)?,
                None => first = Some(values),
            }
        }
        self.cases += 1;
        self.passed += 1;
        Ok(())
    }

    /// Runs a step again and again with other inputs. A mechanism changes no kernel, so the bits are those of the plain
    /// way.
    fn steps(&mut self, listed: &Listed) -> Checked<()> {
        let (n, layers) = if self.scope.small { (64, 12) } else { (1024, 40) };
        let work = work::chain(n, layers)?;
        self.begin(&work.name)?;
        let mut programs = [prepared(listed.plain.as_ref(), &work)?, prepared(listed.fast.as_ref(), &work)?];
        let input = work.graph.ids().find(|&id| work.graph.tensor(id).name == "x").unwrap_or(work.node);
        let mut seconds = [Vec::new(), Vec::new()];
        for step in 0..if self.scope.small { STEPS / 4 } else { 5 * STEPS } {
            let mut results = [Vec::new(), Vec::new()];
            for ((program, result), seconds) in programs.iter_mut().zip(&mut results).zip(&mut seconds) {
                program.write(input, &work::chain_input(n, step)?)?;
                seconds.push(program.run()?.host.as_secs_f64());
                *result = read(program.as_mut(), &work)?;
            }
            let [plain, fast] = [decoded(&results[0])?, decoded(&results[1])?];
            same_bits(&work.name, step, &plain, &fast)?;
        }
        self.passed += 1;
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        self.ratio = Some(least(&seconds[0]) / least(&seconds[1]));
        match &listed.single {
            Some(work) => self.memory(listed, work),
            None => Ok(()),
        }
    }
}
