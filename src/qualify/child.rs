//! The child's part: checks the routes of a device one after the other, and writes each verdict.

use super::ahead::Workers;
use super::checks::examine;
use super::list::{COMPILES, Lister, Open, no_route};
use super::listed::Listed;
use super::retained::{Retained, Sweep};
use super::scope::Scope;
use crate::backend_name::BackendName;
use crate::isolate::protocol::{Done, Message, RoutesTask, Work};
use ggml_core::backend::DeviceInfo;
use ggml_core::routes::{Record, RouteUse, State, Verdict, number};
use ggml_core::{Deadline, Error, Phase, Result};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

/// Checks the routes of a task. Each has all the time that is left: what it compiled is in the driver's cache, so the next
/// process gets further if it ran out.
pub(crate) fn run_routes(
    work: &Work,
    task: &RoutesTask,
    open: Open<'_>,
    send: &mut dyn FnMut(Message),
) -> Result<Done> {
    let deadline = Deadline::new(Phase::Compute, task.limit);
    let plain = open(no_route())?;
    let device = plain.device().clone();
    let folder: &Path = task.folder.as_ref();
    let (record, _) = Record::read(folder, &device.identity);
    let due = |rows: &'_ [RouteUse]| rows.iter().filter(|row| is_due(task, &record, row)).cloned().collect();
    let mut routes: Vec<RouteUse> = due(&device.routes);
    routes.sort_by_key(|route| route.name != COMPILES);
    let emulated = work.backend.parse::<BackendName>().is_ok_and(|name| name.is_emulated());
    let small = emulated || device.arch == "CPU";
    // Times of an emulated card say nothing, so its candidates are measured only if they are named.
    let tunes = task.tune && (!emulated || !task.only.is_empty());
    let candidates: Vec<RouteUse> = if tunes { due(&device.candidates) } else { Vec::new() };
    let compiles = record.verdicts.iter().any(compiles_faster);
    // If a driver cannot compile with several threads, a child that checks routes ahead ends, and the next one finds out.
    let is_first = routes.first().is_some_and(|route| route.name == COMPILES);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = if task.ahead || compiles || is_first { threads } else { 1 };
    let base = if compiles { no_route().with(COMPILES, true) } else { no_route() };
    Workers::during(threads, |workers| {
        let is_idle = routes.is_empty() && candidates.is_empty();
        let sweep = if small || is_idle { None } else { Sweep::new(&plain) };
        let retained = Retained::new(sweep);
        let mut child = Child {
            task,
            device: &device,
            record,
            emulated,
            small,
            tunes: false,
            deadline,
            workers,
            retained,
            send,
        };
        let of_device = (task, device.routes.as_slice());
        let opened = (open, (no_route(), plain));
        child.routes(&routes, Lister::new(opened, of_device, (base, small, false), (workers, deadline)))?;
        child.candidates(&candidates, open)
    })?;
    Ok(Done::default())
}

/// True for the verdict that kernels may be compiled by several threads.
fn compiles_faster(verdict: &Verdict) -> bool {
    verdict.route == COMPILES && verdict.state == State::Verified
}

/// True if a route has to be checked.
fn is_due(task: &RoutesTask, record: &Record, route: &RouteUse) -> bool {
    let names = [route.name.as_str(), number(&route.name)];
    let wanted = task.only.is_empty() || task.only.iter().any(|name| names.contains(&name.as_str()));
    let known = record.verdicts.iter().find(|verdict| verdict.route == route.name);
    let open = known.is_none_or(|verdict| {
        task.again || verdict.partial && (task.full || verdict.state == State::Unknown)
    });
    wanted && open && route.lacks.is_none() && !task.done.contains(&route.name)
}

/// The source of lists: made here when a route begins, or by another thread for the routes that follow.
enum Lists<'a> {
    Here(Box<Lister<'a>>),
    Ahead(Receiver<Result<Listed>>),
}

/// The checks of a device under way.
struct Child<'a> {
    task: &'a RoutesTask,
    /// The device without any route.
    device: &'a DeviceInfo,
    record: Record,
    emulated: bool,
    small: bool,
    /// True for candidates of the tuning table, false for routes.
    tunes: bool,
    deadline: Deadline,
    workers: &'a Workers,
    retained: Retained,
    send: &'a mut dyn FnMut(Message),
}

