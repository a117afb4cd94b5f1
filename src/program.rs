//! Output of a program: text on standard output, errors as a line on standard error, an exit status.
//!
//! ```no_run
//! use diptych::{Result, program};
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     program::run(|| program::print(format!("{}\n", diptych::backends::NAMES)))
//! }
//! ```

mod advice;
mod doing;
mod output;
#[cfg(feature = "compare")]
mod products;
mod watch;

pub use output::note;

use crate::backends::{self, BackendName, OpenOptions};
pub use crate::exit_status::{FAILED, WRONG_USE};
use crate::leave::leave;
use crate::model::{Model, ModelFile};
use crate::tokenizer::Tokenizer;
use ggml_core::backend::{Backend, Drivers};
use ggml_core::escape::escaped;
use ggml_core::gguf::TensorInfo;
use ggml_core::phase::Deadlines;
use ggml_core::precision::Precision;
use ggml_core::{Error, Phase, Result};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::time::Duration;

/// Path that errors of [`print`] carry.
const STANDARD_OUTPUT: &str = "standard output";

/// Runs the work of a program and returns the exit code for `main`. An error is written to standard error as
/// one line and gives the status [`WRONG_USE`] or [`FAILED`]. After an error of a driver, lines follow with the call
/// that was waited for, the driver's advice, and the next command. If the reader of standard output has closed it
/// (`| head -1`), the program ends with success and without a message.
///
/// While the work runs, standard error says what is waited for after two seconds ("waiting for hipMemcpyAsync in phase
/// upload, 2 s"). If a driver ends the process with a fatal signal, a sentence says where (Linux on x86-64 and
/// aarch64). For this, a subscriber of `tracing` is installed, unless the program has installed one before, and
/// handlers of SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT, whatever was installed.
///
/// After an [`Error::Timeout`] it does not return but ends the process immediately, see [`leave`]. In a child
/// process that this library started it runs the child's work instead. Call it before any code that reads the
/// arguments.
pub fn run<T: Termination>(work: impl FnOnce() -> Result<T>) -> ExitCode {
    #[cfg(feature = "compare")]
    if let Some(status) = crate::compare::child_entry() {
        return status;
    }
    watch::begin();
    let error = match work() {
        Ok(done) => return done.report(),
        Err(error) => error,
    };
    let status = status(&error);
    if status != 0 {
        note(format_args!("error: {error}"));
        let (wait, warnings) = watch::at_error(error.phase().map(Phase::name));
        advice::lines(&error, wait.as_ref(), &warnings).iter().for_each(note);
    }
    if matches!(error, Error::Timeout { .. }) {
        leave(status);
    }
    ExitCode::from(status)
}

/// Writes to standard output and flushes it.
///
/// # Errors
/// [`Error::Io`] if the disk is full or the reader has closed the pipe ([`ErrorKind::BrokenPipe`]).
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    output::printed(text.as_ref());
    written.map_err(|e| Error::io(STANDARD_OUTPUT, e))
}

/// Writes text of a model or file to standard output and flushes it. On a terminal, control characters are
/// escaped; a file or pipe receives the text as it is.
///
/// # Errors
/// As [`print()`].
pub fn print_text(text: &str) -> Result<()> {
    match std::io::stdout().is_terminal() {
        true => print(escaped(text).as_bytes()),
        false => print(text),
    }
}

/// Shows warnings of backends when they come, and the whole reason of the backend `auto`.
pub fn set_verbose(verbose: bool) {
    watch::set_verbose(verbose);
}

/// Parses a number of seconds, for options of programs.
///
/// # Errors
/// A text that says what is expected.
pub fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| "seconds, 0 or more, are expected".into())
}

/// Parses a deadline in seconds, for options of programs; one that is too long for a clock never passes.
///
/// # Errors
/// A text that says what is expected.
pub fn deadline(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 => Ok(Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX)),
        _ => Err("expected a number of seconds, more than 0".into()),
    }
}

/// Returns the options of a program whose user gave a deadline for each phase, or none.
pub fn open_options(timeout: Option<Duration>) -> OpenOptions {
    OpenOptions::default().with_deadlines(timeout.map_or_else(Deadlines::default, Deadlines::all))
}

/// Opens a backend by name. For `auto`, a sentence about the selected backend is written to standard error; after
/// [`set_verbose`] all of the reason. A card that is used for the first time is checked first ([`qualify`](mod@crate::qualify)),
/// which takes some seconds and is said in two lines.
///
/// # Errors
/// The errors of [`open`](crate::open).
pub fn open(name: &str, options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    open_with(name, options, None)
}

/// Opens a backend for a model file as [`open`] does. A card that is used for the first time is checked with the model's
/// own products; the file is read for that only.
///
/// # Errors
/// As [`open`]; none for a file that cannot be read.
pub fn open_for(model: &Path, name: &str, options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    open_with(name, options, Some(model))
}

