//! Attention with row lengths that the operation catalogue does not have, and with few query rows over many
//! positions, run on the virtual GPU.

use backend_hip::{HipOptions, virtual_gpu as device};
use ggml_core::backend::{Backend, Bindings, PrepareOptions};
use ggml_core::catalogue::{self, Case, Fill, Outcome};
use ggml_core::kernel::FlashAttnParams;
use ggml_core::metrics::distance;
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Graph, Result, TensorId};
use virtual_gpu::{Gpu, Launch, Options, Target};

/// Builds attention with the given lengths of the rows of k and v, tokens and positions; 6 heads over 2 of k
/// and v, ALiBi and a soft-cap.
fn build(g: &mut Graph, c: &mut catalogue::CaseBuilder, kv: DType, shape: [usize; 4]) -> Result<TensorId> {
    let [d, dv, tokens, positions] = shape;
    let mut heads = |name: &str, dtype, ne| {
        let x = c.leaf(g, name, dtype, ne, Fill::Uniform(-1.0, 1.0))?;
        g.permute(x, [0, 2, 1, 3])
    };
    let q = heads("q", DType::F32, [d, 6, tokens, 1])?;
    let k = heads("k", kv, [d, 2, positions, 1])?;
    let v = heads("v", kv, [dv, 2, positions, 1])?;
    let mask = c.leaf(g, "mask", DType::F16, [positions, tokens, 1, 1], Fill::Causal)?;
    let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 4.0, logit_softcap: 7.0 };
    g.flash_attn_ext(op, q, k, v, Some(mask))
}

#[test]
fn rows_of_any_length() {
    let target = Target::Gfx906;
    let Some(image) = hip_kernels::code_object(target.name(), "flash_attn") else {
        eprintln!("skipped: nothing was built in for {}", target.name());
        return;
    };
    let gpu = Gpu::new(target, Options::default());
    let module = gpu.load(image).unwrap();
    for (kv, name) in [(DType::F32, "flash_attn_any_f32"), (DType::F16, "flash_attn_any_f16")] {
        for shape in [[20, 12, 3, 7], [100, 100, 2, 300], [584, 512, 1, 140], [9, 1023, 1, 33]] {
            let case = Case::new(format!("{kv} {shape:?}"), |g, c| build(g, c, kv, shape));
            let graph = case.graph.clone().unwrap();
            let reference = ReferenceBackend::new(Deadlines::default());
            let Outcome::Values(right) = catalogue::run(&case, &reference, Precision::Exact).unwrap() else {
                panic!("the reference refuses nothing");
            };
            let p = FlashAttnParams::new(&graph, case.node, &[]).unwrap();
            let mut result = vec![f32::NAN; right.len()];
            let mut pointers: Vec<u64> = Vec::new();
            let leaves = case.leaves().unwrap();
            for bytes in leaves.iter().map(|(_, bytes)| &bytes[..]).chain([bytemuck::cast_slice(&result)]) {
                let address = gpu.allocate(bytes.len()).unwrap();
                gpu.write(address, bytes).unwrap();
                pointers.push(address);
            }
            // Without sinks q is passed again, and for the statistics the result.
            pointers.insert(4, pointers[0]);
            pointers.push(pointers[5]);
            let arguments =
                [bytemuck::cast_slice(&pointers), bytemuck::bytes_of(&p), &p.kv[0].to_ne_bytes()].concat();
            let groups = [1, p.ne[0] * p.ne[1] / p.kv[1], p.kv[1] * p.ne[2]];
            let launch =
                Launch { groups, threads: [128, 1, 1], dynamic_lds: 0, arguments: &arguments, windows: None };
            let kernel = module.kernel(name).unwrap();
            gpu.launch(&kernel, &launch).unwrap_or_else(|fault| panic!("{name} {shape:?}: {fault}"));
            gpu.read(pointers[5], bytemuck::cast_slice_mut(&mut result)).unwrap();
            let error = distance(&result, &right).nmse;
            assert!(error < 1e-10, "{name} {shape:?}: {error:e}");
        }
    }
}

/// Builds attention with the given heads of k and v, heads of q that share one, and batches; v has an
/// infinity in the last split of the positions. (With block types the whole block becomes infinities and
/// NaNs; their distribution depends on how the scale is applied.)
fn build_long(g: &mut Graph, c: &mut catalogue::CaseBuilder, s: &Long) -> Result<TensorId> {
    let Long { kv, d, positions, heads: [heads, per_kv, batch] } = *s;
    let q = c.leaf(g, "q", DType::F32, [d, 1, heads * per_kv, batch], Fill::Uniform(-1.0, 1.0))?;
    let k = c.state(g, "k", kv, [d, positions, heads, batch], Fill::Uniform(-1.0, 1.0))?;
    let infinity = d * (positions - 2) + 3;
    let v = Fill::Uniform(-1.0, 1.0).but([(infinity..infinity + 1, f32::INFINITY)]);
    let v = c.state(g, "v", kv, [d, positions, heads, batch], v)?;
    let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
    g.flash_attn_ext(op, q, k, v, None)
}

