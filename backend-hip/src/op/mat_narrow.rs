//! Products with few columns on NVIDIA's matrix units (`mat_narrow.h`): the weights are read once for each 16 columns.

use super::grid::{launch, scratch};
use super::mat_vec::{MatVec, VecParams, operands};
use super::types::of_type;
use super::{Context, Launch, Refusal};
use crate::arch::{Family, Profile};
use crate::tuning::{Half, Tuning};
use ggml_core::DType;
use ggml_core::kernel::{MatVecParams, ProductsParams};
use ggml_core::precision::Precision;

/// Wavefronts of a work-group, as a power of two, and their LDS: the ring, and the sums of 16 columns.
const WAVES_LOG2: u32 = 4;
const THREADS: u32 = 32 << WAVES_LOG2;
const LDS_BYTES: u32 = 225 << 10;
/// Threads that round a column.
const ROUND_THREADS: u32 = 512;
/// Elements along k of a step, and rows of a tile.
const STEP: u32 = 256;
const ROWS: u32 = 16;
/// Columns of the kernels.
const COLUMNS: [u32; 2] = [8, 16];
/// Most columns, in sets of 16 that each read the weights.
const MOST: u32 = 64;
/// Longest rows: a lane's offset in the rows of a tile has 32 bits.
const LONGEST: u32 = 1 << 24;

