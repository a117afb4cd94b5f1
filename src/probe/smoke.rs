//! The smoke test: each phase once, in a child process, and the verdict on a path to a card.

use super::ProbeOptions;
use super::hip::Override;
use super::outcome::Smoke;
use super::report::{AccessPath, Answer, Gate, Line, State, Verdict};
use super::summary;
use crate::backends::{BackendName, View};
use crate::isolate::results::Status;
use crate::isolate::{self, Trial};
use std::path::PathBuf;

/// Runs the smoke test of a view, `options.runs` times.
pub(super) fn smoke(
    view: Option<&View>,
    way: AccessPath,
    options: &ProbeOptions,
    can_run: bool,
    library: Option<PathBuf>,
) -> Smoke {
    let line = |state, text: String| Line::new(Gate::Smoke, way, state, text);
    let nothing = |text: &str| Smoke {
        lines: vec![line(State::Unknown, text.into())],
        runs: 0,
        good: 0,
        routes: Vec::new(),
        card: None,
        failure: None,
    };
    if options.root != std::path::Path::new("/") {
        return nothing("nothing is run for a recorded system");
    }
    if !can_run {
        return nothing("nothing was run: the program does not start with compare::child_entry");
    }
    let Some(view) = view else { return nothing("nothing was run: the driver does not list the card") };
    let Ok(name) = view.backend.parse::<BackendName>() else {
        return nothing("the driver's name is unknown");
    };
    if options.runs == 0 {
        return nothing("no run was requested");
    }
    let all = (0..options.runs).map(|_| isolate::trial(&name, options.timeout, library.clone(), None));
    let trials: Vec<Trial> = all.collect();
    let good = trials.iter().filter(|trial| trial.works()).count();
    let worst = trials.iter().find(|trial| !trial.works()).or(trials.first());
    let text = worst.map_or_else(String::new, Trial::describe);
    let failure = worst.filter(|trial| !trial.works()).map(|trial| failure(trial, way));
    let count = if trials.len() > 1 {
        format!(" ({good} of {} runs succeeded)", trials.len())
    } else {
        String::new()
    };
    let state = if good == trials.len() { State::Allows } else { State::Blocks };
    let mut lines = vec![line(state, format!("{}: {text}{count}", view.backend))];
    let versions = trials.iter().find(|trial| !trial.versions.is_empty()).map(|trial| &trial.versions);
    let wanted = ["library", "hip runtime", "driver", "api", "code objects"];
    let versions: Vec<String> = versions
        .into_iter()
        .flatten()
        .filter(|(name, _)| wanted.contains(&name.as_str()))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !versions.is_empty() {
        lines[0].evidence += &format!("; {}", versions.join(", "));
    }
    let routes = trials.iter().find(|trial| !trial.routes.is_empty()).map(|trial| trial.routes.clone());
    let card = trials.iter().find_map(|trial| trial.card.clone());
    Smoke { lines, runs: trials.len(), good, routes: routes.unwrap_or_default(), card, failure }
}

/// Returns cause and remedy of a trial that failed.
fn failure(trial: &Trial, way: AccessPath) -> (String, String) {
    let record = &trial.record;
    let (cause, cure) = match record.status {
        Status::Crash => ("it crashes", super::hip::ANOTHER),
        Status::Hang => ("it hangs", super::hip::ANOTHER),
        _ => ("it fails", "see the line of the smoke test"),
    };
    let cure = if way == AccessPath::Hip { cure } else { "update Mesa, or use another driver" };
    let phase = record.phase.as_ref().map_or(String::new(), |phase| format!(" in phase {phase}"));
    let node = record.node.as_ref().map_or(String::new(), |node| format!(" at node {node}"));
    (format!("{cause}{phase}{node}"), cure.to_string())
}

/// Derives the verdict on a path from its lines. `backend` is the path's name on the command line.
pub(super) fn verdict(
    way: AccessPath,
    lines: &[Line],
    smoke: &Smoke,
    note: Option<&Override>,
    backend: &str,
) -> Verdict {
    let own = |gate| lines.iter().find(|line| line.gate == gate && line.way == way);
    let answer = |gate| match own(gate) {
        Some(line) => {
            let answer = match line.state {
                State::Allows => Some(true),
                State::Blocks => Some(false),
                State::Unknown => None,
            };
            Answer::new(answer, line.evidence.clone())
        }
        None => Answer::new(None, "unknown"),
    };
    let with = match note {
        Some(Override::Target(setting, _)) => format!(" with {setting}"),
        _ => " without an override".into(),
    };
    let with = if way == AccessPath::Hip { with } else { String::new() };
    let executes = match (smoke.runs, summary::block(way, lines)) {
        (0, Some(line)) => {
            Answer::new(Some(false), format!("{} blocks: {}", line.gate.name(), line.evidence))
        }
        (0, None) => Answer::new(None, format!("nothing was run; no gate blocks{with}")),
        (_, _) if smoke.good > 0 => {
            Answer::new(Some(true), format!("results agree with the reference{with}"))
        }
        _ => Answer::new(Some(false), smoke.lines[0].evidence.clone()),
    };
    let stable = match smoke.runs {
        0 => Answer::new(None, "nothing was run"),
        runs => Answer::new(Some(smoke.good == runs), format!("{} of {runs} runs succeeded", smoke.good)),
    };
    let sentence = summary::of_path(way, lines, smoke, backend);
    Verdict {
        way,
        supported: answer(Gate::Support),
        executes,
        artifacts: answer(Gate::Code),
        stable,
        sentence,
    }
}
