//! Qualification: the fast ways of a card, checked and timed on the card itself.
//!
//! A backend has *routes*: matrix units, dot products of bytes, graphs, and other ways beyond the plain one. Whether
//! they compute correctly depends on card, driver, kernel and firmware, so each is checked on the card, in a child process
//! with deadlines: known answers to the bit, the cases of the catalogue that take it, large products, infinities and NaN,
//! the same again in other memory, and its time against the plain way. The verdicts are kept in a file for each card and
//! driver; [`open`](crate::open) reads it. A route whose checks ended the process or the machine is never tried again
//! there.
//!
//! ```no_run
//! use diptych::qualify::{QualifyOptions, qualify};
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     if let Some(status) = diptych::compare::child_entry() {
//!         return status;
//!     }
//!     diptych::program::run(|| {
//!         let result = qualify("vulkan", &QualifyOptions::default())?;
//!         diptych::program::print(result.to_string())
//!     })
//! }
//! ```

mod ahead;
mod checks;
mod child;
mod found;
mod large;
mod list;
mod listed;
mod programs;
mod retained;
mod scope;
mod work;

pub use crate::isolate::protocol::ProductShape;
pub(crate) use child::run_routes;
pub use ggml_core::routes::cards::CardReport;
pub use ggml_core::routes::{RouteUse, State, Verdict};

use crate::backend_name::BackendName;
use crate::backends;
use crate::isolate;
use crate::isolate::parent::Children;
use crate::isolate::protocol::{Message, RoutesTask, Task, Work};
use crate::isolate::recorder::ChildOutcome;
use crate::isolate::results::Status;
use ggml_core::backend::{Backend, DeviceInfo};
use ggml_core::files::TemporaryFolder;
use ggml_core::routes::{Claim, Identity, Record, Refused, is_fastest, number};
use ggml_core::{Error, Phase, Result, setters};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options of [`qualify`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QualifyOptions {
    /// Time for all checks; routes that are left keep the plain way until the next time.
    pub limit: Duration,
    /// Deadline of each phase of the driver.
    pub timeout: Duration,
    /// True to run the cases of all types, not only those of the types that most models have.
    pub full: bool,
    /// True to measure other values of the numbers in the tuning table, too, once the routes are checked.
    pub tune: bool,
    /// True to check routes again that have a verdict.
    pub again: bool,
    /// Names of the routes to check, of candidates ("vulkan.vectors=256x4x4") and of their numbers ("vulkan.vectors");
    /// empty for all.
    pub only: Vec<String>,
    /// Products of the model at hand; empty for usual ones.
    pub products: Vec<ProductShape>,
    /// Folder of the verdicts. `None`: `diptych/routes` in the user's cache folder.
    pub folder: Option<PathBuf>,
    /// HIP: the runtime library to load.
    pub hip_library: Option<PathBuf>,
}

impl Default for QualifyOptions {
    fn default() -> Self {
        QualifyOptions {
            limit: Duration::from_secs(3),
            timeout: Duration::from_secs(20),
            full: false,
            tune: true,
            again: false,
            only: Vec::new(),
            products: Vec::new(),
            folder: None,
            hip_library: None,
        }
    }
}

setters!(QualifyOptions {
    with_limit => limit: Duration,
    with_timeout => timeout: Duration,
    with_full => full: bool,
    with_tune => tune: bool,
    with_again => again: bool,
    with_only => only: Vec<String>,
    with_products => products: Vec<ProductShape>,
    with_folder => folder: impl Into<Option<PathBuf>>,
    with_hip_library => hip_library: impl Into<Option<PathBuf>>,
});

/// Outcome of a qualification.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Qualification {
    /// Name that opens the device.
    pub backend: String,
    /// Name of the device.
    pub device: String,
    /// Verdicts that were reached now.
    pub checked: Vec<Verdict>,
    /// All verdicts on the device.
    pub verdicts: Vec<Verdict>,
    /// Report of the card for others, if it was opened.
    pub card: Option<CardReport>,
    /// The reason why nothing, or not everything, was checked, if there is one.
    pub note: Option<String>,
    /// Time that it took.
    pub elapsed: Duration,
}

impl Qualification {
    /// Returns the other values of the tuning table that are used on the card, one in each line, for
    /// [`DIPTYCH_TUNE`](ggml_core::routes::TUNE).
    pub fn pins(&self) -> String {
        let is_used = |verdict: &&Verdict| is_candidate(verdict) && is_fastest(verdict, &self.verdicts);
        let used = self.verdicts.iter().filter(is_used);
        let lines = used.map(|verdict| format!("# {}\n{}\n", verdict.sentence(), verdict.route));
        format!("# {}\n{}", self.device, lines.collect::<String>())
    }

    /// Returns the result in a sentence.
    pub fn sentence(&self) -> String {
        // Of other values of the tuning table, those that failed are named, and those that are used from now on.
        let is_named = |verdict: &&Verdict| {
            !is_candidate(verdict) || !matches!(verdict.state, State::NotFaster | State::Unknown)
        };
        let of = |state: State| -> Vec<&str> {
            let of_state = self.checked.iter().filter(|verdict| verdict.state == state).filter(is_named);
            of_state.map(|verdict| verdict.route.as_str()).collect()
        };
        let states =
            [State::Verified, State::Slower, State::Wrong, State::Crashed, State::Hung, State::Unknown];
        let parts = states.into_iter().filter_map(|state| {
            let routes = of(state);
            (!routes.is_empty()).then(|| format!("{}: {}", state.name(), routes.join(", ")))
        });
        let measured = self.checked.iter().filter(|verdict| is_candidate(verdict)).count();
        let tuning = (measured > 0).then(|| format!("{measured} other values of the tuning table measured"));
        let parts: Vec<String> = parts.chain(tuning).collect();
        let checked = if parts.is_empty() { "no route was checked".into() } else { parts.join("; ") };
        let note = self.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
        format!("{}: {checked}{note}", self.backend)
    }
}

impl fmt::Display for Qualification {
    /// Writes a line for each verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), {:.1} s", self.backend, self.device, self.elapsed.as_secs_f64())?;
        for verdict in &self.verdicts {
            writeln!(f, "  {:<30} {}", verdict.route, verdict.sentence())?;
        }
        self.note.as_ref().map_or(Ok(()), |note| writeln!(f, "  {note}"))
    }
}