fn open_with(name: &str, options: &OpenOptions, model: Option<&Path>) -> Result<Arc<dyn Backend>> {
    if name.parse::<BackendName>()? != BackendName::Auto {
        advice::set_backend(name);
        let backend = first_use(name, options, crate::open(name, options)?, model)?;
        if matches!(name.parse()?, BackendName::Pair(_)) && backend.drivers().is_none() {
            note_alone(backend.as_ref());
        }
        return Ok(backend);
    }
    let (backend, choice) = backends::open_chosen(options, &mut advice::set_backend)?;
    note(format_args!(
        "backend auto is {}",
        if watch::is_verbose() { choice.reason.clone() } else { choice.sentence() }
    ));
    first_use(&choice.backend, options, backend, model)
}

/// Checks the routes of a card that is used for the first time, and opens it again with those that were verified. Cards
/// that are emulated and processors are left as they are, and so is a device whose routes the user chose.
#[cfg(feature = "compare")]
fn first_use(
    name: &str,
    options: &OpenOptions,
    backend: Arc<dyn Backend>,
    model: Option<&Path>,
) -> Result<Arc<dyn Backend>> {
    use crate::qualify::{QualifyOptions, is_due, qualify};
    if let BackendName::Pair(both) = name.parse()? {
        return first_use_of_both(name, &both, options, backend, model);
    }
    let device = backend.device();
    let is_card = !name.parse::<BackendName>()?.is_emulated()
        && !device.features.contains(&("kind".to_string(), "cpu".to_string()));
    // NVIDIA's driver compiles HIP's kernels for tens of seconds, and all routes are known to work on its cards.
    let is_card = is_card && !matches!(name.parse()?, BackendName::HipNvidia(_));
    // Under an emulated kernel driver, AMD's own runtime lists emulated cards.
    let is_card = is_card && !crate::virtual_kfd::is_loaded();
    let is_chosen = options.routes.is_some() || std::env::var_os(ggml_core::routes::VARIABLE).is_some();
    if !is_card || is_chosen || !is_due(device) || !crate::isolate::has_children() {
        return Ok(backend);
    }
    note(format_args!("checking the fast ways of {} for the first time, some seconds", device.name));
    // The checks have the card for themselves, and its memory.
    drop(backend);
    // Whoever opens the model says what is wrong with its file.
    let file = model.and_then(|path| ModelFile::open(path).ok());
    let checks = QualifyOptions::default()
        .with_folder(options.routes_folder.clone())
        .with_hip_library(options.hip_library.clone())
        .with_tune(std::env::var_os(ggml_core::routes::TUNE).is_none_or(|value| value.is_empty()))
        .with_products(file.as_ref().map_or_else(Vec::new, products::products));
    match qualify(name, &checks) {
        Ok(result) => note(result.sentence()),
        // The plain ways work: the backend was open.
        Err(error) => note(format_args!("the fast ways were not checked: {error}")),
    }
    crate::open(name, options)
}

/// Checks the routes of each driver of a pair, and opens both again if one was checked.
#[cfg(feature = "compare")]
fn first_use_of_both(
    name: &str,
    both: &[BackendName; 2],
    options: &OpenOptions,
    backend: Arc<dyn Backend>,
    model: Option<&Path>,
) -> Result<Arc<dyn Backend>> {
    use crate::qualify::is_due;
    let is_due =
        |index: usize| backend.drivers().is_some_and(|drivers| is_due(drivers.driver(index).device()));
    let due = [0, 1].map(is_due);
    if both[0].is_emulated() || due == [false; 2] {
        return Ok(backend);
    }
    drop(backend);
    for (half, _) in both.iter().zip(due).filter(|(_, due)| *due) {
        let half = half.to_string();
        drop(first_use(&half, options, crate::open(&half, options)?, model)?);
    }
    crate::open(name, options)
}

#[cfg(not(feature = "compare"))]
fn first_use(
    _: &str,
    _: &OpenOptions,
    backend: Arc<dyn Backend>,
    _: Option<&Path>,
) -> Result<Arc<dyn Backend>> {
    Ok(backend)
}

/// Writes the drivers of prompts and of decode steps to standard error, for a model on a card under two drivers, and how
/// fast each was.
pub fn note_phases(model: &Model) {
    if let Some(table) = model.phases() {
        note(table);
    }
    let is_alone = |drivers: &dyn Drivers| {
        let [first, second] = [0, 1].map(|index| &drivers.driver(index).device().backend);
        first == second
    };
    if let Some(drivers) = model.backend().drivers().filter(|drivers| is_alone(*drivers)) {
        note_alone(drivers.driver(0));
    }
}

fn note_alone(backend: &dyn Backend) {
    let name = &backend.device().backend;
    note(format_args!(
        "{name} goes on alone: the card's other driver does not share its memory (--verbose says why)"
    ));
}

/// Writes a line to standard error for each part of a model file that is left out because text does not need
/// it.
pub fn note_left_out(file: &ModelFile) {
    file.left_out().iter().for_each(|part| note(format_args!("left out: {part}")));
}

/// Number of weights of the model by which the difference between `fast` and `exact` was measured.
const MEASURED_WEIGHTS: u64 = 135_000_000;

