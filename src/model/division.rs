//! Division of a model between a device and the host.
//!
//! A model has units: the embedding, its layers, and the output (final norm and output layer). Units move to
//! the device from the end: the output first, then the last layer and so on; the embedding moves with the
//! first layer. A node that the device cannot compute stays on the host, and so do the nodes that use the
//! same state. A tensor longer than the device's largest buffer stays there too, with the nodes that use it.

use super::batch::{BatchGraph, BatchShape, Predictor, Want};
use super::file::ModelFile;
use super::session_options::SessionOptions;
use ggml_core::backend::Backend;
use ggml_core::buffers::{BufferLimits, Buffers, Location, enlarge};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::schedule::{Fallback, Placement, Split, assign_devices, unsupported};
use ggml_core::{Error, Graph, Result, Source, TensorId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Number of devices of a model: the device and the host.
pub(crate) const DEVICES: usize = 2;

/// Index of the device that a model is loaded for.
pub(crate) const MAIN: usize = 0;

/// Index of the host.
pub(crate) const HOST: usize = 1;

/// Model file divided between two devices.
#[derive(Clone, Copy)]
pub(super) struct Division<'a> {
    pub(super) file: &'a ModelFile,
    pub(super) main: &'a dyn Backend,
    /// Host backend; `None` if the device has to compute everything.
    pub(super) host: Option<&'a dyn Backend>,
    /// Units on the device.
    pub(super) units: usize,
    /// Predicate for weights that are on the device, once it is known; the host has all the weights that it
    /// needs.
    pub(super) weights: Option<&'a dyn Fn(&str) -> bool>,
}

/// Resources that a session of a model needs on each device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Number of state tensors of the predictor, which are the first.
    pub(crate) of_predictor: usize,
    /// Device of each state tensor.
    pub(crate) state_device: Vec<usize>,
    /// Places of the state tensors in the buffers of their devices.
    pub(crate) state_places: Vec<Location>,
    /// Lengths of the buffers of state on each device.
    pub(crate) state: [Vec<usize>; DEVICES],
    /// Lengths of the buffers of the largest arena on each device.
    pub(crate) compute: [Vec<usize>; DEVICES],
    /// Names of the weights that each device uses.
    pub(super) weights: [HashSet<String>; DEVICES],
    /// Nodes that the device should compute but cannot.
    pub(super) fallbacks: Vec<Fallback>,
}

/// Returns the shapes that determine the needs of a session: its largest batch, one token, and a draft if there are any.
fn shapes(file: &ModelFile, options: &SessionOptions, backend: &dyn Backend) -> Vec<BatchShape> {
    let (context, sequences) = (options.room(file.hparams()), options.sequences);
    let cells = context.saturating_mul(sequences);
    let cache = options.cache_on(backend);
    let predicts = options.predictor && file.has_predictor();
    let predictor = if predicts { Predictor::Follows } else { Predictor::Unused };
    let shape = |tokens: usize| BatchShape {
        tokens,
        kv: cells,
        context,
        sequences,
        outputs: sequences.min(tokens),
        cache,
        want: Want::Logits,
        drafts: false,
        predictor,
    };
    let mut shapes = vec![shape(options.batch_on(backend).min(cells)), shape(1)];
    if predicts {
        shapes.push(BatchShape {
            predictor: Predictor::Drafts { count: 1, among: file.hparams().vocabulary },
            want: Want::Best(1),
            ..shape(1)
        });
    }
    shapes
}