/// True for the verdict on another value of the tuning table.
fn is_candidate(verdict: &Verdict) -> bool {
    number(&verdict.route) != verdict.route
}

/// True if a device has routes that it could use, or other values of its tuning table, that were never checked to an end: a
/// qualification may make it faster.
pub fn is_due(device: &DeviceInfo) -> bool {
    let is_open = |verdict: &Verdict| verdict.partial && verdict.state == State::Unknown;
    let of = |route: &RouteUse| route.lacks.is_none() && route.verdict.as_ref().is_none_or(is_open);
    let is_used = |name: &String| device.routes.iter().any(|route| route.used && route.name == *name);
    let candidates = device.candidates.iter().filter(|c| c.on_top_of.as_ref().is_none_or(is_used));
    device.routes.iter().chain(candidates).any(of)
}

/// Checks the routes of a device that have no verdict yet, and writes the verdicts. It takes some seconds the first time,
/// and nearly none if everything is known.
///
/// The program has to call [`child_entry`](crate::compare::child_entry) first in `main`.
///
/// # Errors
/// [`Error::InvalidArgument`] for a wrong name, a backend without routes, and a program without child processes; an error
/// of the backend if its plain ways do not work. Routes that fail are verdicts, not errors.
pub fn qualify(backend: &str, options: &QualifyOptions) -> Result<Qualification> {
    qualify_with(backend, options, &mut |_, _| ())
}

/// Checks like [`qualify`]; `begins` gets the time so far and the name of each route and check before it begins.
///
/// # Errors
/// As [`qualify`].
pub fn qualify_with(
    backend: &str,
    options: &QualifyOptions,
    begins: &mut dyn FnMut(Duration, &str),
) -> Result<Qualification> {
    let name: BackendName = backend.parse()?;
    if !name.has_driver() || name == BackendName::Auto {
        return Err(Error::argument("backend", format!("'{name}'"), "one with routes: Vulkan or HIP"));
    }
    if !isolate::has_children() {
        return Err(Error::argument("program", "no child processes", "a main that begins with child_entry"));
    }
    let folder = options.folder.clone().or_else(backends::routes_folder);
    let folder = folder.ok_or_else(|| Error::argument("cache folder", "none", "HOME or XDG_CACHE_HOME"))?;
    let start = Instant::now();
    let (device, checked) = (None, Vec::new());
    let (ahead, is_alone, note) = (true, true, None);
    let mut run =
        Run { name, options, folder: &folder, start, device, checked, ahead, is_alone, note, begins };
    match Claim::take(&folder, options.limit + options.timeout * 4) {
        Ok(_claim) => run.children()?,
        Err(refused @ (Refused::Busy | Refused::Folder(_))) => run.note = Some(refused.to_string()),
    }
    Ok(run.conclude())
}

/// A qualification under way.
struct Run<'a> {
    name: BackendName,
    options: &'a QualifyOptions,
    folder: &'a Path,
    start: Instant,
    /// Identity and report of the device, once a child has opened it.
    device: Option<(Identity, CardReport)>,
    checked: Vec<Verdict>,
    /// True until a child has ended while it prepared the checks of several routes: then nobody knows whose fault it was,
    /// and the next child prepares those of one at a time.
    ahead: bool,
    /// True if the current child prepares no checks but those of its current route.
    is_alone: bool,
    note: Option<String>,
    begins: &'a mut dyn FnMut(Duration, &str),
}

