//! Lists of the checks of each route. Other threads prepare their programs meanwhile.

use super::ahead::Workers;
use super::listed::{Answer, Coming, Listed, ListedCase, RUNS, is_essential};
use super::programs::prepared;
use super::scope::{Scope, is_taken};
use super::work::{self, Work};
use crate::isolate::protocol::{ProductShape, RoutesTask};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use ggml_core::catalogue::{self, Case};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::{RouteUse, Routes};
use ggml_core::{DType, Deadline, Result, Source, TensorId};
use rayon::prelude::*;
use std::sync::Arc;

/// Route by which kernels are compiled faster. It is checked first; once it is verified, the others are checked with it.
pub(super) const COMPILES: &str = "vulkan.parallel-compilation";

/// Routes that change where weights lie, but no kernel: products of one token say how fast that memory is.
const OF_MEMORY: [&str; 2] = ["hip.host-weights", "hip.cached-weights"];

/// Cases that are compiled at the same time in the check of that route, one of each so many.
const COMPILED: usize = 16;

/// Free memory of a device from which the first large works of all routes are prepared at once.
const MUCH: u64 = 8 << 30;

/// Function that opens the device with a choice of routes.
pub(crate) type Open<'a> = &'a (dyn Fn(Routes) -> Result<Arc<dyn Backend>> + Sync);

/// A product and its columns, or attention.
type Shape = (Option<ProductShape>, usize);

/// Lists the checks of routes.
pub(super) struct Lister<'a> {
    pub(super) open: Open<'a>,
    pub(super) task: &'a RoutesTask,
    /// The routes of the device.
    pub(super) rows: &'a [RouteUse],
    /// Routes of the plain way.
    pub(super) base: Routes,
    /// True for an emulated card and a processor: small sizes.
    pub(super) small: bool,
    /// True to list the checks of candidates of the tuning table.
    pub(super) tunes: bool,
    pub(super) workers: &'a Workers,
    pub(super) deadline: Deadline,
    opened: Vec<(Routes, Arc<dyn Backend>)>,
    works: Vec<Vec<Arc<Work>>>,
}

impl<'a> Lister<'a> {
    /// Returns a lister. `opened`: a device that is open, with its routes.
    pub(super) fn new(
        (open, opened): (Open<'a>, (Routes, Arc<dyn Backend>)),
        (task, rows): (&'a RoutesTask, &'a [RouteUse]),
        (base, small, tunes): (Routes, bool, bool),
        (workers, deadline): (&'a Workers, Deadline),
    ) -> Lister<'a> {
        let opened = vec![opened];
        Lister { open, task, rows, base, small, tunes, workers, deadline, opened, works: Vec::new() }
    }

    /// Returns the routes of the plain way that a route is compared with, and those together with the route.
    fn ways(&self, route: &RouteUse) -> [Routes; 2] {
        let mut below = self.base.clone();
        let mut lower = route.on_top_of.clone();
        while let Some(name) = lower {
            below = below.with(&name, true);
            lower = self.rows.iter().find(|row| row.name == name).and_then(|row| row.on_top_of.clone());
        }
        let of_route = below.clone().with(&route.name, true);
        [below, of_route]
    }

    /// Opens the devices that a route needs, lists the checks, and queues the preparation of their programs. Devices that
    /// none of the `later` routes needs are closed once this route is checked.
    pub(super) fn list(&mut self, route: &RouteUse, later: &[RouteUse]) -> Result<Listed> {
        let [below, of_route] = self.ways(route);
        let later: Vec<[Routes; 2]> = later.iter().map(|route| self.ways(route)).collect();
        // The devices of the next route are opened at the same time, and large works made: opening is waiting.
        let of_next = later.first().filter(|_| self.task.ahead).into_iter().flatten();
        let ways = [&below, &of_route].into_iter().chain(of_next);
        let needs_works = route.name != COMPILES || later.first().is_some_and(|_| self.task.ahead);
        let works = || if needs_works { self.large() } else { Ok(Vec::new()) };
        let (opened, works) = rayon::join(|| self.missing(ways), works);
        self.opened.extend(opened);
        self.works = works?;
        let (plain, fast) = (self.with(&below)?, self.with(&of_route)?);
        self.opened.retain(|(known, _)| later.iter().flatten().any(|way| way == known));
        let is_plain_later = later.iter().any(|[plain, _]| *plain == below);
        let below = format!("{below:?}");
        let (answers, groups, cases) = (Vec::new(), Vec::new(), Vec::new());
        let (single, coming, partial) = (None, None, false);
        let mut listed =
            Listed { plain, fast, below, is_plain_later, answers, groups, single, coming, cases, partial };
        if let Some(false) = listed.use_of(&route.name).map(|of_route| of_route.used) {
            return Ok(listed);
        }
        if route.name == COMPILES {
            listed.cases = self.compiled_at_once(&listed);
            return Ok(listed);
        }
        let devices = [listed.plain.as_ref(), listed.fast.as_ref()];
        let cases = if self.tunes { Vec::new() } else { taken(devices) };
        listed.groups = self.groups(&listed);
        if OF_MEMORY.contains(&route.name.as_str()) {
            let of_one = self.works.iter().flatten().filter(|work| work.read_bytes().is_some());
            listed.single = of_one.max_by_key(|work| work.read_bytes()).cloned();
        }
        for work in listed.groups.iter().flatten() {
            self.compile(&listed, work);
        }
        listed.answers = self.answers(&listed)?;
        if let Some(group) = listed.groups.first().filter(|_| self.has_much_memory(&listed)) {
            listed.coming = Some(Coming::of(self.workers, &listed, group, true));
        }
        if !self.tunes {
            listed.add_cases(cases, self.task.full, self.workers, self.deadline);
        }
        Ok(listed)
    }

    fn has_much_memory(&self, listed: &Listed) -> bool {
        !self.small && self.task.ahead && listed.fast.free_memory().is_some_and(|free| free >= MUCH)
    }

    /// Opens the devices with these routes that are not open. An error shows when the device is needed.
    fn missing<'b>(&self, ways: impl Iterator<Item = &'b Routes>) -> Vec<(Routes, Arc<dyn Backend>)> {
        let mut missing: Vec<&Routes> = Vec::new();
        for way in ways {
            if !missing.contains(&way) && self.opened.iter().all(|(known, _)| known != way) {
                missing.push(way);
            }
        }
        let open = |way: &Routes| (self.open)(way.clone()).ok().map(|device| (way.clone(), device));
        missing.into_par_iter().filter_map(open).collect()
    }