/// Bits of a weight from which on the difference was too small to mention: Q8_0 has 8.5.
const MANY_BITS: f64 = 8.0;

/// Quotes what was measured, if a model is at most as large as the measured one and its weights have few bits.
///
/// How the difference depends on size and type is not known: one model was measured, in four types. With their bits it does
/// not grow (Q4_K_M has more than Q4_1 there, and shows more), and a larger model was not measured. So nothing is
/// predicted.
fn measured_rounding(weights: u64, bytes: u64) -> Option<String> {
    let bits = 8.0 * bytes as f64 / weights.max(1) as f64;
    (1..=MEASURED_WEIGHTS).contains(&weights).then_some(()).filter(|()| bits < MANY_BITS)?;
    Some(format!(
        "this model's weights have {bits:.1} bits. --precision fast rounds activations: in a model of {} million weights it \
         raised the perplexity by 0.6 % with IQ4_XS, 0.5 % with Q4_K_M, 0.2 % with Q4_1, 0.05 % with Q8_0. --precision \
         exact does not",
        MEASURED_WEIGHTS / 1_000_000
    ))
}

/// Writes a line to standard error with what was measured of the difference between `fast` and `exact` precision, if
/// `fast` is used and the model is like the measured one: no larger, and its layers have weights of fewer than 8 bits.
pub fn note_rounding(file: &ModelFile, precision: Precision) {
    let matrices = file.gguf().tensors().iter().filter(|t| t.name.starts_with("blk.") && t.n_dims > 1);
    let sum = |(weights, bytes): (u64, u64), t: &TensorInfo| {
        (weights + t.shape().iter().map(|&n| n as u64).product::<u64>(), bytes + t.bytes as u64)
    };
    let (weights, bytes) = matrices.fold((0, 0), sum);
    if precision == Precision::Fast {
        measured_rounding(weights, bytes).iter().for_each(note);
    }
}

/// Writes a line to standard error if a prompt begins with two begin tokens.
pub fn note_begin(tokenizer: &Tokenizer, prompt: &[u32]) {
    if tokenizer.begins_twice(prompt) {
        note(
            "the prompt begins with two begin tokens; models were trained with one: remove the one in its text",
        );
    }
}

/// Writes a model's division and memory to standard error if the host computes part of it, with the nodes that
/// the device cannot compute.
pub fn note_division(model: &Model) {
    if let Some(estimate) = model.estimate().filter(|estimate| estimate.is_partial()) {
        estimate.to_string().lines().for_each(note);
    }
}

/// Writes a line to standard error for each node that fell back to the host after the model was loaded.
pub fn note_fallbacks(model: &Model) {
    model.later_fallbacks().iter().for_each(|fallback| note(format_args!("on the host: {fallback}")));
}

fn status(error: &Error) -> u8 {
    use ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match error {
        Error::InvalidArgument { .. } | Error::InvalidModel { .. } => WRONG_USE,
        Error::Io { path, source }
            if path == Path::new(STANDARD_OUTPUT) && source.kind() == ErrorKind::BrokenPipe =>
        {
            0
        }
        Error::Io { source, .. }
            if matches!(source.kind(), IsADirectory | NotADirectory | NotFound | PermissionDenied) =>
        {
            WRONG_USE
        }
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::Phase;
    use std::time::Duration;

    /// Figures are quoted for models like the measured one only, and for all of its types of few bits.
    #[test]
    fn only_what_was_measured_is_said() {
        let quoted =
            |weights: u64, bits: f64| measured_rounding(weights, (weights as f64 * bits / 8.0) as u64);
        let like = MEASURED_WEIGHTS;
        for bits in [4.25, 5.0, 5.7] {
            let text = quoted(like, bits).expect("a type that was measured");
            assert!(text.contains("0.2 % with Q4_1") && text.contains(&format!("{bits:.1} bits")), "{text}");
        }
        assert!(quoted(1_000, 4.5).is_some());
        assert_eq!([quoted(like, 8.5), quoted(like, 16.0), quoted(0, 4.0)], [None, None, None]);
        assert_eq!(quoted(6 * like, 4.5), None, "a size that was not measured");
    }

    #[test]
    fn an_error_has_its_status() {
        assert_eq!(status(&Error::argument("--prompt", "", "a text")), WRONG_USE);
        assert_eq!(status(&Error::model("header", "", "")), WRONG_USE);
        assert_eq!(status(&Error::io("nowhere.gguf", ErrorKind::NotFound)), WRONG_USE);
        assert_eq!(status(&Error::io(STANDARD_OUTPUT, ErrorKind::BrokenPipe)), 0);
        assert_eq!(status(&Error::io(STANDARD_OUTPUT, ErrorKind::StorageFull)), FAILED);
        assert_eq!(status(&Error::io("fifo.gguf", ErrorKind::BrokenPipe)), FAILED);
        let (backend, phase) = ("hip".into(), Phase::Compute);
        let timeout = Error::Timeout { backend, phase, node: None, after: Duration::from_secs(1) };
        assert_eq!(status(&timeout), FAILED);
    }
}
