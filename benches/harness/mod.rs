//! Runs one graph on every backend that opens, or on those selected by a filter on the command line (a
//! prefix, for example `vulkan` or `hip-nvidia/mat_vec/Q4_K`). Uses the device's own clock if it has one, so
//! that submissions are not counted.
//!
//! A graph holds several independent nodes. Their operands together are larger than any cache, and the start
//! of one node overlaps another if the device supports it. In addition to criterion's mean, the best run is
//! printed, and for rates in bytes also its share of the rate of a copy on the device (bytes read and
//! written).

use criterion::{Criterion, SamplingMode, Throughput};
use diptych::backends::BackendName;
use diptych::bench::copy_bandwidth;
use diptych::ggml::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use diptych::ggml::cost::work;
use diptych::ggml::encode::encode;
use diptych::ggml::plan::Plan;
use diptych::ggml::rng::Rng;
use diptych::ggml::tensor::{Tensor, TensorId};
use diptych::ggml::{Graph, Source};
use diptych::{DType, OpenOptions, Precision, Result, open};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Minimum bytes of a graph's operands together: more than caches hold, and enough that its start and end
/// matter as little as those of the copy used for comparison.
const ROTATED: usize = 1 << 30;
/// Minimum nodes of a graph, and number of nodes for graphs measured in operations.
pub(crate) const NODES: usize = 3;
/// Number of random rows; the rest of a tensor repeats them.
const ROWS: usize = 16;
/// Bytes per upload.
const CHUNK: usize = 8 << 20;

struct Device {
    name: String,
    backend: Arc<dyn Backend>,
    /// Bytes per second of a copy; measured on first use.
    copy: OnceLock<Option<f64>>,
}

/// Unit of a rate.
#[derive(Clone, Copy)]
pub(crate) enum Rate {
    /// Bytes of weights.
    Weights,
    /// Bytes read and written.
    Bytes,
    /// Floating-point operations.
    Operations,
}

impl Rate {
    fn of(self, graph: &Graph) -> f64 {
        let tensors = graph.tensors().iter();
        let nodes = || graph.computed().map(|node| work(graph, node));
        match self {
            Rate::Weights => {
                tensors.filter(|t| t.source == Source::Weight).map(|t| t.span_bytes() as f64).sum()
            }
            Rate::Bytes => nodes().map(|work| work.bytes).sum(),
            Rate::Operations => nodes().map(|work| work.flops).sum(),
        }
    }
}

/// Few samples and no plots, so that a run on one backend is short.
pub(crate) fn config() -> Criterion {
    let (warm_up, measurement) = (Duration::from_millis(200), Duration::from_millis(500));
    let config = Criterion::default().without_plots().sample_size(10).nresamples(2000);
    config.warm_up_time(warm_up).measurement_time(measurement)
}

/// Returns the number of nodes, with operands of `bytes` bytes each, for a graph measured in bytes.
pub(crate) fn enough(bytes: usize) -> usize {
    ROTATED.div_ceil(bytes.max(1)).clamp(NODES, 64)
}

/// Makes a small part of a result an output: downloading all of it would count as the node's time.
pub(crate) fn read_little(g: &mut Graph, result: TensorId) -> Result<()> {
    let strides = g.tensor(result).nb;
    let little = g.view(result, [4, 1, 1, 1], strides, 0)?;
    let little = g.cont(little)?;
    g.output(little)
}

/// Adds `count` products of `k x m` weights with `n` columns, each with its own input, so that none is fused
/// with another.
pub(crate) fn products(g: &mut Graph, count: usize, dtype: DType, [k, m, n]: [usize; 3]) -> Result<()> {
    for i in 0..count {
        let weight = g.leaf(&format!("a{i}"), dtype, [k, m, 1, 1], Source::Weight)?;
        let input = g.leaf(&format!("b{i}"), DType::F32, [k, n, 1, 1], Source::Input)?;
        let product = g.mul_mat(weight, input)?;
        if i == 0 {
            read_little(g, product)?;
        }
    }
    Ok(())
}

fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let filters = std::env::args().skip(1);
        let named = filters.map(|arg| arg.split('/').next().unwrap_or_default().to_owned());
        let mut names: Vec<String> = named.filter(|name| name.parse::<BackendName>().is_ok()).collect();
        if names.is_empty() {
            names = ["cpu", "vulkan", "hip", "hip-nvidia"].map(String::from).to_vec();
        }
        let opened = names.into_iter().filter_map(|name| match open(&name, &OpenOptions::default()) {
            Ok(backend) => Some(Device { name, backend, copy: OnceLock::new() }),
            Err(error) => {
                eprintln!("{name} is skipped: {error}");
                None
            }
        });
        opened.collect()
    })
}

