//! MUL_MAT_ID: a mat-vec for each pair of an index and a token; where there are many pairs of an expert, tiles of them.
//! Where rounding is allowed and the device multiplies bytes, the same with activations in 8 bits.

use super::grid::{by_rows, launch, no_kernel, scratch, tensors};
use super::{Context, Launch, Operand, Refusal};
use crate::arch::Profile;
use crate::tuning::{Int8, Tuning};
use ggml_core::DType;
use ggml_core::kernel::{MulMatIdParams, MulMatParams};
use ggml_core::plan::Precision;

/// Threads of a work-group: mat-vec in F32 and in 8 bits, tiles, sorting.
const VEC_THREADS: u32 = 128;
const INT8_VEC_THREADS: u32 = 256;
const TILE_THREADS: u32 = 128;
const GATHER_THREADS: u32 = 256;
/// Rows of a wavefront of the mat-vec kernels in F32; in 8 bits it has as many as the last.
const ROWS: [u32; 2] = [1, 4];
/// Rows and pairs of a tile.
const TILE: [u32; 2] = [64, 32];
/// Bytes of an entry of the list of tiles.
const ENTRY: u64 = 12;

/// The kernels of a type.
struct Kernels {
    /// Stem of their source.
    module: &'static str,
    /// For each of [`ROWS`].
    vec: [&'static str; 2],
    tile: &'static str,
    /// Activations in 8 bits, mat-vec and tile. Types that are no blocks have none.
    int8: Option<[&'static str; 2]>,
}

/// Kernels by the type's name in theirs: of plain types, of blocks of 32, of blocks of 256.
macro_rules! plain {
    ($t:literal) => {
        Kernels {
            module: "mul_mat_id",
            vec: [concat!("mat_vec_id_", $t, "_r1"), concat!("mat_vec_id_", $t, "_r4")],
            tile: concat!("mat_tile_id_", $t),
            int8: None,
        }
    };
}
macro_rules! blocks_32 {
    ($t:literal) => {
        Kernels {
            module: "mul_mat_id_32",
            int8: Some([concat!("mat_vec_id_rounding_", $t), concat!("mat_tile_id_int8_", $t)]),
            ..plain!($t)
        }
    };
}
macro_rules! blocks_256 {
    ($t:literal) => {
        Kernels { module: "mul_mat_id_256", ..blocks_32!($t) }
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    Some(match dtype {
        DType::F32 => plain!("f32"),
        DType::F16 => plain!("f16"),
        DType::BF16 => plain!("bf16"),
        DType::Q8_0 => blocks_32!("q8_0"),
        DType::Q4_0 => blocks_32!("q4_0"),
        DType::Q4_1 => blocks_32!("q4_1"),
        DType::Q5_0 => blocks_32!("q5_0"),
        DType::Q5_1 => blocks_32!("q5_1"),
        DType::IQ4_NL => blocks_32!("iq4_nl"),
        DType::MXFP4 => blocks_32!("mxfp4"),
        DType::Q2_K => blocks_256!("q2_k"),
        DType::Q3_K => blocks_256!("q3_k"),
        DType::Q4_K => blocks_256!("q4_k"),
        DType::Q5_K => blocks_256!("q5_k"),
        DType::Q6_K => blocks_256!("q6_k"),
        DType::IQ4_XS => blocks_256!("iq4_xs"),
        _ => return None,
    })
}

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = MulMatIdParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let dtype = c.graph.tensor(src[0]).dtype;
    let kernels = kernels(dtype).ok_or_else(|| no_kernel(c, dtype))?;
    if p.k >= 1 << 29 || p.used.checked_mul(p.tokens).is_none() {
        return Err(Refusal(format!(
            "MUL_MAT_ID of rows of {} elements, {} indices of {} tokens: offsets and pairs have 32 bits",
            p.k, p.used, p.tokens
        )));
    }
    match choose(c.profile, &kernels, &p, c.precision) {
        Choice::Vec { kernel, groups, threads } => {
            let operands = tensors(&[src[0], src[1], src[2], c.node]);
            Ok(vec![launch(c, (kernels.module, kernel), operands, &p, groups, threads)?])
        }
        Choice::Tile { kernel, int8 } => tiles(c, &p, (kernels.module, kernel), int8),
    }
}

/// What computes a node.
#[derive(Debug, PartialEq)]
enum Choice {
    Vec { kernel: &'static str, groups: [u64; 3], threads: u32 },
    Tile { kernel: &'static str, int8: bool },
}

/// Tiles from as many pairs of an expert on as MUL_MAT takes columns for; mat-vec with as many rows of a wavefront as
/// leave enough wavefronts.
fn choose(profile: &Profile, kernels: &Kernels, p: &MulMatIdParams, precision: Precision) -> Choice {
    let tuning = Tuning::of(profile);
    let int8 = kernels.int8.filter(|_| precision == Precision::Fast && tuning.int8 == Int8::Dot4);
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    if pairs >= u64::from(tuning.tile_from) * u64::from(p.experts) {
        return Choice::Tile { kernel: int8.map_or(kernels.tile, |[_, tile]| tile), int8: int8.is_some() };
    }
    let enough = 4 * tuning.units(profile) * u64::from(tuning.vec_waves);
    let fills = |rows: u32| u64::from(p.m.div_ceil(rows)) * pairs >= enough;
    let i = ROWS.iter().rposition(|&rows| rows <= tuning.vec_rows && fills(rows)).unwrap_or(0);
    let (kernel, threads) = match int8 {
        Some([vec, _]) if i + 1 == ROWS.len() => (vec, INT8_VEC_THREADS),
        _ => (kernels.vec[i], VEC_THREADS),
    };
    let groups = [u64::from(p.m.div_ceil(threads / profile.wave * ROWS[i])), 1, pairs];
    Choice::Vec { kernel, groups, threads }
}

/// The pairs are sorted by expert, the activations rounded where the product is in 8 bits, then the product.
fn tiles(
    c: &Context<'_>,
    p: &MulMatIdParams,
    product: (&'static str, &'static str),
    int8: bool,
) -> Result<Vec<Launch>, Refusal> {
    let src = c.graph.tensor(c.node).src();
    let (pairs, buckets) = (u64::from(p.used) * u64::from(p.tokens), u64::from(p.experts) + 1);
    let entries = pairs / u64::from(TILE[1]) + buckets;
    // Rows of b for each token.
    let rows = if p.nb1[0] == 0 { 1 } else { p.used };
    let columns = if int8 { u64::from(rows) * u64::from(p.tokens) } else { 0 };
    let [sorted, list, q, scales] = scratch(
        c,
        [(pairs, 4), (entries, ENTRY), (columns, p.k.into()), (columns, u64::from(p.k / 32) * 4)],
    )?;
    let gather = vec![Operand::Tensor(src[2]), sorted, list];
    let gather = launch(c, ("mul_mat_id", "gather_pairs"), gather, p, [buckets, 1, 1], GATHER_THREADS)?;
    let mut launches = vec![Launch { written: 2, ..gather }];
    let mut operands = tensors(&[src[0], src[1]]);
    if int8 {
        let of_b = MulMatParams {
            n: rows,
            k: p.k,
            ne2: p.tokens,
            ne3: 1,
            nb1: [p.nb1[0], p.nb1[1], 0],
            ..MulMatParams::default()
        };
        let ne = [p.k, rows, p.tokens, 1];
        let rounding = ("mul_mat_int8", "quantize_int8");
        let round = by_rows(c, rounding, vec![operands[1], q, scales], &of_b, ne, 8)?;
        launches.extend(round.into_iter().map(|launch| Launch { written: 2, ..launch }));
        operands.splice(1.., [q, scales]);
    }
    operands.extend([sorted, list, Operand::Tensor(c.node)]);
    let groups = [u64::from(p.m.div_ceil(TILE[0])), entries, 1];
    launches.push(launch(c, product, operands, p, groups, TILE_THREADS)?);
    Ok(launches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use crate::code::kernels::{Embedded, KernelSet, Kernels as Code};
    use ggml_core::op::mul_mat::WEIGHT_TYPES;
    use ggml_core::{Graph, Source};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn kernels_suit_the_shape() {
        let chosen = |target: &str, dtype, m, experts, used, tokens, precision| {
            let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
            let profile = Profile { compute_units: 60, ..profile };
            let p = MulMatIdParams { m, k: 2048, experts, used, tokens, ..MulMatIdParams::default() };
            choose(&profile, &kernels(dtype).unwrap(), &p, precision)
        };
        let vec = |kernel, groups, threads| Choice::Vec { kernel, groups, threads };
        let (exact, fast) = (Precision::Exact, Precision::Fast);
        let q4_k = |tokens, precision| chosen("gfx906", DType::Q4_K, 768, 128, 8, tokens, precision);
        assert_eq!(q4_k(1, exact), vec("mat_vec_id_q4_k_r4", [96, 1, 8], 128));
        assert_eq!(q4_k(1, fast), vec("mat_vec_id_rounding_q4_k", [48, 1, 8], 256));
        assert_eq!(q4_k(143, exact), vec("mat_vec_id_q4_k_r4", [96, 1, 1144], 128));
        assert_eq!(q4_k(144, exact), Choice::Tile { kernel: "mat_tile_id_q4_k", int8: false });
        assert_eq!(q4_k(144, fast), Choice::Tile { kernel: "mat_tile_id_int8_q4_k", int8: true });
        let few = |precision| chosen("gfx906", DType::MXFP4, 100, 8, 2, 1, precision);
        assert_eq!(few(exact), vec("mat_vec_id_mxfp4_r1", [50, 1, 2], 128));
        assert_eq!(few(fast), few(exact), "too few rows to share the rounding");
        // Without dot4, and of plain types, everything is F32.
        let on_900 = chosen("gfx900", DType::Q4_K, 768, 128, 8, 512, fast);
        assert_eq!(on_900, Choice::Tile { kernel: "mat_tile_id_q4_k", int8: false });
        let plain = chosen("gfx906", DType::F16, 768, 4, 2, 18, fast);
        assert_eq!(plain, Choice::Tile { kernel: "mat_tile_id_f16", int8: false });
    }

    /// Products too large for the operation catalogue take kernels that it does not meet. They are there, with the
    /// arguments that they are given.
    #[test]
    fn large_products_fit_the_code_objects() {
        for name in Embedded.targets() {
            let target = Target::parse(name).unwrap();
            let profile = Profile::of(&target).unwrap();
            let code = Code::new(Arc::new(Embedded), &target);
            let mut met = BTreeSet::new();
            for &dtype in WEIGHT_TYPES {
                for (m, tokens) in [(64, 1), (16384, 1), (64, 64)] {
                    let mut graph = Graph::new();
                    let a = graph.leaf("a", dtype, [256, m, 8, 1], Source::Weight).unwrap();
                    let b = graph.leaf("b", DType::F32, [256, 1, tokens, 1], Source::Input).unwrap();
                    let ids = graph.leaf("ids", DType::I32, [2, tokens, 1, 1], Source::Input).unwrap();
                    let node = graph.mul_mat_id(a, b, ids).unwrap();
                    for precision in [Precision::Exact, Precision::Fast] {
                        let context = Context { graph: &graph, node, profile: &profile, precision };
                        let launches =
                            code.plan(&context).unwrap_or_else(|why| panic!("{name} {dtype}: {why:?}"));
                        met.extend(launches.iter().map(|(launch, _)| launch.kernel));
                    }
                }
            }
            let blocks = WEIGHT_TYPES.iter().filter(|t| t.is_quantized()).count();
            let int8 = if Tuning::of(&profile).int8 == Int8::Dot4 { 1 + 2 * blocks } else { 0 };
            assert_eq!(met.len(), 1 + 3 * WEIGHT_TYPES.len() + int8, "{name}: {met:?}");
        }
    }
}
