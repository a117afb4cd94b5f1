//! Plants faults in a backend and says whether `compare` finds them.
//!
//! `cargo run --release -p diptych-checks --example faults [-- --quick | MODEL...]`
//!
//! Each model is compared without a fault, which has to agree, and with each fault, which has to differ at the
//! node that has it. Without models, small ones with random weights are written: of several types, with experts,
//! and with activations a thousand times as large as the others. With `--quick` there are two of these, in
//! `fast` only. The exit status is 1 if a verdict is wrong, or if no model of ours shows a fault.

mod backend;
mod models;
mod planted;

use backend::Faulty;
use diptych::compare::report::Status;
use diptych::compare::{
    CompareOptions, Event, PerNode, Report, Subject, child_entry_with, report_path, resume, run,
};
use diptych::ggml::backend::Backend;
use planted::{FAULTS, Fault, When};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Variable that names the fault of a child.
const VARIABLE: &str = "DIPTYCH_PLANTED_FAULT";

/// Variable that names the file which a child writes when its fault changes a value.
const MARK: &str = "DIPTYCH_PLANTED_MARK";

/// Argument for two models only.
const QUICK: &str = "--quick";

/// First argument of a process that continues the comparison of a folder, with one fault.
const ONE: &str = "--one";

fn planted() -> Option<&'static Fault> {
    let name = std::env::var(VARIABLE).ok()?;
    FAULTS.iter().find(|fault| fault.name == name)
}

/// Puts the faulty backend in the place of `cpu`.
fn replace(name: &str, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    match planted() {
        Some(fault) if name == "cpu" => {
            Arc::new(Faulty::new(backend, fault, std::env::var_os(MARK).map(PathBuf::from)))
        }
        _ => backend,
    }
}

fn main() -> ExitCode {
    if let Some(status) = child_entry_with(&replace) {
        return status;
    }
    match work() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn work() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [one, out] = &args[..]
        && one == ONE
    {
        return compare(Path::new(out));
    }
    let folder = tempfile::tempdir()?;
    let quick = args.first().is_some_and(|arg| arg == QUICK);
    let models = match args.is_empty() || quick {
        true => models::write(folder.path(), quick)?,
        false => args.iter().map(PathBuf::from).collect(),
    };
    let precisions: &[&str] = if quick { &["fast"] } else { &["fast", "exact"] };
    let faults = || std::iter::once(None).chain(FAULTS.iter().map(Some));
    let of_model =
        |model| precisions.iter().flat_map(move |&precision| faults().map(move |f| (model, precision, f)));
    let jobs: Vec<Job<'_>> = models.iter().flat_map(of_model).collect();
    let references = folder.path().join("references");
    for model in &models {
        precisions.iter().try_for_each(|precision| reference(model, precision, &references))?;
    }
    let judged = judge_all(&jobs, &references, folder.path())?;
    let mut wrong = 0;
    for ((model, precision, _), (line, verdict)) in jobs.iter().zip(&judged) {
        let name = model.file_stem().unwrap_or_default().to_string_lossy();
        println!("{} {name:<20} {precision:<6} {line}", if *verdict == Verdict::Wrong { "!" } else { " " });
        wrong += usize::from(*verdict == Verdict::Wrong);
    }
    let shown = |fault: &Fault| {
        jobs.iter().zip(&judged).any(|(job, (_, verdict))| {
            *verdict != Verdict::Nothing && job.2.is_some_and(|other| other.name == fault.name)
        })
    };
    let never: Vec<&str> = FAULTS.iter().filter(|fault| !shown(fault)).map(|fault| fault.name).collect();
    println!("{} comparisons, {wrong} wrong; no model shows: {}", jobs.len(), never.join(", "));
    let missing = args.is_empty() || quick;
    Ok(ExitCode::from(u8::from(wrong > 0 || missing && !never.is_empty())))
}

/// A model, a precision and a fault.
type Job<'a> = (&'a PathBuf, &'a str, Option<&'static Fault>);

/// Judgement of a comparison with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It was found, or there was none.
    Right,
    /// It was missed, or something else was accused.
    Wrong,
    /// The fault changes nothing in this model.
    Nothing,
}

