//! Every kernel of MUL_MAT for quantised weights, run on the virtual GPU: results against the reference, and
//! instruction counts of products of bytes against those of F32. The choice of kernels is tested by the
//! operation catalogue in other tests of backend-hip; here each kernel gets shapes at its limits.

use bytemuck::{Pod, Zeroable};
use ggml_core::DType;
use ggml_core::catalogue::{self, Case, Fill, Judged, Outcome};
use ggml_core::evaluate::Contents;
use ggml_core::kernel::{MatVecParams, MulMatParams, ProductsParams};
use ggml_core::metrics::distance;
use ggml_core::phase::Deadlines;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use virtual_gpu::{Counters, Gpu, Launch, Module, Options, Target, metadata};

/// Threads of a wavefront of the virtual processors.
const WAVE: u32 = 64;

/// Format of a kernel's activations.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// F32, unrounded.
    Exact,
    /// F32, rounded by the kernel itself.
    Rounding,
    /// 8 bits, rounded before by `quantize_int8`.
    Int8,
    /// F16, rounded before by `round_half`.
    Packed,
}

/// Kernel under test: rows of a wavefront (mat-vec) or of a work-group (tiles), columns, threads.
#[derive(Clone, Copy)]
struct Kernel {
    name: &'static str,
    form: Form,
    rows: u32,
    columns: u32,
    threads: u32,
}

const fn kernel(name: &'static str, form: Form, rows: u32, columns: u32, threads: u32) -> Kernel {
    Kernel { name, form, rows, columns, threads }
}

/// Kernels; `@` is replaced by the type's name.
const KERNELS: [Kernel; 18] = [
    kernel("mat_vec_@_n1_r4", Form::Exact, 4, 1, 256),
    kernel("mat_vec_@_n2_r2", Form::Exact, 2, 2, 256),
    kernel("mat_vec_@_n4_r4", Form::Exact, 4, 4, 256),
    kernel("mat_vec_@_n8_r2", Form::Exact, 2, 8, 256),
    kernel("mat_tile_@_64x32", Form::Exact, 64, 32, 128),
    kernel("mat_tile_@_64x64", Form::Exact, 64, 64, 256),
    kernel("mat_tile_@_128x64", Form::Exact, 128, 64, 256),
    kernel("mat_tile_@_128x128", Form::Exact, 128, 128, 256),
    kernel("mat_vec_rounding_@_n1_r4", Form::Rounding, 4, 1, 256),
    kernel("mat_vec_rounding_@_n2_r4", Form::Rounding, 4, 2, 256),
    kernel("mat_vec_int8_@_n4_r4", Form::Int8, 4, 4, 256),
    kernel("mat_vec_int8_@_n8_r2", Form::Int8, 2, 8, 256),
    kernel("mat_tile_int8_@_64x32", Form::Int8, 64, 32, 128),
    kernel("mat_tile_int8_@_64x64", Form::Int8, 64, 64, 256),
    kernel("mat_tile_int8_@_128x64", Form::Int8, 128, 64, 256),
    kernel("mat_tile_packed_@_64x32", Form::Packed, 64, 32, 128),
    kernel("mat_tile_packed_@_64x64", Form::Packed, 64, 64, 256),
    kernel("mat_tile_packed_@_128x64", Form::Packed, 128, 64, 256),
];

/// Parameters of mat-vec kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct VecParams {
    products: ProductsParams,
    more: MatVecParams,
}

/// Distribution of rows over wavefronts: the number of passes, and the logarithm of the number of wavefronts
/// that share rows.
#[derive(Clone, Copy, Debug)]
struct Deal {
    passes: u32,
    split: u32,
}

const ONCE: Deal = Deal { passes: 1, split: 0 };

fn vec_params(p: &MulMatParams, Deal { passes, split }: Deal) -> VecParams {
    VecParams {
        products: ProductsParams {
            k: p.k,
            n: p.n,
            m: [p.m, 0, 0],
            ne2: p.ne2,
            r2: p.r2,
            nb0: [p.nb0[0], p.nb0[1]],
            nb1: [p.nb1[0], p.nb1[1]],
            ..ProductsParams::default()
        },
        more: MatVecParams {
            begin: [u32::MAX; 2],
            passes,
            split,
            r3: p.r3,
            nb03: p.nb0[2],
            nb13: p.nb1[2],
            ..MatVecParams::default()
        },
    }
}