/// Kernels of a type, and those that round its columns: without and with a norm.
struct Kernels {
    module: &'static str,
    /// For up to 8 and up to 16 columns.
    names: [&'static str; 2],
    rounding: [&'static str; 2],
}

/// Builds the kernels of a type by its kind.
macro_rules! entry {
    (blocks_32 $t:literal $all:literal) => {
        entry!("mul_mat_half_32", $t, ["round_narrow_32", "normalize_narrow_32"])
    };
    (blocks_256 $t:literal $all:literal) => {
        entry!("mul_mat_half_256", $t, ["round_narrow_64", "normalize_narrow_64"])
    };
    ($kind:ident $t:literal $all:literal) => {
        None
    };
    ($module:literal, $t:literal, $rounding:expr) => {
        Some(Kernels {
            module: $module,
            names: [concat!("mat_narrow_", $t, "_n8"), concat!("mat_narrow_", $t, "_n16")],
            rounding: $rounding,
        })
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    of_type!(dtype, entry).flatten()
}

/// Returns true if products of `n` columns of `k` elements with weights of this type, without experts, use these kernels.
pub(super) fn takes(profile: &Profile, precision: Precision, dtype: DType, [k, n]: [u32; 2]) -> bool {
    let able = profile.family == Family::Nvidia && profile.copies && profile.given_lds >= LDS_BYTES;
    let units = able && Tuning::of(profile).half == Half::Matrix && precision == Precision::Fast;
    units && (2..=MOST).contains(&n) && k <= LONGEST && kernels(dtype).is_some()
}

/// Plans two launches: one rounds the columns, with the norm if there is one, and one computes the products. `None` if
/// other kernels are used.
pub(super) fn plan(c: &Context<'_>, work: &MatVec) -> Option<Result<Vec<Launch>, Refusal>> {
    let has_experts = work.more.experts > 0 || work.more.summed > 0;
    let kernels = kernels(work.dtype).filter(|_| !has_experts)?;
    let extents = [work.products.k, work.products.n];
    takes(c.profile, c.precision, work.dtype, extents).then(|| launches(c, work, &kernels))
}

fn launches(c: &Context<'_>, work: &MatVec, kernels: &Kernels) -> Result<Vec<Launch>, Refusal> {
    let p = &work.products;
    let class = usize::from(p.n > COLUMNS[0]);
    let sets = p.n.div_ceil(COLUMNS[class]);
    let columns = u64::from(sets * COLUMNS[class]) * work.planes;
    let of_column = u64::from(p.k.next_multiple_of(STEP)) * 2;
    let [x, scales] = scratch(c, [(columns, of_column), (u64::from(p.n) * work.planes, 4)])?;
    let (more, groups) = shape(c.profile, work, sets);
    let params = VecParams { products: *p, more };
    let kernel = ("mul_mat_half", kernels.rounding[usize::from(work.norm.is_some())]);
    let operands_of_rounding = vec![work.input, work.norm.unwrap_or(work.input), x, scales];
    let round =
        launch(c, kernel, operands_of_rounding, &params, [p.n.into(), work.planes, 1], ROUND_THREADS)?;
    let products = ProductsParams { parts: p.parts & !ProductsParams::NORM, ..*p };
    let params = VecParams { products, more };
    let kernel = (kernels.module, kernels.names[class]);
    let product = launch(c, kernel, operands(work, [x, scales]), &params, groups, THREADS)?;
    Ok(vec![Launch { written: 2, ..round }, Launch { written: 3, lds_bytes: LDS_BYTES, ..product }])
}

/// Distributes tiles of rows. As many wavefronts share them as have steps of k. Each team of these processes several tiles,
/// so that there is one work-group for each compute unit. For a GLU a tile of each matrix counts as one.
fn shape(profile: &Profile, work: &MatVec, sets: u32) -> (MatVecParams, [u64; 3]) {
    let p = &work.products;
    let split = p.k.div_ceil(STEP).ilog2().min(WAVES_LOG2);
    let teams = 1u32 << (WAVES_LOG2 - split);
    let glu = p.parts & ProductsParams::GLU != 0;
    let matrices = p.m.into_iter().take(if glu { 1 } else { 3 }).filter(|&m| m > 0);
    let tiles: Vec<u32> = matrices.map(|m| m.div_ceil(ROWS)).collect();
    let units = Tuning::of(profile).units(profile);
    let slots = units * u64::from(teams);
    let others = u64::from(sets) * work.planes;
    let all = tiles.iter().map(|&n| u64::from(n)).sum::<u64>() * others;
    let of_team = |passes: u32| tiles.iter().map(|n| n.div_ceil(passes * teams)).collect::<Vec<u32>>();
    let least = all.div_ceil(slots).clamp(1, u64::from(u32::MAX)) as u32;
    // Each matrix starts with a work-group of its own.
    let fits = |passes: u32| of_team(passes).iter().map(|&n| u64::from(n)).sum::<u64>() * others <= units;
    let passes = if fits(least) { least } else { least + 1 };
    let groups = of_team(passes);
    let begin = [1, 2].map(|i| if i < groups.len() { groups[..i].iter().sum() } else { u32::MAX });
    let more = MatVecParams { begin, passes, split, ..work.more };
    (more, [groups.iter().map(|&n| u64::from(n)).sum(), sets.into(), work.planes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use crate::code::kernels::{Embedded, KernelSet, Kernels as Code};
    use crate::op::Operand;
    use ggml_core::op::mul_mat::WEIGHT_TYPES;
    use ggml_core::{Graph, Source, TensorId};
    use std::sync::Arc;

    fn profile(target: &str) -> Profile {
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        Profile { compute_units: 132, ..profile }
    }

    #[test]
    fn few_columns_use_matrix_units_with_enough_lds() {
        let taken = |target: &str, dtype, k, n, precision| takes(&profile(target), precision, dtype, [k, n]);
        let (exact, fast) = (Precision::Exact, Precision::Fast);
        let counts = [1, 2, 16, 64, 65].map(|n| taken("sm_90", DType::Q4_K, 4096, n, fast));
        assert_eq!(counts, [false, true, true, true, false]);
        assert!(taken("sm_100", DType::Q8_0, 896, 2, fast) && !taken("sm_90", DType::Q8_0, 1 << 25, 2, fast));
        for other in ["sm_70", "sm_80", "sm_89", "sm_120", "gfx906", "gfx1100", "gfx942"] {
            assert!(!taken(other, DType::Q8_0, 4096, 8, fast), "{other}");
        }
        assert!(!taken("sm_90", DType::Q8_0, 4096, 8, exact));
        for none in [DType::F32, DType::F16, DType::BF16, DType::MXFP4, DType::TQ2_0] {
            assert!(!taken("sm_90", none, 4096, 8, fast), "{none}");
        }
    }

    #[test]
    fn tiles_are_dealt_out() {
        let of = |m, k, n: u32, planes, parts| {
            let any = Operand::Tensor(TensorId(0));
            let products = ProductsParams { k, n, m, ne2: 1, r2: 1, parts, ..ProductsParams::default() };
            let work = MatVec {
                dtype: DType::Q4_K,
                products,
                more: MatVecParams::default(),
                planes,
                weights: vec![any],
                input: any,
                norm: None,
                biases: [None; 3],
                residual: None,
                experts: [None; 2],
                results: vec![any],
            };
            let (more, groups) = shape(&profile("sm_90"), &work, n.div_ceil(16));
            (more.split, more.passes, more.begin, groups)
        };
        const NONE: u32 = u32::MAX;
        // All wavefronts share a tile if the rows have 16 steps; fewer make teams.
        assert_eq!(of([4096, 0, 0], 4096, 8, 1, 0), (4, 2, [NONE; 2], [128, 1, 1]));
        assert_eq!(of([2050, 0, 0], 1280, 8, 1, 0), (2, 1, [NONE; 2], [33, 1, 1]));
        assert_eq!(of([64, 0, 0], 32, 8, 1, 0), (0, 1, [NONE; 2], [1, 1, 1]));
        // Each matrix starts with a work-group of its own.
        assert_eq!(of([4096, 1024, 1024], 4096, 8, 1, 0), (4, 3, [86, 108], [130, 1, 1]));
        assert_eq!(of([2000, 100, 100], 4096, 8, 1, 0), (4, 2, [63, 67], [71, 1, 1]));
        assert_eq!(of([14336, 14336, 0], 4096, 8, 1, ProductsParams::GLU), (4, 7, [NONE; 2], [128, 1, 1]));
        // Sets of columns, and planes.
        assert_eq!(of([4096, 0, 0], 4096, 17, 1, 0), (4, 4, [NONE; 2], [64, 2, 1]));
        assert_eq!(of([70, 0, 0], 4096, 2, 56, 0), (4, 3, [NONE; 2], [2, 1, 56]));
    }

    /// All kernels exist and declare the arguments that launches pass.
    #[test]
    fn kernels_fit_the_code_objects() {
        let name = Embedded.targets().into_iter().find(|name| *name == "sm_80" || *name == "sm_90");
        let Some(name) = name else {
            eprintln!("no code for matrix units of NVIDIA's: nothing to check");
            return;
        };
        let profile = profile("sm_90");
        let code = Code::new(Arc::new(Embedded), &Target::parse(name).unwrap());
        for &dtype in WEIGHT_TYPES {
            for n in [2, 16] {
                let mut graph = Graph::new();
                let a = graph.leaf("a", dtype, [256, 64, 1, 1], Source::Weight).unwrap();
                let b = graph.leaf("b", DType::F32, [256, n, 1, 1], Source::Input).unwrap();
                let node = graph.mul_mat(a, b).unwrap();
                let context = Context { graph: &graph, node, profile: &profile, precision: Precision::Fast };
                let launches = code.plan(&context).unwrap_or_else(|why| panic!("{name} {dtype}: {why:?}"));
                let narrow = launches.iter().any(|(launch, _)| launch.kernel.starts_with("mat_narrow_"));
                assert_eq!(narrow, kernels(dtype).is_some(), "{dtype}");
            }
        }
    }
}