/// Returns the bytes repeated to fill a tensor: indices, or random rows.
fn pattern(tensor: &Tensor) -> Result<Vec<u8>> {
    if tensor.dtype == DType::I32 {
        return Ok((0..tensor.elements() as i32).flat_map(i32::to_le_bytes).collect());
    }
    let mut rng = Rng::new(1);
    let values: Vec<f32> =
        (0..tensor.ne[0] * ROWS.min(tensor.rows())).map(|_| rng.uniform(-1.0, 1.0)).collect();
    encode(tensor.dtype, tensor.ne[0], &values)
}

fn prepare(backend: &dyn Backend, graph: &Graph, plan: &Plan) -> Result<Box<dyn Program>> {
    let mut bindings = Bindings::default();
    let leaves = || graph.ids().filter(|&id| graph.tensor(id).op().is_none());
    for id in leaves() {
        let tensor = graph.tensor(id);
        let usage = match tensor.source {
            Source::Weight => Usage::Weights,
            Source::State => Usage::State,
            _ => continue,
        };
        let (bytes, mut chunk) = (tensor.span_bytes(), pattern(tensor)?);
        chunk = chunk.repeat((CHUNK.min(bytes) / chunk.len()).max(1));
        let buffer = backend.allocate(bytes, usage)?;
        for at in (0..bytes).step_by(chunk.len()) {
            backend.upload(&buffer, at, &chunk[..chunk.len().min(bytes - at)])?;
        }
        bindings.leaves.insert(id, Slice { buffer, offset: 0 });
    }
    let mut program = backend.prepare(graph, plan, &bindings, PrepareOptions::default())?;
    for id in leaves().filter(|&id| graph.tensor(id).source == Source::Input) {
        let (bytes, pattern) = (graph.tensor(id).dense_bytes(), pattern(graph.tensor(id))?);
        program.write(id, &pattern.repeat(bytes.div_ceil(pattern.len()))[..bytes])?;
    }
    Ok(program)
}

/// Measures a graph on each device, as `device/family/what`.
pub(crate) fn bench(
    c: &mut Criterion,
    family: &str,
    what: &str,
    rate: Rate,
    precision: Precision,
    build: impl Fn(&mut Graph) -> Result<()>,
) {
    let mut graph = Graph::new();
    build(&mut graph).expect("a graph");
    for device in devices() {
        let backend = device.backend.as_ref();
        let plan = Plan::fused(&graph, backend, precision);
        let plan = match plan.and_then(|plan| backend.outline(&graph, &plan).map(|_| plan)) {
            Ok(plan) => plan,
            Err(error) => {
                eprintln!("{}/{family}/{what} is skipped: {error}", device.name);
                continue;
            }
        };
        let mut best: Option<(f64, &str)> = None;
        // Prepared on the first run: the filter may exclude it.
        let mut program = None;
        let mut group = c.benchmark_group(format!("{}/{family}", device.name));
        let work = rate.of(&graph);
        group.sampling_mode(SamplingMode::Flat).throughput(match rate {
            Rate::Operations => Throughput::Elements(work as u64),
            _ => Throughput::Bytes(work as u64),
        });
        group.bench_function(what, |bencher| {
            let program = program.get_or_insert_with(|| prepare(backend, &graph, &plan).expect("a program"));
            bencher.iter_custom(|runs| {
                let mut all = Duration::ZERO;
                for _ in 0..runs {
                    let timing = program.run().expect("a run");
                    let (time, clock) = timing.device.map_or((timing.host, "host"), |time| (time, "device"));
                    all += time;
                    let seconds = time.as_secs_f64().max(1e-9);
                    best = Some((best.map_or(seconds, |(best, _)| best.min(seconds)), clock));
                }
                all
            });
        });
        group.finish();
        if let Some((seconds, clock)) = best {
            report(device, rate, work / seconds, clock);
        }
    }
}

/// Prints the best run and its share of the rate of a copy.
fn report(device: &Device, rate: Rate, best: f64, clock: &str) {
    let (rounded, unit) = (best / 1e9, if matches!(rate, Rate::Operations) { "Gop/s" } else { "GB/s" });
    let copy = device.copy.get_or_init(|| copy_bandwidth(device.backend.as_ref()).expect("a copy"));
    let share = match copy {
        Some(copy) if !matches!(rate, Rate::Operations) => {
            format!(", {:.0} % of a copy's {:.1} GB/s", 100.0 * best / copy, copy / 1e9)
        }
        _ => String::new(),
    };
    println!("{:24}best:  {rounded:.1} {unit} ({clock} time){share}", "");
}