/// Types with all kernels, and types with the `of_every_type` kernels only: 4 that do not round and 4 that
/// do, for types of few bits 2.
const FULL: [DType; 5] = [DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q5_K, DType::Q6_K];
const FEW: [DType; 8] = [
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q3_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];
const LOW: [DType; 12] = [
    DType::Q1_0,
    DType::Q2_0,
    DType::NVFP4,
    DType::TQ1_0,
    DType::TQ2_0,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ3_XXS,
    DType::IQ3_S,
];

/// Returns a type's name in kernel names.
fn suffix(dtype: DType) -> String {
    dtype.name().to_lowercase()
}

impl Kernel {
    fn is_vec(&self) -> bool {
        self.name.starts_with("mat_vec")
    }

    /// Returns the work-groups for a result.
    fn groups(&self, p: &MulMatParams, deal: Deal) -> [u32; 3] {
        let waves = (self.threads / WAVE) >> deal.split;
        let rows = if self.is_vec() { self.rows * waves * deal.passes } else { self.rows };
        [p.m.div_ceil(rows), p.n.div_ceil(self.columns), p.ne2 * p.ne3]
    }
}

/// Device with the code objects of the family; `None` if they were not built in.
struct Device {
    gpu: Gpu,
    modules: Vec<Module>,
}

impl Device {
    fn new(target: Target) -> Option<Device> {
        let gpu = Gpu::new(target, Options::default());
        // Not every target has code for all stems.
        let stems = hip_kernels::stems().iter().filter(|s| s.starts_with("mul_mat"));
        let load = |stem: &&str| {
            let image = hip_kernels::code_object(target.name(), stem)?;
            metadata::read(image).ok().filter(|found| !found.kernels.is_empty())?;
            Some(gpu.load(image).unwrap_or_else(|fault| panic!("{stem}: {fault}")))
        };
        let modules: Vec<Module> = stems.filter_map(load).collect();
        if modules.is_empty() {
            eprintln!("skipped: nothing was built in for {}", target.name());
            return None;
        }
        Some(Device { gpu, modules })
    }

    fn has(&self, name: &str) -> bool {
        self.modules.iter().any(|module| module.kernel(name).is_some())
    }

    fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.gpu.allocate(bytes.len()).unwrap();
        self.gpu.write(address, bytes).unwrap();
        address
    }

    fn launch(&self, name: &str, groups: [u32; 3], threads: u32, pointers: &[u64], p: &impl Pod) -> Counters {
        let found = self.modules.iter().find_map(|module| module.kernel(name));
        let kernel = found.unwrap_or_else(|| panic!("{name} is not there"));
        let arguments = [bytemuck::cast_slice(pointers), bytemuck::bytes_of(p)].concat();
        let launch =
            Launch { groups, threads: [threads, 1, 1], dynamic_lds: 0, arguments: &arguments, windows: None };
        self.gpu.launch(&kernel, &launch).unwrap_or_else(|fault| panic!("{name}: {fault}"))
    }

    /// Computes a product. Returns the result, and the counters of the rounding and of the product itself.
    fn product(
        &self,
        (kernel, deal): (&Kernel, Deal),
        name: &str,
        p: &MulMatParams,
        a: &[u8],
        b: &[u8],
    ) -> (Vec<f32>, [Counters; 2]) {
        let columns = (p.n * p.ne2 * p.ne3) as usize;
        let mut result = vec![0f32; columns * p.m as usize];
        let [a, b, d] = [a, b, bytemuck::cast_slice(&result)].map(|bytes| self.upload(bytes));
        let mut taken = vec![a, b, d];
        let mut before = Counters::default();
        let mut input = vec![b];
        if kernel.form == Form::Int8 {
            // Tiles of these two types store the scales and sums of 256 adjacent elements together.
            let blocks =
                ["mat_tile_int8_q4_k", "mat_tile_int8_q5_k"].iter().any(|tile| name.starts_with(tile))
                    && self.gpu.target() == Target::Gfx906;
            let (rounding, part) = if blocks { ("quantize_int8_k", 4) } else { ("quantize_int8", 8) };
            let [q, scales] = [columns * p.k as usize, columns * p.k as usize / part]
                .map(|n| self.gpu.allocate(n).unwrap());
            taken.extend([q, scales]);
            // A work-group of 256 threads covers as many rows as fit, one thread per eight elements; see
            // index.h.
            let log2 = (p.k / 8).next_power_of_two().ilog2().min(8);
            let groups = (p.k / 8).div_ceil(1 << log2) * (columns as u32).div_ceil(256 >> log2);
            before = self.launch(rounding, [groups, 1, 1], 256, &[b, q, scales], p);
            input = vec![q, scales];
        }
        if kernel.form == Form::Packed {
            let [x, scales] = [columns * p.k.next_multiple_of(64) as usize * 2, columns * 4]
                .map(|n| self.gpu.allocate(n).unwrap());
            taken.extend([x, scales]);
            before = self.launch("round_half", [p.n, p.ne2 * p.ne3, 1], 256, &[b, x, scales], p);
            input = vec![x, scales];
        }
        let groups = kernel.groups(p, deal);
        let counters = if kernel.is_vec() {
            // Three matrices, the input and its scales, placeholders for missing operands, three results.
            let pointers = [&[a; 3][..], &[input[0], *input.last().unwrap()], &[a; 6], &[d; 3]].concat();
            self.launch(name, groups, kernel.threads, &pointers, &vec_params(p, deal))
        } else {
            self.launch(name, groups, kernel.threads, &[&[a], &input[..], &[d]].concat(), p)
        };
        self.gpu.read(d, bytemuck::cast_slice_mut(&mut result)).unwrap();
        taken.into_iter().for_each(|address| self.gpu.free(address).unwrap());
        (result, [before, counters])
    }
}

