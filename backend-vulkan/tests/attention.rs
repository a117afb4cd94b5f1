//! Attention over a cache in parts: separate work-groups compute the parts, and the last one to finish joins
//! them.

use crate::common;

use backend_vulkan::{VulkanBackend, VulkanOptions};
use common::{close, floats, open, options, values};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program};
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Source, TensorId};

/// Builds two attention operations in sequence: the result of the first is the query of the second, over a
/// cache of another length.
fn graph() -> Result<(Graph, TensorId), Error> {
    let mut g = Graph::new();
    let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
    let mut x = g.leaf("q", DType::F32, [64, 2, 2, 1], Source::Input)?;
    for (i, cells) in [900, 1300].into_iter().enumerate() {
        let k = g.leaf(&format!("k{i}"), DType::F16, [64, cells, 1, 1], Source::Input)?;
        let v = g.leaf(&format!("v{i}"), DType::F16, [64, cells, 1, 1], Source::Input)?;
        let attended = g.flash_attn_ext(op, x, k, v, None)?;
        x = g.permute(attended, [0, 2, 1, 3])?;
    }
    let result = g.cont(x)?;
    g.output(result)?;
    Ok((g, result))
}

fn prepare(backend: &dyn Backend, graph: &Graph) -> Result<Box<dyn Program>, Error> {
    let plan = Plan::fused(graph, backend, Precision::Exact)?;
    let mut program = backend.prepare(graph, &plan, &Bindings::default(), PrepareOptions::default())?;
    for id in graph.ids().filter(|&id| graph.tensor(id).op().is_none()) {
        program.write(id, &values(graph, id, -1.0, 1.0))?;
    }
    Ok(program)
}

fn run(program: &mut dyn Program, graph: &Graph, result: TensorId) -> Result<Vec<u8>, Error> {
    program.run()?;
    let mut out = vec![0; graph.tensor(result).dense_bytes()];
    program.read(result, &mut out)?;
    Ok(out)
}

/// Returns the machine's own device, with one and with many submissions, and a virtual Vega.
fn backends() -> Vec<VulkanBackend> {
    let pieces = VulkanOptions { submission_budget: std::time::Duration::from_nanos(1), ..options() };
    let mut all = vec![VulkanOptions { poison: true, ..options() }, pieces];
    if cfg!(feature = "virtual") {
        all.extend(VulkanOptions::for_name("vulkan-virtual:vega20"));
    }
    all.into_iter().filter_map(open).collect()
}

/// Checks that the result is bit-identical in every run although the parts finish in different orders, and
/// that the counters are reset.
#[test]
fn parts_are_joined_in_their_order_in_every_run() {
    let (graph, result) = graph().expect("a graph");
    let reference = ReferenceBackend::default();
    let mut program = prepare(&reference, &graph).expect("a program");
    let wanted = floats(&run(&mut *program, &graph, result).expect("a run"));
    for backend in backends() {
        let mut program = prepare(&backend, &graph).expect("a program");
        let first = run(&mut *program, &graph, result).expect("a run");
        close(&backend.device().backend, &floats(&first), &wanted);
        for again in 0..20 {
            let bits = run(&mut *program, &graph, result).expect("a run");
            assert!(bits == first, "{}: run {again} is another", backend.device().backend);
        }
    }
}