#[derive(Clone, Copy, Debug)]
struct Long {
    kv: DType,
    d: usize,
    positions: usize,
    heads: [usize; 3],
}

/// The last work-group to finish combines the splits of the positions: in a single launch, which leaves the
/// state that the next launch needs, and with the same bits whichever work-group is last.
#[test]
fn splits_are_combined_in_the_launch_that_computes_them() {
    for target in ["gfx906", "gfx900"].into_iter().filter(|t| hip_kernels::targets().contains(t)) {
        let backend = device::open(target, HipOptions::default()).unwrap();
        for long in [
            Long { kv: DType::F32, d: 64, positions: 129, heads: [2, 1, 2] },
            Long { kv: DType::F16, d: 64, positions: 4500, heads: [1, 8, 1] },
            Long { kv: DType::F16, d: 120, positions: 2500, heads: [2, 3, 1] },
            Long { kv: DType::F16, d: 128, positions: 1100, heads: [2, 7, 1] },
            Long { kv: DType::F16, d: 128, positions: 20_000, heads: [1, 1, 1] },
            Long { kv: DType::F32, d: 256, positions: 1500, heads: [1, 6, 2] },
            Long { kv: DType::F16, d: 256, positions: 700, heads: [2, 8, 1] },
            Long { kv: DType::F16, d: 512, positions: 700, heads: [2, 5, 1] },
            Long { kv: DType::F32, d: 264, positions: 2100, heads: [1, 1, 2] },
            Long { kv: DType::Q8_0, d: 512, positions: 700, heads: [2, 5, 1] },
            Long { kv: DType::Q8_0, d: 288, positions: 2100, heads: [1, 1, 2] },
            Long { kv: DType::Q4_0, d: 512, positions: 1500, heads: [1, 8, 1] },
            Long { kv: DType::Q4_0, d: 320, positions: 700, heads: [1, 3, 2] },
        ] {
            let case = Case::new(format!("{target} {long:?}"), |g, c| build_long(g, c, &long));
            let reference = ReferenceBackend::new(Deadlines::default());
            let Outcome::Values(right) = catalogue::run(&case, &reference, Precision::Exact).unwrap() else {
                panic!("the reference refuses nothing");
            };
            let mut graph = case.graph.clone().unwrap();
            graph.output(case.node).unwrap();
            let plan = Plan::new(&graph, backend.device().limits.alignment, Precision::Exact).unwrap();
            let outline = backend.outline(&graph, &plan).unwrap();
            assert_eq!((outline.len(), outline[0].dispatches), (1, 1), "{}", case.name);
            let mut program =
                backend.prepare(&graph, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
            let leaves = case.leaves().unwrap();
            for (id, bytes) in &leaves {
                program.write(*id, bytes).unwrap();
            }
            let (q, queries) = &leaves[0];
            let mut run = |queries: &[u8]| {
                let mut result = vec![0f32; right.len()];
                program.write(*q, queries).unwrap();
                program.run().unwrap();
                program.read(case.node, bytemuck::cast_slice_mut(&mut result)).unwrap();
                result
            };
            let first = run(queries);
            let wild: Vec<usize> = (0..right.len()).filter(|&i| !right[i].is_finite()).collect();
            let blocks = long.kv.block() > 1;
            let same = |a: f32, b: f32| a == b || !a.is_finite() && (blocks || a.is_nan() && b.is_nan());
            assert!(!wild.is_empty() && wild.iter().all(|&i| same(first[i], right[i])), "{}", case.name);
            assert_eq!(first.iter().filter(|x| !x.is_finite()).count(), wild.len(), "{}", case.name);
            let finite = |x: &[f32]| x.iter().copied().filter(|x| x.is_finite()).collect::<Vec<f32>>();
            let error = distance(&finite(&first), &finite(&right)).nmse;
            assert!(error < 1e-10, "{}: {error:e}", case.name);
            for _ in 0..4 {
                let other = run(&vec![0; queries.len()]);
                assert!(finite(&other) != finite(&first), "{}: nothing was computed", case.name);
                let again = run(queries);
                assert!(again.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", case.name);
            }
        }
    }
}