impl Run<'_> {
    /// Runs children until one of them comes to its end: another one goes on where a route ended it.
    fn children(&mut self) -> Result<()> {
        let temporary = TemporaryFolder::new().map_err(|e| Error::io(std::env::temp_dir(), e))?;
        let mut children = Children::begin(temporary.path(), None)?;
        for number in 0.. {
            let before = (self.checked.len(), self.ahead);
            let Some(outcome) = self.child(&mut children, number)? else { break };
            if outcome.record.status == Status::Ok {
                break;
            }
            self.end_route(&outcome)?;
            if (self.checked.len(), self.ahead) == before {
                // It ended before a route began, or it could not write.
                return self.fail(&outcome);
            }
            if self.start.elapsed() >= self.options.limit {
                break;
            }
        }
        if self.start.elapsed() >= self.options.limit {
            self.note = Some("time ran out: the rest is checked the next time".into());
        }
        Ok(())
    }

    fn child(&mut self, children: &mut Children, number: usize) -> Result<Option<ChildOutcome>> {
        let task = RoutesTask {
            folder: self.folder.into(),
            limit: self.options.limit.saturating_sub(self.start.elapsed()),
            full: self.options.full,
            tune: self.options.tune,
            again: self.options.again,
            only: self.options.only.clone(),
            done: self.checked.iter().map(|verdict| verdict.route.clone()).collect(),
            products: self.options.products.clone(),
            ahead: self.ahead,
        };
        let mut work = Work::new(&self.name, self.options.timeout, Task::Routes(task));
        work.hip_library = self.options.hip_library.clone().map(Into::into);
        let (device, checked, begins) = (&mut self.device, &mut self.checked, &mut self.begins);
        let (start, alone) = (self.start, &mut self.is_alone);
        children.run(&work, &format!("routes-{number}"), &mut |message| match message {
            Message::Device { device: of_child } => {
                *device = Some((of_child.identity.clone(), of_child.card_report()));
            }
            Message::RouteDone { verdict } => checked.push(verdict.clone()),
            Message::Route { name, is_alone } => {
                *alone = *is_alone;
                begins(start.elapsed(), name);
            }
            Message::Case { name } => begins(start.elapsed(), name),
            _ => {}
        })
    }

    /// Gives the route at which a child ended a verdict, if there is one. If the child prepared checks of other routes, too,
    /// the next child decides.
    fn end_route(&mut self, outcome: &ChildOutcome) -> Result<()> {
        let (Some((identity, _)), Some(route)) = (&self.device, &outcome.record.step) else { return Ok(()) };
        if self.checked.iter().any(|verdict| verdict.route == *route) {
            return Ok(());
        }
        let record = &outcome.record;
        if !self.is_alone && record.status != Status::Ended {
            self.ahead = false;
            let retried = Verdict::new(route, State::Unknown, "to be checked by itself");
            let written = Record::end(self.folder, identity, Verdict { partial: true, ..retried });
            return written.map(|_| ()).map_err(|error| Error::io(self.folder, error));
        }
        // A compiler that is slow says nothing about the code.
        let compiles = record.phase.as_deref() == Some(Phase::Compile.name());
        let state = match record.status {
            Status::Hang if compiles => State::Unknown,
            Status::Hang => State::Hung,
            Status::Crash => State::Crashed,
            // Somebody else ended it.
            _ => State::Unknown,
        };
        // Other threads prepare programs until the process dies: its last phase and call may be theirs.
        let is_known = record.status == Status::Hang;
        let phase = record.phase.as_ref().filter(|_| is_known).map(|phase| format!("in phase {phase}"));
        let call = record.last_call.as_ref().filter(|_| is_known).map(|call| format!(", {call}"));
        let (phase, call) = (phase.unwrap_or_default(), call.unwrap_or_default());
        let case = outcome.case.as_ref().map_or(String::new(), |case| format!(", at {case}"));
        let why = record.message.as_deref().unwrap_or_default();
        let evidence = format!("{phase}{call}{case}: {why}");
        let verdict = Verdict {
            partial: state == State::Unknown,
            ..Verdict::new(route, state, evidence.trim_start_matches([',', ':', ' ']))
        };
        let written = Record::end(self.folder, identity, verdict.clone());
        written.map_err(|error| Error::io(self.folder, error))?;
        self.checked.push(verdict);
        Ok(())
    }

    /// Returns the error of a child that did not come to the routes.
    fn fail(&mut self, outcome: &ChildOutcome) -> Result<()> {
        let message = outcome.record.message.clone().unwrap_or_else(|| "it ended without a message".into());
        if self.device.is_some() {
            self.note = Some(message);
            return Ok(());
        }
        Err(Error::argument(format!("backend {}", self.name), message, "one that works without routes"))
    }

    fn conclude(self) -> Qualification {
        let (record, complaint) = match &self.device {
            None => Default::default(),
            Some((identity, _)) => Record::read(self.folder, identity),
        };
        let card = self.device.map(|(_, card)| card.with_verdicts(record.verdicts.clone()));
        Qualification {
            backend: self.name.to_string(),
            device: card.as_ref().map_or(String::new(), |card| card.card.clone()),
            checked: self.checked,
            verdicts: record.verdicts,
            card,
            note: self.note.or(complaint),
            elapsed: self.start.elapsed(),
        }
    }
}

/// Returns the routes of an opened backend.
pub fn routes(backend: &dyn Backend) -> &[RouteUse] {
    &backend.device().routes
}
