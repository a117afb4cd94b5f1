//! Attention with rows of lengths that the operation catalogue does not have, run on the virtual GPU.

use ggml_core::catalogue::{self, Case, Fill, Outcome};
use ggml_core::kernel::FlashAttnParams;
use ggml_core::metrics::distance;
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::phase::Deadlines;
use ggml_core::plan::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Graph, Result, TensorId};
use virtual_gpu::{Gpu, Launch, Options, Target};

/// Lengths of the rows of k and v, tokens, positions; 6 heads over 2 of k and v, ALiBi and a soft-cap.
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
        for shape in [[20, 12, 3, 7], [100, 100, 2, 300], [576, 512, 1, 140], [9, 1023, 1, 33]] {
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
            // No sinks: q again. The statistics: the result again.
            pointers.insert(4, pointers[0]);
            pointers.push(pointers[5]);
            let arguments = [bytemuck::cast_slice(&pointers), bytemuck::bytes_of(&p)].concat();
            let groups = [1, p.ne[0] * p.ne[1] / p.kv[1], p.kv[1] * p.ne[2]];
            let launch = Launch { groups, threads: [128, 1, 1], dynamic_lds: 0, arguments: &arguments };
            let kernel = module.kernel(name).unwrap();
            gpu.launch(&kernel, &launch).unwrap_or_else(|fault| panic!("{name} {shape:?}: {fault}"));
            gpu.read(pointers[5], bytemuck::cast_slice_mut(&mut result)).unwrap();
            let error = distance(&result, &right).nmse;
            assert!(error < 1e-10, "{name} {shape:?}: {error:e}");
        }
    }
}
