//! Attention on matrix units, on a virtual GPU that has none: `kernels/written.h` emulates their instructions
//! lane by lane as documented by the manufacturers. Everything around them is the kernels' own: the
//! assignment of scores to lanes, the exchange of weights, transposed tiles, masks, the soft-max, splits of
//! the positions.

use crate::written;

use ggml_core::catalogue::{self, Case, Fill, Outcome};
use ggml_core::evaluate::{Contents, evaluate};
use ggml_core::kernel::FlashAttnParams;
use ggml_core::metrics::distance;
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Graph, Result, TensorId};
use std::sync::LazyLock;
use virtual_gpu::{Gpu, Launch, Module, Options, Target};

/// Query rows per work-group: for rows of up to 128 elements, and for longer ones.
const ROWS: [u32; 2] = [64, 16];
/// Maximum lengths of the rows of k and v.
const LONG: [usize; 2] = [576, 512];

struct Device {
    gpu: Gpu,
    attention: Module,
    /// Shipped kernels, one of which combines splits.
    shipped: Module,
    /// Threads of a work-group.
    threads: u32,
}

impl Device {
    fn new(unit: &str, threads: u32) -> Option<Device> {
        let Some(shipped) = hip_kernels::code_object("gfx906", "flash_attn") else {
            eprintln!("skipped: nothing was built in for gfx906");
            return None;
        };
        let definition = format!("UNIT={unit}");
        let object = written::compile("attention.hip", &[definition.as_str()])?;
        let gpu = Gpu::new(Target::Gfx906, Options::default());
        let (attention, shipped) = (gpu.load(&object).unwrap(), gpu.load(shipped).unwrap());
        Some(Device { gpu, attention, shipped, threads })
    }

    fn launch(&self, kernel: &str, groups: [u32; 3], threads: u32, pointers: &[u64], p: &[u8]) {
        let modules = [&self.attention, &self.shipped];
        let kernel = modules.into_iter().find_map(|module| module.kernel(kernel)).expect(kernel);
        let arguments = [bytemuck::cast_slice(pointers), p].concat();
        let launch =
            Launch { groups, threads: [threads, 1, 1], dynamic_lds: 0, arguments: &arguments, windows: None };
        self.gpu.launch(&kernel, &launch).unwrap();
    }

    fn run(&self, case: &Case, leaves: &[(TensorId, Vec<u8>)]) -> Vec<f32> {
        let graph = case.graph.as_ref().unwrap();
        let operands = graph.operands(case.node);
        let p = FlashAttnParams::new(graph, case.node, &[]).unwrap();
        let places: Vec<u64> = leaves
            .iter()
            .map(|(_, bytes)| {
                let address = self.gpu.allocate(bytes.len()).unwrap();
                self.gpu.write(address, bytes).unwrap();
                address
            })
            .collect();
        // For missing operands q is passed again.
        let mut pointers: Vec<u64> = [0, 1, 2, 3, 4]
            .map(|i| {
                let operand = operands.get(i).unwrap_or(&operands[0]);
                let leaf = leaves.iter().position(|(id, _)| *id == operand.root).unwrap();
                places[leaf] + operand.offset as u64
            })
            .to_vec();
        let rows = p.ne[0] * (p.ne[1] / p.kv[1]);
        // Splits of 1024 positions.
        let splits = p.kv[0].div_ceil(1024);
        let span = if splits > 1 { 1024 } else { p.kv[0] };
        let all_rows = p.ne[0] * p.ne[1] * p.ne[2];
        let values = (all_rows * p.d[1]) as usize;
        let result = self.gpu.allocate(values * 4).unwrap();
        let joined =
            [values, all_rows as usize * 2].map(|n| self.gpu.allocate(n * 4 * splits as usize).unwrap());
        let written = if splits == 1 { [result; 2] } else { joined };
        pointers.extend(written);
        let kv_type = operands[1].dtype.name().to_lowercase();
        let size = ["d64", "d128", "long"][[64, 128].iter().filter(|&&n| p.d[0].max(p.d[1]) > n).count()];
        let kernel = format!("attention_{kv_type}_{size}");
        let groups = [splits, rows.div_ceil(ROWS[usize::from(size == "long")]), p.kv[1] * p.ne[2]];
        let p = [bytemuck::bytes_of(&p), &span.to_ne_bytes()].concat();
        self.launch(&kernel, groups, self.threads, &pointers, &p);
        if splits > 1 {
            let pointers = [written[0], written[1], result];
            self.launch("flash_attn_combine", [all_rows, 1, 1], 128, &pointers, &p);
        }
        let mut got = vec![0f32; values];
        self.gpu.read(result, bytemuck::cast_slice_mut(&mut got)).unwrap();
        let taken = places.iter().chain(&joined).chain([&result]);
        taken.for_each(|&address| self.gpu.free(address).unwrap());
        got
    }
}

/// A case with its results by the reference, which are the same for all units.
struct Judged {
    case: Case,
    /// Contents of the leaves.
    leaves: Vec<(TensorId, Vec<u8>)>,
    dtype: DType,
    right: Vec<f32>,
    /// With queries as a unit gets them.
    rounded: Vec<f32>,
}