    /// Returns the device with these routes. Devices stay open: opening takes longer than some checks.
    fn with(&mut self, routes: &Routes) -> Result<Arc<dyn Backend>> {
        if let Some((_, known)) = self.opened.iter().find(|(known, _)| known == routes) {
            return Ok(known.clone());
        }
        let backend = (self.open)(routes.clone())?;
        self.opened.push((routes.clone(), backend.clone()));
        Ok(backend)
    }

    /// Lists the works with known answers, and those with infinities and NaN, that take the route.
    fn answers(&self, listed: &Listed) -> Result<Vec<Answer>> {
        let mut works = Vec::new();
        for dtype in [DType::F16, DType::Q8_0] {
            for columns in work::COUNTS {
                works.push(work::whole_numbers(dtype, columns)?);
            }
            works.push(work::special_values(dtype)?);
        }
        works.retain(|work| listed.is_taken(work));
        let answer = |work: Work| {
            let work = Arc::new(work);
            let runs = if work.exact.is_some() { RUNS } else { 1 };
            let (of, device) = (work.clone(), listed.fast.clone());
            let programs =
                self.workers.promise(move || (0..runs).map(|_| prepared(device.as_ref(), &of)).collect());
            let (of, device) = (work.clone(), listed.plain.clone());
            let plain =
                work.exact.is_none().then(|| self.workers.promise(move || prepared(device.as_ref(), &of)));
            Answer { work, programs, plain }
        };
        Ok(works.into_iter().map(answer).collect())
    }

    /// Returns the large works, in groups that have the same weights.
    fn large(&self) -> Result<Vec<Vec<Arc<Work>>>> {
        if !self.works.is_empty() {
            return Ok(self.works.clone());
        }
        let columns: &[usize] = match (self.small, self.tunes) {
            (true, false) => &[40, 1],
            (true, true) => &[40, 12, 6, 1],
            (false, false) => &[512, 1],
            (false, true) => &[512, 64, 12, 6, 1],
        };
        let of_product = |product| columns.iter().map(|&n| (Some(product), n)).collect();
        let tokens: &[usize] = if self.tunes { &[40, 1] } else { &[40] };
        let attention = tokens.iter().map(|&tokens| (None, tokens)).map(|shape| vec![shape]);
        let groups: Vec<Vec<Shape>> = self.products().into_iter().map(of_product).chain(attention).collect();
        let work = |shape: Shape| {
            Ok(Arc::new(match shape {
                (Some(product), columns) => work::product(product, columns)?,
                (None, tokens) if self.small => work::attention(64, 2, 160, tokens)?,
                (None, 1) => work::attention(128, 16, 4096, 1)?,
                (None, _) => work::attention(128, 16, 2048, 512)?,
            }))
        };
        groups.into_par_iter().map(|group| group.into_par_iter().map(work).collect()).collect()
    }