impl Division<'_> {
    fn backend(&self, device: usize) -> &dyn Backend {
        if device == HOST { self.host.unwrap_or(self.main) } else { self.main }
    }

    /// Assigns the nodes of a graph to devices. `state_device` lists the devices of state tensors that are
    /// already bound; tensors beyond its end are not.
    pub(super) fn place(&self, graph: &BatchGraph, state_device: &[usize]) -> Result<Placement> {
        let g = &graph.graph;
        let Some(host) = self.host else {
            return Ok(Placement { device: vec![MAIN; g.tensors().len()], fallbacks: Vec::new() });
        };
        let bound: HashMap<TensorId, usize> =
            graph.state.iter().copied().zip(state_device.iter().copied()).collect();
        let first = (self.file.hparams().layers + 1).saturating_sub(self.units);
        let roots = |id: TensorId| g.tensor(id).src().iter().map(|&s| g.tensor(s).root);
        let wanted = |id: TensorId| {
            // Units begin at 1 with the first layer; the embedding is placed with it.
            let unit = graph.units.partition_point(|&begin| begin <= id).max(1);
            if unit > first { MAIN } else { HOST }
        };
        let lacks = |id: TensorId| {
            let weight = |root: TensorId| g.tensor(root).source == Source::Weight;
            let missing = |name: &str| self.weights.is_some_and(|has| !has(name));
            let mut weights = roots(id).filter(|&root| weight(root)).map(|root| &g.tensor(root).name);
            weights.find(|name| missing(name)).map(|name| format!("its weight '{name}' is not on the device"))
        };
        let away = |id: TensorId| {
            let state = roots(id).find(|root| bound.get(root) == Some(&HOST))?;
            Some(format!("its state '{}' is on the host", g.tensor(state).name))
        };
        let limits = BufferLimits::from(&self.main.device().limits);
        let too_large = |id: TensorId| {
            let large =
                roots(id).chain([g.tensor(id).root]).find(|&root| !limits.fits(g.tensor(root).span_bytes()));
            large.map(|root| over_limit(g, root, &limits))
        };
        let refuses = |id: TensorId, device: usize| match device {
            HOST => unsupported(host, g, id),
            _ => (too_large(id).or_else(|| unsupported(self.main, g, id)))
                .or_else(|| lacks(id))
                .or_else(|| away(id)),
        };
        let placement = assign_devices(g, (HOST, &host.device().backend), &wanted, &refuses)?;
        check_bound(graph, &placement, &bound, self.main)?;
        Ok(placement)
    }

    /// Computes the needs of a session.
    pub(super) fn needs(&self, options: &SessionOptions) -> Result<Needs> {
        let shapes = shapes(self.file, options, self.main);
        let graphs: Result<Vec<_>> = shapes.iter().map(|s| self.file.graph(s)).collect();
        self.needs_of(&graphs?, options.precision)
    }

    /// Computes the needs of graphs that share their state; there must be at least one graph.
    pub(super) fn needs_of(&self, graphs: &[BatchGraph], precision: Precision) -> Result<Needs> {
        let placements = self.placements(graphs)?;
        let mut needs = Needs::default();
        for (graph, placement) in graphs.iter().zip(&placements) {
            for (device, arena) in self.arenas(graph, placement, precision)? {
                enlarge(&mut needs.compute[device], &arena);
            }
            used_weights(graph, placement, &mut needs.weights);
            for fallback in &placement.fallbacks {
                if needs.fallbacks.iter().all(|f| f.node != fallback.node) {
                    needs.fallbacks.push(fallback.clone());
                }
            }
        }
        needs.of_predictor = graphs[0].of_predictor;
        needs.state_device = state_devices(&graphs[0], &placements[0]);
        self.place_state(&graphs[0], &mut needs)?;
        Ok(needs)
    }

    /// Places the state tensors in buffers of their devices.
    fn place_state(&self, graph: &BatchGraph, needs: &mut Needs) -> Result<()> {
        let limits = [MAIN, HOST].map(|device| BufferLimits::from(&self.backend(device).device().limits));
        let mut buffers = limits.map(Buffers::new);
        for (&id, &device) in graph.state.iter().zip(&needs.state_device) {
            let bytes = graph.graph.tensor(id).span_bytes();
            let absurd = || {
                let cells = graph.shape.cells();
                let found = format!("{cells} cells of {} bytes and more", bytes / cells);
                Error::argument("session", found, "state that fits into the address space")
            };
            let place = buffers[device].place(bytes).ok_or_else(absurd)?;
            if !limits[device].fits(bytes) {
                let expected = "a shorter context, or a model loaded with a host that takes it (--offload)";
                let found = over_limit(&graph.graph, id, &limits[device]);
                return Err(Error::argument("session", found, expected));
            }
            needs.state_places.push(place);
        }
        needs.state = buffers.map(Buffers::into_lengths);
        Ok(())
    }

    /// Places graphs that share their state: a state tensor that one graph needs on the host is on the host
    /// for all.
    fn placements(&self, graphs: &[BatchGraph]) -> Result<Vec<Placement>> {
        let mut on_host: Vec<usize> = Vec::new();
        loop {
            let placements =
                graphs.iter().map(|g| self.place_free(g, &on_host)).collect::<Result<Vec<_>>>()?;
            let mut merged = vec![MAIN; graphs[0].state.len()];
            for (graph, placement) in graphs.iter().zip(&placements) {
                for (merged, device) in merged.iter_mut().zip(state_devices(graph, placement)) {
                    *merged = device.max(*merged);
                }
            }
            if merged == on_host || (on_host.is_empty() && merged.iter().all(|&d| d == MAIN)) {
                return Ok(placements);
            }
            on_host = merged;
        }
    }

    /// Places a graph; state that is not yet on the host may still move there.
    fn place_free(&self, graph: &BatchGraph, state_device: &[usize]) -> Result<Placement> {
        let only_host: Vec<usize> =
            state_device.iter().map(|&d| if d == HOST { HOST } else { UNDECIDED }).collect();
        self.place(graph, &only_host)
    }

    /// Returns the lengths of the buffers of the largest arena of a graph on each device.
    fn arenas(
        &self,
        graph: &BatchGraph,
        placement: &Placement,
        precision: Precision,
    ) -> Result<BTreeMap<usize, Vec<usize>>> {
        match placement.only_device(&graph.graph) {
            Some(device) => {
                let mut arena = Vec::new();
                for driver in drivers(self.backend(device)) {
                    enlarge(&mut arena, &Plan::fused(&graph.graph, driver, precision)?.arena);
                }
                Ok(BTreeMap::from([(device, arena)]))
            }
            None => {
                let split = Split::new(&graph.graph, &placement.device)?;
                let mut arenas: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                for i in 0..2 {
                    let plan = |graph: &Graph, device| {
                        let all = drivers(self.backend(device));
                        Plan::fused(graph, all[i.min(all.len() - 1)], precision)
                    };
                    for (device, arena) in split.arenas(&split.plans(plan)?) {
                        enlarge(arenas.entry(device).or_default(), &arena);
                    }
                }
                Ok(arenas)
            }
        }
    }
}