/// All cases, computed by the reference once.
static JUDGED: LazyLock<Vec<Judged>> = LazyLock::new(|| {
    let judge = |case: Case| {
        let dtype = case.graph.as_ref().unwrap().operands(case.node)[1].dtype;
        let leaves = case.leaves().unwrap();
        let contents = leaves.iter().cloned().collect();
        let right = catalogue::run_with(&case, &contents, &ReferenceBackend::default(), Precision::Exact);
        let Outcome::Values(right) = right.unwrap() else { panic!("the reference refuses nothing") };
        let rounded = with_rounded_queries(&case, contents);
        Judged { case, leaves, dtype, right, rounded }
    };
    cases().into_iter().map(judge).collect()
});

/// Returns the cases of the catalogue that a matrix unit supports, regardless of their number of rows.
fn cases() -> Vec<Case> {
    let fits = |graph: &Graph, case: &Case| {
        let operands = graph.operands(case.node);
        let rows = [operands[1].ne[0], operands[2].ne[0]];
        let longest = if operands[1].dtype == DType::F16 { LONG } else { [128; 2] };
        let dtype = operands[1].dtype != DType::F32;
        dtype && rows.iter().zip(longest).all(|(&n, longest)| n % 8 == 0 && n <= longest)
    };
    let attention = |case: &Case| case.name.starts_with("FLASH_ATTN_EXT(") && case.group.is_none();
    let all = catalogue::cases().into_iter().filter(attention);
    all.filter(|case| fits(case.graph.as_ref().unwrap(), case)).collect()
}

/// Returns the result of a case whose queries are rounded to the eleven bits of F16.
fn with_rounded_queries(case: &Case, mut data: Contents) -> Vec<f32> {
    let graph = case.graph.as_ref().unwrap();
    let queries = graph.operands(case.node)[0].root;
    for x in data.get_mut(&queries).unwrap().as_chunks_mut().0 {
        let bits = u32::from_le_bytes(*x);
        if bits >> 23 & 0xff != 0xff {
            *x = ((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff).to_le_bytes();
        }
    }
    let outputs = evaluate(&ReferenceBackend::default(), graph, &data, Precision::Exact).unwrap();
    outputs[0].values().unwrap()
}

/// The cases that a unit runs: all, or a third if the catalogue runs on an emulated card that has the unit.
#[derive(Clone, Copy)]
enum Share {
    All,
    Third(usize),
}

impl Share {
    fn has(self, i: usize) -> bool {
        match self {
            Share::All => true,
            Share::Third(third) => i % 3 == third,
        }
    }
}

/// Checks masks, windows, sinks, caps, slopes, splits, heads that share keys, infinities and NaNs, with all
/// types of the cache. Only queries are rounded more than in F32.
fn check(unit: &str, threads: u32, share: Share) {
    let Some(device) = Device::new(unit, threads) else { return };
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_0] {
        let mut worst = (0.0, 0.0);
        let mut count = 0;
        let cases = JUDGED.iter().filter(|judged| judged.dtype == dtype).enumerate();
        for (_, Judged { case, leaves, right, rounded, .. }) in cases.filter(|(i, _)| share.has(*i)) {
            let got = device.run(case, leaves);
            let error = catalogue::distance(case, &got, right);
            let bound = catalogue::bound(case, Precision::Fast);
            assert!(bound.holds(&error), "{unit} {}: {error:?}", case.name);
            let rest = catalogue::distance(case, &got, rounded);
            assert!(rest.nmse < 1e-11, "{unit} {}, but for its queries: {rest:?}", case.name);
            worst = (error.nmse.max(worst.0), error.row.max(worst.1));
            count += 1;
        }
        eprintln!("{unit} {dtype}: {count} cases, errors up to {:.1e}, of a row {:.1e}", worst.0, worst.1);
        assert!(count >= 3, "{dtype}: {count} cases");
    }
    check_sizes(&device, unit);
}

/// Checks keys that exceed F16, and values that F16 represents with few bits: blocks of both lose nothing,
/// and only the queries are rounded (with scores as large as these that gives an NMSE of 8e-7). For a unit
/// that flushes values below 2^-14 to zero, the values are not that small, but their rounding remainders are.
fn check_sizes(device: &Device, unit: &str) {
    let size = if unit == "MFMA90A" { 1e-2 } else { 1e-4 };
    for dtype in [DType::Q8_0, DType::Q4_0] {
        let case = Case::new(format!("{dtype}"), |g, c| -> Result<_> {
            let q = c.leaf(g, "q", DType::F32, [96, 20, 4, 1], Fill::Uniform(-1e-5, 1e-5))?;
            let k = c.leaf(g, "k", dtype, [96, 70, 2, 1], Fill::Uniform(-4e5, 4e5))?;
            let v = c.leaf(g, "v", dtype, [96, 70, 2, 1], Fill::Uniform(-size, size))?;
            let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, None)
        });
        let leaves = case.leaves().unwrap();
        let right = with_rounded_queries(&case, leaves.iter().cloned().collect());
        let error = distance(&device.run(&case, &leaves), &right).nmse;
        assert!(error < 1e-11, "{unit} {dtype}: {error:e}");
    }
}

#[test]
fn wmma_of_rdna3() {
    check("WMMA11", 128, Share::Third(0));
}

#[test]
fn wmma_of_rdna4() {
    check("WMMA12", 128, Share::All);
}

#[test]
fn mfma() {
    check("MFMA", 256, Share::Third(2));
}

#[test]
fn mfma_of_gfx90a() {
    check("MFMA90A", 256, Share::Third(0));
}

#[test]
fn mma() {
    check("MMA", 128, Share::All);
}