impl Child<'_> {
    /// Measures candidates of the tuning table on the device with the routes that are verified by now.
    fn candidates(&mut self, candidates: &[RouteUse], open: Open<'_>) -> Result<()> {
        if candidates.is_empty() || self.deadline.passed() {
            return Ok(());
        }
        let folder: &Path = self.task.folder.as_ref();
        (self.record, _) = Record::read(folder, &self.device.identity);
        let is_route = |name: &str| self.device.routes.iter().any(|route| route.name == name);
        let verified =
            self.record.verdicts.iter().filter(|v| v.state == State::Verified && is_route(&v.route));
        let base = verified.fold(no_route(), |base, verdict| base.with(&verdict.route, true));
        let is_there = |name: &String| base.asked(name) == Some(true);
        let able = candidates.iter().filter(|c| c.on_top_of.as_ref().is_none_or(is_there));
        let candidates: Vec<RouteUse> = able.cloned().collect();
        let opened = (open, (base.clone(), open(base.clone())?));
        let (small, shared) = (self.small, (self.workers, self.deadline));
        self.tunes = true;
        let of_device = (self.task, self.device.routes.as_slice());
        self.routes(&candidates, Lister::new(opened, of_device, (base, small, true), shared))
    }

    /// Checks routes or candidates.
    fn routes(&mut self, routes: &[RouteUse], mut lister: Lister<'_>) -> Result<()> {
        let Some(first) = routes.first().filter(|_| !self.deadline.passed()) else { return Ok(()) };
        let is_alone = !self.task.ahead || routes.len() < 2;
        // Before any device is opened with a route: the record and the parent have to know which one is checked.
        self.begin(first, is_alone)?;
        if is_alone {
            return self.each(routes, Lists::Here(Box::new(lister)));
        }
        std::thread::scope(|threads| {
            let (sender, receiver) = channel();
            threads.spawn(move || {
                for (n, route) in routes.iter().enumerate() {
                    let listed =
                        if lister.deadline.passed() { break } else { lister.list(route, &routes[n + 1..]) };
                    if sender.send(listed).is_err() {
                        break;
                    }
                }
            });
            self.each(routes, Lists::Ahead(receiver))
        })
    }

    fn each(&mut self, routes: &[RouteUse], mut lists: Lists<'_>) -> Result<()> {
        for (n, route) in routes.iter().enumerate() {
            if self.deadline.passed() {
                break;
            }
            let is_alone = matches!(lists, Lists::Here(_)) || n + 1 == routes.len();
            if n > 0 {
                self.begin(route, is_alone)?;
            }
            let checked = self.check((route, &routes[n + 1..]), &mut lists);
            // The programs of later routes take memory, too, and the time of processors that emulate a card: alone, it may
            // have enough.
            match &checked {
                Err(error @ Error::OutOfMemory { .. }) if !is_alone => return Err(error.clone()),
                Err(error @ Error::Timeout { .. }) if !is_alone && self.emulated => return Err(error.clone()),
                _ => {}
            }
            let verdict = match &checked {
                Ok(verdict) => verdict.clone(),
                Err(error) => of_error(&route.name, error),
            };
            // Checks that did not come to an end take no verdict away.
            let earlier = self.record.verdicts.iter().find(|earlier| earlier.route == route.name);
            let kept = earlier.filter(|earlier| earlier.state.decides() && verdict.state == State::Unknown);
            self.put(kept.unwrap_or(&verdict).clone())?;
            (self.send)(Message::RouteDone { verdict });
            // After these the device cannot be trusted with the next route.
            if let Err(error @ (Error::Timeout { .. } | Error::DeviceLost { .. } | Error::Driver { .. })) =
                checked
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that a route's checks begin. Without the record on the disk, a route that stops the machine would be tried again.
    fn begin(&mut self, route: &RouteUse, is_alone: bool) -> Result<()> {
        self.put(Verdict::new(&route.name, State::Begun, ""))?;
        (self.send)(Message::Route { name: route.name.clone(), is_alone });
        Ok(())
    }

    fn put(&self, verdict: Verdict) -> Result<()> {
        let folder: &Path = self.task.folder.as_ref();
        Record::put(folder, &self.device.identity, verdict).map_err(|error| Error::io(folder, error))
    }

    /// Gets the list of a route's checks, and runs them.
    fn check(&mut self, (route, later): (&RouteUse, &[RouteUse]), lists: &mut Lists<'_>) -> Result<Verdict> {
        let late = || Verdict { partial: true, ..Verdict::new(&route.name, State::Unknown, "time ran out") };
        (self.send)(Message::Case { name: "compiling".into() });
        let mut listed = match lists {
            Lists::Here(lister) => lister.list(route, later)?,
            Lists::Ahead(coming) => match coming.recv_timeout(self.deadline.remaining()) {
                Ok(listed) => listed?,
                Err(_) => return Ok(late()),
            },
        };
        if let Some(used) = listed.use_of(&route.name).filter(|used| !used.used) {
            return Ok(Verdict::new(&route.name, State::Unknown, used.why.clone()));
        }
        let scope = Scope {
            route: &route.name,
            small: self.small,
            emulated: self.emulated,
            tunes: self.tunes,
            full: self.task.full,
            deadline: self.deadline,
            workers: self.workers,
        };
        let send = &mut self.send;
        let mut about = |what: &str| send(Message::Case { name: what.into() });
        let verdict = examine(&scope, &mut listed, &mut self.retained, &mut about);
        // Closing a device takes longer than some checks.
        let retained = if listed.is_plain_later { Vec::new() } else { self.retained.take(&listed.below) };
        self.workers.late(move || drop((retained, listed)));
        verdict
    }
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