/// Returns the reference's result.
fn right(case: &Case) -> Vec<f32> {
    match catalogue::run(case, &ReferenceBackend::new(Deadlines::default()), Precision::Exact).unwrap() {
        Outcome::Values(right) => right,
        Outcome::Unsupported(why) => panic!("the reference refuses nothing: {why}"),
    }
}

/// Parameters of a product, its operands, the reference's result.
type Product = (MulMatParams, [Vec<u8>; 2], Vec<f32>);

/// Products by their description. Each is made once, by the first that asks for it.
type Products = HashMap<String, Arc<OnceLock<Arc<Product>>>>;

/// Returns a product of values between -1 and 1. It is made once for all kernels and targets.
fn uniform(dtype: DType, k: usize, m: usize, n: usize, batch: [usize; 4]) -> Arc<Product> {
    static MADE: LazyLock<Mutex<Products>> = LazyLock::new(Mutex::default);
    let key = format!("{dtype} {k} {m} {n} {batch:?}");
    let place = MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    place.get_or_init(|| Arc::new(case(dtype, k, m, n, batch, Fill::Uniform(-1.0, 1.0)))).clone()
}

/// Builds a product and computes it on the reference.
fn case(dtype: DType, k: usize, m: usize, n: usize, batch: [usize; 4], fill: Fill) -> Product {
    let case = build(dtype, k, m, n, batch, fill);
    let judged = Judged::new(case, &ReferenceBackend::default()).expect("the reference refuses nothing");
    let (p, operands) = split(&judged.case, &judged.contents);
    (p, operands, judged.wanted)
}

/// Builds a product of which only the instructions count, or whose result is known.
fn operands(
    dtype: DType,
    k: usize,
    m: usize,
    n: usize,
    batch: [usize; 4],
    fill: Fill,
) -> (MulMatParams, [Vec<u8>; 2]) {
    let case = build(dtype, k, m, n, batch, fill);
    split(&case, &case.contents().unwrap())
}

fn build(dtype: DType, k: usize, m: usize, n: usize, batch: [usize; 4], fill: Fill) -> Case {
    let [a2, a3, b2, b3] = batch;
    Case::new(format!("{dtype} {k} {m} {n} {batch:?}"), |g, c| {
        let a = c.leaf(g, "a", dtype, [k, m, a2, a3], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [k, n, b2, b3], fill.clone())?;
        g.mul_mat(a, b)
    })
}

