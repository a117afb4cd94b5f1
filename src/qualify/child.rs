//! The child's part: checks the routes of a device one after the other, and writes each verdict.

use super::checks::examine;
use super::retained::Retained;
use super::scope::Scope;
use crate::backend_name::BackendName;
use crate::isolate::protocol::{Done, Message, RoutesTask, Work};
use ggml_core::backend::{Backend, DeviceInfo};
use ggml_core::routes::{Policy, Record, RouteUse, Routes, State, Verdict};
use ggml_core::{Deadline, Error, Phase, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Route by which the others are compiled faster. It is checked first; once it is verified, the others are checked with it.
const COMPILES: &str = "vulkan.parallel-compilation";

/// Function that opens the device with a choice of routes.
pub(crate) type Open<'a> = &'a dyn Fn(Routes) -> Result<Arc<dyn Backend>>;

/// Checks the routes of a task. Each has all the time that is left: what it compiled is in the driver's cache, so the next
/// process gets further if it ran out.
pub(crate) fn run_routes(
    work: &Work,
    task: &RoutesTask,
    open: Open<'_>,
    send: &mut dyn FnMut(Message),
) -> Result<Done> {
    let deadline = Deadline::new(Phase::Compute, task.limit);
    let first = open(Routes::by(Policy::Plain))?;
    let device = first.device().clone();
    let folder: &Path = task.folder.as_ref();
    let (record, _) = Record::read(folder, &device.identity);
    let mut due: Vec<&RouteUse> = device.routes.iter().filter(|route| is_due(task, &record, route)).collect();
    due.sort_by_key(|route| route.name != COMPILES);
    let mut opened = Opened { open, last: VecDeque::from([(Routes::by(Policy::Plain), first)]) };
    let mut compiles = record.verdicts.iter().any(compiles_faster);
    let retained = RefCell::new(Retained::default());
    for route in &due {
        if deadline.passed() {
            break;
        }
        // Without the record on the disk, a route that stops the machine would be tried again.
        let begun = Verdict::new(&route.name, State::Begun, "");
        let put = |verdict: Verdict| {
            Record::put(folder, &device.identity, verdict).map_err(|error| Error::io(folder, error))
        };
        put(begun)?;
        send(Message::Route { name: route.name.clone() });
        let plain = Routes::by(Policy::Plain);
        let base = if compiles && route.name != COMPILES { plain.with(COMPILES, true) } else { plain };
        let checked = check(work, task, route, (&device, base), deadline, (&mut opened, &retained), send);
        let verdict = match &checked {
            Ok(verdict) => verdict.clone(),
            Err(error) => of_error(&route.name, error),
        };
        compiles |= compiles_faster(&verdict);
        // Checks that did not come to an end take no verdict away.
        let earlier = record.verdicts.iter().find(|earlier| earlier.route == route.name);
        let kept = earlier.filter(|earlier| earlier.state.decides() && verdict.state == State::Unknown);
        put(kept.unwrap_or(&verdict).clone())?;
        send(Message::RouteDone { verdict });
        // After these the device cannot be trusted with the next route.
        if let Err(error @ (Error::Timeout { .. } | Error::DeviceLost { .. } | Error::Driver { .. })) =
            checked
        {
            return Err(error);
        }
    }
    Ok(Done::default())
}

/// True for the verdict that kernels may be compiled by several threads.
fn compiles_faster(verdict: &Verdict) -> bool {
    verdict.route == COMPILES && verdict.state == State::Verified
}

/// True if a route has to be checked.
fn is_due(task: &RoutesTask, record: &Record, route: &RouteUse) -> bool {
    let wanted = task.only.is_empty() || task.only.contains(&route.name);
    let known = record.verdicts.iter().find(|verdict| verdict.route == route.name);
    let open = known.is_none_or(|verdict| {
        task.again || verdict.partial && (task.full || verdict.state == State::Unknown)
    });
    wanted && open && route.lacks.is_none() && !task.done.contains(&route.name)
}

/// Opens devices, and keeps the last ones: opening takes longer than some checks, and a route on top of another needs a device
/// with that.
struct Opened<'a> {
    open: Open<'a>,
    last: VecDeque<(Routes, Arc<dyn Backend>)>,
}

/// Devices that are kept open.
const KEPT: usize = 4;

impl Opened<'_> {
    fn with(&mut self, routes: &Routes, retained: &RefCell<Retained>) -> Result<Arc<dyn Backend>> {
        if let Some(at) = self.last.iter().position(|(known, _)| known == routes) {
            // The one that was used last is the last to go.
            let known = self.last[at].1.clone();
            self.last.make_contiguous()[at..].rotate_left(1);
            return Ok(known);
        }
        if self.last.len() == KEPT
            && let Some((closed, _)) = self.last.pop_front()
        {
            retained.borrow_mut().forget(&format!("{closed:?}"));
        }
        let backend = (self.open)(routes.clone())?;
        self.last.push_back((routes.clone(), backend.clone()));
        Ok(backend)
    }
}

/// Opens the device with a route, and checks it. `device` describes it without any route; `base` are the routes of the plain
/// way.
fn check(
    work: &Work,
    task: &RoutesTask,
    route: &RouteUse,
    (device, base): (&DeviceInfo, Routes),
    deadline: Deadline,
    (opened, retained): (&mut Opened<'_>, &RefCell<Retained>),
    send: &mut dyn FnMut(Message),
) -> Result<Verdict> {
    let row = |name: &str| device.routes.iter().find(|other| other.name == name).cloned();
    let mut below = base;
    let mut lower = route.on_top_of.clone();
    while let Some(name) = lower {
        below = below.with(&name, true);
        lower = row(&name).and_then(|row| row.on_top_of);
    }
    let plain = opened.with(&below, retained)?;
    let fast = opened.with(&below.clone().with(&route.name, true), retained)?;
    let used = fast.device().routes.iter().find(|other| other.name == route.name);
    if let Some(used) = used.filter(|used| !used.used) {
        return Ok(Verdict::new(&route.name, State::Unknown, used.why.clone()));
    }
    let emulated = work.backend.parse::<BackendName>().is_ok_and(|name| name.is_emulated());
    let scope = Scope {
        route: &route.name,
        plain: plain.as_ref(),
        fast: fast.as_ref(),
        small: emulated || device.arch == "CPU",
        emulated,
        full: task.full,
        deadline,
        products: &task.products,
        below: format!("{below:?}"),
        retained,
    };
    examine(&scope, &mut |what| send(Message::Case { name: what.into() }))
}

/// Returns the verdict that follows from an error in the checks of a route.
fn of_error(route: &str, error: &Error) -> Verdict {
    let open = |state, partial| Verdict { partial, ..Verdict::new(route, state, error.to_string()) };
    match error {
        // A compiler that is slow says nothing about the code.
        Error::Timeout { phase: Phase::Compile, .. } | Error::OutOfMemory { .. } => {
            open(State::Unknown, true)
        }
        Error::Timeout { .. } => open(State::Hung, false),
        Error::DeviceLost { .. } => open(State::Crashed, false),
        Error::Unavailable { .. } | Error::Unsupported { .. } => open(State::Unknown, false),
        _ => open(State::Wrong, false),
    }
}