type Judged = Result<(String, Verdict), Box<dyn Error + Send + Sync>>;

/// Judges all jobs, on all processors.
fn judge_all(
    jobs: &[Job<'_>],
    references: &Path,
    folder: &Path,
) -> Result<Vec<(String, Verdict)>, Box<dyn Error>> {
    let (next, judged) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let i = next.fetch_add(1, Ordering::Relaxed)
                    && let Some((model, precision, fault)) = jobs.get(i)
                {
                    let begun = of_reference(model, precision, references);
                    let result = judge(&begun, *fault, &folder.join(format!("run{i}")));
                    judged.lock().unwrap_or_else(PoisonError::into_inner).insert(i, result);
                }
            });
        }
    });
    let judged = judged.into_inner().unwrap_or_else(PoisonError::into_inner);
    judged.into_values().map(|result: Judged| result.map_err(|e| e as Box<dyn Error>)).collect()
}

/// Returns the folder of a comparison of which only the reference has run.
fn of_reference(model: &Path, precision: &str, references: &Path) -> PathBuf {
    references.join(format!("{}-{precision}", model.file_stem().unwrap_or_default().to_string_lossy()))
}

/// Begins the comparison of a model, and stops it when the reference has run. All comparisons of this model
/// continue from there.
fn reference(model: &Path, precision: &str, references: &Path) -> Result<(), Box<dyn Error>> {
    let out = of_reference(model, precision, references);
    std::fs::create_dir_all(&out)?;
    let backends = ["reference", "cpu"].iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    let options = CompareOptions::default()
        .with_work(Subject::Model(Some(model.into())))
        .with_backends(backends)
        .with_tokens(vec![1, 7, 3, 5, 9, 2])
        .with_predict(3)
        .with_per_node(PerNode::Isolated)
        .with_precision(precision.parse()?)
        .with_stop(Some(stop.clone()))
        .with_out(&out);
    let mut has_run = |event: &Event| {
        if event.backend == "reference" && event.what == Status::Ok.to_string() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let report = run(&options, &mut has_run)?;
    match &report.records[..] {
        [record] if record.status == Status::Ok => Ok(()),
        records => Err(format!("the reference of {}: {records:?}", model.display()).into()),
    }
}

/// Continues a comparison in this process, whose children have the fault that the environment names.
fn compare(out: &Path) -> Result<ExitCode, Box<dyn Error>> {
    resume(out, &CompareOptions::default(), &mut |_| ())?.write(&report_path(out))?;
    Ok(ExitCode::SUCCESS)
}

/// Continues a copy of a comparison, with a fault, in a process of its own. Returns a line on it, and whether
/// the verdict is right.
fn judge(begun: &Path, fault: Option<&Fault>, out: &Path) -> Judged {
    std::fs::create_dir(out)?;
    for file in std::fs::read_dir(begun)? {
        let file = file?;
        std::fs::copy(file.path(), out.join(file.file_name()))?;
    }
    let mark = out.with_extension("changed");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ONE).arg(out);
    command.env(VARIABLE, fault.map_or("", |fault| fault.name)).env(MARK, &mark);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report = Report::read(&report_path(out))?;
    let text = report.verdict.findings.join("; ");
    let verdict = |right: bool| if right { Verdict::Right } else { Verdict::Wrong };
    let Some(fault) = fault else {
        let line = format!("no fault: {}", if text.is_empty() { "agrees" } else { &text });
        return Ok((line, verdict(text.is_empty())));
    };
    let line = |what: &str| format!("{}: {what}", fault.name);
    Ok(match (mark.exists(), text.is_empty()) {
        (false, true) => (line("changes nothing in this model"), Verdict::Nothing),
        (false, false) => (line(&format!("changes nothing, but {text}")), Verdict::Wrong),
        (true, true) => (line("not found"), Verdict::Wrong),
        (true, false) => {
            let named = match fault.when {
                When::Shipped | When::ShippedFast => {
                    text.contains("the steps together are wrong") || text.contains("change")
                }
                When::Always | When::Grouped => text.contains("node 'blk.1."),
            };
            (line(&text), verdict(named))
        }
    })
}