/// Returns the parameters of a product and its operands.
fn split(case: &Case, contents: &Contents) -> (MulMatParams, [Vec<u8>; 2]) {
    let graph = case.graph.as_ref().unwrap();
    let operands = ["a", "b"].map(|name| contents[&graph.find(name).unwrap()].clone());
    (MulMatParams::new(graph, case.node, &[]).unwrap(), operands)
}

/// Checks the results of each kernel that a target has.
fn results_are_right(target: Target) {
    let Some(device) = Device::new(target) else { return };
    let mut ran = 0;
    for dtype in FULL.into_iter().chain(FEW).chain(LOW) {
        // Shorter than a wavefront's step; several steps and a remainder; longer than a chunk that is rounded
        // at a time.
        let lengths = if dtype.block() == 32 { [96, 1184, 4160] } else { [256, 1280, 4352] };
        for kernel in KERNELS {
            let name = kernel.name.replace('@', &suffix(dtype));
            if !device.has(&name) {
                continue;
            }
            ran += 1;
            let tile = kernel.name.starts_with("mat_tile");
            let columns = kernel.columns as usize;
            let shapes = [
                (lengths[0], if tile { 65 } else { 27 }, 1, [1; 4]),
                (lengths[1], if tile { 140 } else { 19 }, columns + columns / 3, [1, 2, 2, 2]),
                (lengths[2], 11, columns, [1; 4]),
            ];
            // The length of a row has the same effect for all types.
            for (k, m, n, batch) in shapes.into_iter().take(if FULL.contains(&dtype) { 3 } else { 2 }) {
                let product = uniform(dtype, k, m, n, batch);
                let (p, [a, b], right) = &*product;
                let bound = match kernel.form {
                    Form::Exact => 1e-11,
                    Form::Packed => 5e-6,
                    Form::Rounding | Form::Int8 => 5e-5,
                };
                let deals = [ONCE, Deal { passes: 2, split: 0 }, Deal { passes: 1, split: 2 }];
                for deal in deals.into_iter().take(if kernel.is_vec() { 3 } else { 1 }) {
                    let (result, _) = device.product((&kernel, deal), &name, p, a, b);
                    let error = distance(&result, right).nmse;
                    assert!(error < bound, "{name} k={k} m={m} n={n} {deal:?}: {error:e}");
                }
            }
        }
    }
    // gfx900 has packed tiles in place of all kernels of bytes.
    let all = match target {
        Target::Gfx900 => FULL.len() * (8 + 3) + FEW.len() * (4 + 2) + LOW.len() * 4,
        _ => FULL.len() * 15 + FEW.len() * 8 + LOW.len() * 6,
    };
    assert_eq!(ran, all);
}

#[test]
fn results_are_right_on_gfx900() {
    results_are_right(Target::Gfx900);
}

#[test]
fn results_are_right_on_gfx906() {
    results_are_right(Target::Gfx906);
}