    /// Returns the large works that take the route.
    fn groups(&self, listed: &Listed) -> Vec<Vec<Arc<Work>>> {
        let of = |works: &Vec<Arc<Work>>| -> Vec<Arc<Work>> {
            works.iter().filter(|work| listed.is_taken(work)).cloned().collect()
        };
        self.works.iter().map(of).filter(|works| !works.is_empty()).collect()
    }

    /// Returns the shapes of large products: those of the model, else usual ones.
    fn products(&self) -> Vec<ProductShape> {
        let of = |dtype, k, rows| ProductShape { dtype, k, rows };
        let few_bits = of(DType::IQ3_S, 4096, 4096);
        match (self.task.products.as_slice(), self.small) {
            ([], false) if self.tunes => {
                vec![
                    of(DType::Q4_K, 4096, 14336),
                    of(DType::Q8_0, 14336, 1024),
                    of(DType::F16, 6144, 4096),
                    few_bits,
                ]
            }
            ([], true) if self.tunes => {
                let few_bits = ProductShape { rows: 24, ..few_bits };
                vec![of(DType::Q4_K, 4096, 64), of(DType::F16, 4096, 40), of(DType::Q8_0, 4096, 24), few_bits]
            }
            ([], true) => vec![of(DType::Q4_K, 4096, 64), of(DType::F16, 4096, 40)],
            ([], false) => {
                vec![of(DType::Q4_K, 4096, 14336), of(DType::F16, 6144, 4096), of(DType::Q8_0, 14336, 1024)]
            }
            (products, _) => products.to_vec(),
        }
    }

    /// Has both devices compile what a work needs. Nothing runs, so all leaves lie in the same memory.
    fn compile(&self, listed: &Listed, work: &Arc<Work>) {
        for device in [&listed.fast, &listed.plain] {
            let (work, device) = (work.clone(), device.clone());
            // An error shows when the work's programs are prepared.
            self.workers.early(move || drop(compile(device.as_ref(), &work)));
        }
    }

    /// Lists some cases of all kinds for a route that changes no kernel, but how they are compiled.
    fn compiled_at_once(&self, listed: &Listed) -> Vec<ListedCase> {
        // Compilers take longest for attention.
        let is_quick = |case: &Case| is_essential(case) && !case.name.starts_with("FLASH_ATTN_EXT");
        let cases: Vec<Case> = catalogue::cases().into_iter().filter(is_quick).collect();
        let every = cases.len().div_ceil(COMPILED).max(1);
        let some = cases.into_iter().step_by(every);
        some.map(|case| listed.case(case, Precision::Fast, 1, (self.workers, self.deadline))).collect()
    }
}

/// Returns the choice of no route.
pub(super) fn no_route() -> Routes {
    Routes::by(ggml_core::routes::Policy::Plain)
}

/// Lists the cases that take a candidate.
pub(super) fn list_cases(scope: &Scope<'_>, listed: &mut Listed) {
    let cases = taken([listed.plain.as_ref(), listed.fast.as_ref()]);
    listed.add_cases(cases, scope.full, scope.workers, scope.deadline);
}

/// Returns the cases of the catalogue that take the route.
fn taken(devices: [&dyn Backend; 2]) -> Vec<(Case, Precision)> {
    let taken = |case: Case| {
        let graph = case.graph.as_ref().ok()?;
        let both = [Precision::Fast, Precision::Exact];
        let precision = both.into_iter().find(|&precision| is_taken(devices, graph, precision))?;
        Some((case, precision))
    };
    catalogue::cases().into_par_iter().filter_map(taken).collect()
}

fn compile(device: &dyn Backend, work: &Work) -> Result<()> {
    let graph = &work.graph;
    let is_stored = |&id: &TensorId| matches!(graph.tensor(id).source, Source::Weight | Source::State);
    let leaves: Vec<TensorId> = graph.ids().filter(is_stored).collect();
    let bytes = leaves.iter().map(|&id| graph.tensor(id).span_bytes()).max().unwrap_or(0).max(16);
    let buffer = device.allocate(bytes, Usage::Weights)?;
    let slice = |id| (id, Slice { buffer: buffer.clone(), offset: 0 });
    let bindings = Bindings { leaves: leaves.into_iter().map(slice).collect(), ..Bindings::default() };
    let plan = Plan::fused(graph, device, Precision::Fast)?;
    device.prepare(graph, &plan, &bindings, PrepareOptions::default()).map(|_| ())
}