/// Returns the backends that may run a batch on a device: both drivers of a card, or the backend.
fn drivers(backend: &dyn Backend) -> Vec<&dyn Backend> {
    match backend.drivers() {
        Some(drivers) => vec![drivers.driver(0), drivers.driver(1)],
        None => vec![backend],
    }
}

/// Returns the reason why a device cannot hold a tensor that exceeds its largest buffer.
fn over_limit(graph: &Graph, root: TensorId, limits: &BufferLimits) -> String {
    let tensor = graph.tensor(root);
    let kind = match tensor.source {
        Source::Weight => "weight",
        Source::State => "state",
        Source::Input => "input",
        Source::Node { .. } => "result",
    };
    let (name, bytes, largest) = (&tensor.name, tensor.span_bytes(), limits.largest);
    format!("the {kind} '{name}' has {bytes} bytes, and the device's largest buffer {largest}")
}

/// Device of a state tensor that is not yet assigned.
const UNDECIDED: usize = usize::MAX;

/// Checks that bound state tensors are still on their devices.
fn check_bound(
    graph: &BatchGraph,
    placement: &Placement,
    bound: &HashMap<TensorId, usize>,
    main: &dyn Backend,
) -> Result<()> {
    for (&id, device) in graph.state.iter().zip(state_devices(graph, placement)) {
        if bound.get(&id).is_none_or(|&b| b == device || b == UNDECIDED) {
            continue;
        }
        let reasons: Vec<String> = placement.fallbacks.iter().map(Fallback::to_string).collect();
        return Err(Error::Unsupported {
            backend: main.device().backend.clone(),
            op: "STATE",
            node: graph.graph.tensor(id).name.clone(),
            reason: format!(
                "is on the device, which cannot compute a batch of this shape: {}",
                reasons.join("; ")
            ),
        });
    }
    Ok(())
}

/// Returns the device of each state tensor of a graph: the device of the nodes that use it.
fn state_devices(graph: &BatchGraph, placement: &Placement) -> Vec<usize> {
    let g = &graph.graph;
    let mut device = HashMap::new();
    for id in g.computed() {
        for &operand in g.tensor(id).src() {
            device.insert(g.tensor(operand).root, placement.device[id.index()]);
        }
    }
    graph.state.iter().map(|id| device.get(id).copied().unwrap_or(MAIN)).collect()
}

/// Adds the names of the weights that the nodes on each device read.
fn used_weights(graph: &BatchGraph, placement: &Placement, weights: &mut [HashSet<String>; DEVICES]) {
    let g = &graph.graph;
    for id in g.computed() {
        for &operand in g.tensor(id).src() {
            let root = g.tensor(g.tensor(operand).root);
            if root.source == Source::Weight {
                weights[placement.device[id.index()]].insert(root.name.clone());
            }
        }
    }
}