/// Rows of a part of the weights, and columns with gaps between them.
#[test]
fn operands_with_strides() {
    let Some(device) = Device::new(Target::Gfx906) else { return };
    for template in ["mat_vec_rounding_@_n2_r4", "mat_vec_int8_@_n4_r4", "mat_tile_int8_@_64x32"] {
        let kernel = KERNELS.iter().find(|k| k.name == template).unwrap();
        let case = Case::new(template, |g, c| {
            let a = c.leaf(g, "a", DType::Q8_0, [64, 40, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let a = g.view(a, [64, 19, 1, 1], [34, 68, 68 * 19, 68 * 19], 68 * 7)?;
            let b = c.leaf(g, "b", DType::F32, [64, 3, 5, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = g.permute(b, [0, 2, 1, 3])?;
            g.mul_mat(a, b)
        });
        let p = MulMatParams::new(case.graph.as_ref().unwrap(), case.node, &[]).unwrap();
        assert_eq!((p.m, p.n, p.ne2, p.nb1[0]), (19, 5, 3, 192));
        let leaves = case.leaves().unwrap();
        let (a, b) = (&leaves[0].1[68 * 7..], &leaves[1].1);
        let (result, _) = device.product((kernel, ONCE), &template.replace('@', "q8_0"), &p, a, b);
        let error = distance(&result, &right(&case)).nmse;
        assert!(error < 5e-5, "{template}: {error:e}");
    }
}

/// Activations that do not fit the format: zeros, tiny and huge ones; infinities and NaN must reach the
/// result.
#[test]
fn unusual_activations() {
    let Some(device) = Device::new(Target::Gfx906) else { return };
    for (template, n) in [("mat_vec_rounding_@_n1_r4", 1), ("mat_tile_int8_@_64x32", 3)] {
        let kernel = KERNELS.iter().find(|k| k.name == template).unwrap();
        let name = template.replace('@', "q8_0");
        for (value, right) in
            [(0.0, 0.0), (1e-42, 0.0), (-0.0, 0.0), (f32::INFINITY, f32::NAN), (f32::NAN, f32::NAN)]
        {
            // One of these values in the second block of 32; the others are zeros.
            let mut values = vec![0.0; 96 * n];
            values[40] = value;
            let (p, [a, b]) = operands(DType::Q8_0, 96, 5, n, [1; 4], Fill::Values(values));
            let (result, _) = device.product((kernel, ONCE), &name, &p, &a, &b);
            for (i, &x) in result.iter().enumerate() {
                let right = if i < 5 { right } else { 0.0 };
                assert!(x == right || (x.is_nan() && right.is_nan()), "{name} with {value}: {x} in {i}");
            }
        }
        let (p, [a, b], right) = case(DType::Q8_0, 96, 5, n, [1; 4], Fill::Uniform(-1e34, 1e34));
        let (result, _) = device.product((kernel, ONCE), &name, &p, &a, &b);
        let close = |(x, y): (&f32, &f32)| (x - y).abs() < 0.02 * 1e34 * 4.0;
        assert!(result.iter().zip(&right).all(close), "{name}: {result:?} instead of {right:?}");
    }
}

/// Checks the basis of the kernel choice: the number of vector instructions that products of bytes save,
/// including the rounding. (Scalar instructions are issued in parallel.) Prints them.
fn bytes_take_fewer_instructions(target: Target, pairs: &[(&str, &str, usize)]) {
    let Some(device) = Device::new(target) else { return };
    for dtype in FULL.into_iter().chain(FEW) {
        let suffix = &suffix(dtype);
        for &(exact, bytes, n) in pairs {
            if [exact, bytes].iter().any(|template| !device.has(&template.replace('@', suffix))) {
                continue;
            }
            // Four tiles of rows: at least four tiles share the rounding.
            let (k, m) = if n < 64 { (4096, 128) } else { (1024, 512) };
            let (p, [a, b]) = operands(dtype, k, m, n, [1; 4], Fill::Uniform(-1.0, 1.0));
            let counters = [exact, bytes].map(|template| {
                let kernel = KERNELS.iter().find(|k| k.name == template).unwrap();
                // Many rows are processed in several passes.
                let deal = Deal { passes: if kernel.columns <= 2 { 4 } else { 1 }, split: 0 };
                device.product((kernel, deal), &template.replace('@', suffix), &p, &a, &b).1
            });
            let [exact, bytes] = counters.map(|[before, product]| vector(&before) + vector(&product));
            let ratio = exact as f64 / bytes as f64;
            let each = [exact, bytes]
                .map(|count| count as f64 * f64::from(WAVE) / (f64::from(p.m) * f64::from(p.k)));
            println!(
                "{} {suffix} {n} columns: a weight F32 {:.2}, bytes {:.2}, {ratio:.2}",
                target.name(),
                each[0],
                each[1]
            );
            assert!(ratio > 1.2, "{} {suffix} {n} columns: {bytes} and {exact}", target.name());
            let most = MOST.iter().find(|(of, _)| *of == dtype && n == 1);
            assert!(most.is_none_or(|&(_, most)| each[1] <= most), "{suffix}: {each:?}");
        }
    }
}

/// Maximum instructions per weight for one column of bytes: with them an MI50 reads memory at full speed.
const MOST: [(DType, f64); 4] =
    [(DType::Q8_0, 1.7), (DType::Q4_0, 2.0), (DType::Q4_K, 2.1), (DType::Q6_K, 3.6)];

const TILES: (&str, &str, usize) = ("mat_tile_@_128x64", "mat_tile_int8_@_128x64", 64);

#[test]
fn bytes_take_fewer_instructions_on_gfx906() {
    let pairs = [
        ("mat_vec_@_n1_r4", "mat_vec_rounding_@_n1_r4", 1),
        ("mat_vec_@_n2_r2", "mat_vec_rounding_@_n2_r4", 2),
        ("mat_vec_@_n4_r4", "mat_vec_int8_@_n4_r4", 4),
        ("mat_vec_@_n8_r2", "mat_vec_int8_@_n8_r2", 8),
        TILES,
    ];
    bytes_take_fewer_instructions(Target::Gfx906, &pairs);
}

#[test]
fn packed_halves_take_fewer_instructions_on_gfx900() {
    bytes_take_fewer_instructions(Target::Gfx900, &[(TILES.0, PACKED, 64)]);
}

const PACKED: &str = "mat_tile_packed_@_128x64";

/// Products at the limits of F16: the largest integers of a block times activations of one magnitude, all products of the
/// same sign; rows of large and tiny activations; infinities and NaN, which must not become numbers.
#[test]
fn sums_of_packed_halves_do_not_overflow() {
    let Some(device) = Device::new(Target::Gfx900) else { return };
    let kernel = KERNELS.iter().find(|k| k.name == PACKED).unwrap();
    for (weights, activations) in [(-1.0, -1.0), (1.0, 1e30), (-1.0, 3e-30), (1.0, f32::MAX / 512.0)] {
        for dtype in FULL {
            let case = Case::new("limits", |g, c| {
                let a = c.leaf(g, "a", dtype, [256, 5, 1, 1], Fill::Values(vec![weights; 1280]))?;
                let b = c.leaf(g, "b", DType::F32, [256, 3, 1, 1], Fill::Values(vec![activations; 768]))?;
                g.mul_mat(a, b)
            });
            let (p, [a, b]) = split(&case, &case.contents().unwrap());
            let name = kernel.name.replace('@', &suffix(dtype));
            let (result, _) = device.product((kernel, ONCE), &name, &p, &a, &b);
            for (x, y) in result.iter().zip(right(&case)) {
                // Each of 16 sums is rounded to 11 bits.
                assert!(
                    (x / y - 1.0).abs() < 16.0 / 4096.0,
                    "{name} of {weights} times {activations}: {x}, not {y}"
                );
            }
        }
    }
    for value in [f32::INFINITY, f32::NAN] {
        let mut values = vec![0.5; 96 * 3];
        values[40] = value;
        let (p, [a, b]) = operands(DType::Q8_0, 96, 5, 3, [1; 4], Fill::Values(values));
        let (result, _) = device.product((kernel, ONCE), &kernel.name.replace('@', "q8_0"), &p, &a, &b);
        assert!(result.iter().enumerate().all(|(i, x)| x.is_finite() == (i >= 5)), "{value}: {result:?}");
    }
}

/// Returns the vector instructions: arithmetic, memory, LDS. Scalar instructions are issued in parallel.
fn vector(c: &Counters) -> u64 {
    c.valu + c.vmem_load + c.vmem_store + c.lds
}

/// Checks the share of dot4 instructions of products in the vector instructions of a step of a tile of bytes.
/// 32 products of a row and a column are 8 of them; 2 more apply the scales, plus a share for minima: 80 and
/// 74 % would be the optimum.
#[test]
fn tiles_of_bytes_are_dot4_on_gfx906() {
    let Some(device) = Device::new(Target::Gfx906) else { return };
    for (dtype, least) in [(DType::Q8_0, 0.69), (DType::Q4_0, 0.66), (DType::Q4_K, 0.65), (DType::Q5_K, 0.63)]
    {
        let kernel = KERNELS.iter().find(|k| k.name == TILES.1).unwrap();
        let name = kernel.name.replace('@', &suffix(dtype));
        let [short, long] = [1024, 3072].map(|k| {
            let (p, [a, b]) = operands(dtype, k, 256, 64, [1; 4], Fill::Uniform(-1.0, 1.0));
            device.product((kernel, ONCE), &name, &p, &a, &b).1[1]
        });
        let products = 2048 * 256 * 64 / 4 / u64::from(WAVE);
        assert!(long.dot - short.dot >= products, "{name} multiplies something else");
        let share = products as f64 / (vector(&long) - vector(&short)) as f64;
        println!("{name}: {:.1} % dot4", share * 100.0);
        assert!(share >= least, "{name}: {share}");
    }
}
