//! A backend that computes as another one does, and plants a fault in the result of one node.

use crate::planted::{Fault, Result as NodeResult, When};
use diptych::ggml::backend::{
    Backend, Bindings, Buffer, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Timing, Usage,
};
use diptych::ggml::decode::decode;
use diptych::ggml::encode::encode;
use diptych::ggml::fuse::Group;
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::phase::Deadlines;
use diptych::ggml::plan::Plan;
use diptych::ggml::{Graph, TensorId};
use diptych::{DType, Error, Precision, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Results of a run by node.
type Earlier = Arc<Mutex<HashMap<String, Vec<f32>>>>;

/// The faulty backend.
pub(crate) struct Faulty {
    inner: Arc<dyn Backend>,
    fault: &'static Fault,
    mark: Option<PathBuf>,
    earlier: Earlier,
}

impl Faulty {
    /// Plants a fault in a backend. The file `mark` is written when it changes a value.
    pub(crate) fn new(inner: Arc<dyn Backend>, fault: &'static Fault, mark: Option<PathBuf>) -> Faulty {
        Faulty { inner, fault, mark, earlier: Earlier::default() }
    }

    /// Returns the node of a graph that has the fault.
    fn node(&self, graph: &Graph) -> Option<TensorId> {
        let of = |&(op, part): &(&str, &str)| {
            graph.computed().find(|&id| {
                let t = graph.tensor(id);
                t.op().is_some_and(|o| o.name() == op)
                    && t.name.starts_with("blk.1.")
                    && t.name.contains(part)
            })
        };
        self.fault.nodes.iter().find_map(of)
    }
}

impl Backend for Faulty {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.inner.supports(graph, node)
    }
    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        self.inner.joins(graph, group, precision)
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        self.inner.allocate(bytes, usage)
    }
    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>> {
        self.inner.import(bytes)
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.inner.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(buffer, offset, out)
    }
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        self.inner.copy(from, to, bytes)
    }
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        // Every result has to stay until it is changed, so the steps of the plan get memory of their own.
        let whole = if plan.debug { plan.clone() } else { Plan::fused_debug(graph, self, plan.precision)? };
        let bindings = Bindings { leaves: bindings.leaves.clone(), compute: Vec::new() };
        let inner = self.inner.prepare(graph, &whole, &bindings, PrepareOptions::STEPWISE)?;
        Ok(Box::new(FaultyProgram {
            inner,
            graph: graph.clone(),
            node: self.node(graph),
            steps: whole.steps.iter().map(|step| (step.group.nodes(), step.group.results())).collect(),
            shipped: !options.stepwise,
            fast: plan.precision == Precision::Fast,
            fault: self.fault,
            mark: self.mark.clone(),
            earlier: self.earlier.clone(),
        }))
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

struct FaultyProgram {
    inner: Box<dyn Program>,
    graph: Graph,
    node: Option<TensorId>,
    /// Nodes and results of each step.
    steps: Vec<(Vec<TensorId>, Vec<TensorId>)>,
    shipped: bool,
    fast: bool,
    fault: &'static Fault,
    mark: Option<PathBuf>,
    earlier: Earlier,
}

impl FaultyProgram {
    fn values(&mut self, id: TensorId) -> Result<Vec<f32>> {
        let root = self.graph.tensor(self.graph.tensor(id).root);
        let mut bytes = vec![0; root.dense_bytes()];
        self.inner.read(self.graph.tensor(id).root, &mut bytes)?;
        match root.dtype {
            DType::I32 => Ok(bytemuck::cast_slice::<u8, i32>(&bytes).iter().map(|&i| i as f32).collect()),
            dtype => decode(dtype, &bytes),
        }
    }

    fn step(&mut self, step: usize, shipped: bool) -> Result<Timing> {
        let (nodes, results) = &self.steps[step];
        let Some(node) = self.node.filter(|node| nodes.contains(node)) else {
            return self.inner.run_step(step);
        };
        // A node whose result stays in its group: what follows from it is wrong.
        let (grouped, last) = (nodes.len() > 1, results.last().copied().unwrap_or(node));
        let id = if results.contains(&node) { node } else { last };
        let before = self.values(id)?;
        let timing = self.inner.run_step(step)?;
        let shows = match self.fault.when {
            When::Always => true,
            When::Grouped => grouped,
            When::Shipped => shipped,
            When::ShippedFast => shipped && self.fast,
        };
        let right = self.values(id)?;
        if shows {
            self.plant(id, &before, &right)?;
        }
        if shipped {
            let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
            earlier.insert(self.graph.tensor(id).name.clone(), right);
        }
        Ok(timing)
    }

    fn plant(&mut self, id: TensorId, before: &[f32], right: &[f32]) -> Result<()> {
        let (t, root) = (self.graph.tensor(id), self.graph.tensor(self.graph.tensor(id).root));
        let mut values = right.to_vec();
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).get(&t.name).cloned();
        (self.fault.plant)(&mut NodeResult {
            values: &mut values,
            ne: root.ne,
            before,
            earlier: earlier.as_deref(),
        });
        let changed = values.iter().zip(right).any(|(x, r)| x.to_bits() != r.to_bits());
        if let Some(mark) = self.mark.as_ref().filter(|_| changed) {
            std::fs::write(mark, "").map_err(|e| Error::io(mark, e))?;
        }
        let bytes = match root.dtype {
            DType::I32 => values.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            dtype => encode(dtype, root.ne[0], &values)?,
        };
        self.inner.write(t.root, &bytes)
    }
}

impl Program for FaultyProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.inner.write(tensor, data)
    }
    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        self.inner.read(tensor, out)
    }
    fn run(&mut self) -> Result<Timing> {
        let mut all = Timing::default();
        for step in 0..self.steps.len() {
            all.host += self.step(step, self.shipped)?.host;
        }
        Ok(all)
    }
    fn run_step(&mut self, step: usize) -> Result<Timing> {
        match step < self.steps.len() {
            true => self.step(step, false),
            false => Err(Error::argument("step", step, format!("below {}", self.steps.len()))),
        }
    }
}
