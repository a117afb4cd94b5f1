//! Plants faults in a backend and says whether `compare` finds them.
//!
//! `cargo run --release -p diptych-checks --example faults [-- MODEL...]`
//!
//! Each model is compared without a fault, which has to agree, and with each fault, which has to differ at the
//! node that has it. Without models, small ones with random weights are written: of several types, with experts,
//! and with activations a thousand times as large as the others. The exit status is 1 if a fault was missed, or if
//! something agreed that should not.

mod backend;
mod models;
mod planted;

use backend::Faulty;
use diptych::compare::{CompareOptions, PerNode, Report, Subject, child_entry_with, run};
use diptych::ggml::backend::Backend;
use planted::{FAULTS, Fault, When};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Variable that names the fault of a child.
const VARIABLE: &str = "DIPTYCH_PLANTED_FAULT";

/// Variable that names the file which a child writes when its fault changes a value.
const MARK: &str = "DIPTYCH_PLANTED_MARK";

/// First argument of a process that compares one model with one fault.
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
    if let [one, model, precision, out] = &args[..]
        && one == ONE
    {
        return compare(Path::new(model), precision, Path::new(out));
    }
    let folder = tempfile::tempdir()?;
    let models = if args.is_empty() {
        models::write(folder.path())?
    } else {
        args.iter().map(PathBuf::from).collect()
    };
    let mut wrong = 0;
    for (model, precision) in models.iter().flat_map(|model| ["fast", "exact"].map(|p| (model, p))) {
        for fault in std::iter::once(None).chain(FAULTS.iter().map(Some)) {
            let (line, right) = judge(model, precision, fault, folder.path())?;
            let name = model.file_stem().unwrap_or_default().to_string_lossy();
            println!("{} {name:<18} {precision:<6} {line}", if right { " " } else { "!" });
            wrong += usize::from(!right);
        }
    }
    println!("{wrong} wrong");
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// Compares one model in this process, whose children have the fault that the environment names.
fn compare(model: &Path, precision: &str, out: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let backends = ["reference", "cpu"].iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>()?;
    let options = CompareOptions::default()
        .with_work(Subject::Model(Some(model.into())))
        .with_backends(backends)
        .with_tokens(vec![1, 7, 3, 5, 9, 2])
        .with_predict(3)
        .with_per_node(PerNode::Isolated)
        .with_precision(precision.parse()?)
        .with_out(out);
    let report = run(&options, &mut |_| ())?;
    report.write(&out.join("result.json"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a line on a model with a fault, and true if the verdict is right.
fn judge(
    model: &Path,
    precision: &str,
    fault: Option<&Fault>,
    folder: &Path,
) -> Result<(String, bool), Box<dyn Error>> {
    let out = folder.join("run");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ONE).args([model.as_os_str(), precision.as_ref(), out.as_os_str()]);
    let mark = folder.join("changed");
    let _ = std::fs::remove_file(&mark);
    command.env(VARIABLE, fault.map_or("", |fault| fault.name)).env(MARK, &mark);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let report = Report::read(&out.join("result.json"))?;
    let text = report.verdict.findings.join("; ");
    Ok(match fault {
        None => (format!("no fault: {}", if text.is_empty() { "agrees" } else { &text }), text.is_empty()),
        Some(fault) if !mark.exists() => match text.is_empty() {
            true => (format!("{}: it changes nothing in this model", fault.name), true),
            false => (format!("{}: changes nothing, but {text}", fault.name), false),
        },
        Some(fault) => {
            let named = match fault.when {
                When::Shipped => text.contains("the steps together are wrong") || text.contains("change"),
                _ => text.contains("node 'blk.1."),
            };
            (format!("{}: {}", fault.name, if text.is_empty() { "not found" } else { &text }), named)
        }
    })
}
