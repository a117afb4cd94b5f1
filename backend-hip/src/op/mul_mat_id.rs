//! MUL_MAT_ID: a matrix-vector product for each pair of an index and a token; tiles of pairs if each expert
//! has many. If rounding is allowed and the device multiplies bytes, activations are in 8 bits; tiles of some
//! types use activations in F16.

use super::grid::{ROW_THREADS, launch, no_kernel, scratch, tensors};
use super::mat_vec::{self, MatVec};
use super::mul_mat::{
    half_column, has_blocks_k, int8_column, offsets_fit, round_half, round_int8, round_int8_k,
};
use super::types::of_type;
use super::{Context, Launch, Operand, Refusal};
use crate::arch::Profile;
use crate::tuning::{Half, Int8, Tuning};
use ggml_core::fuse::Experts;
use ggml_core::kernel::{ExpertSumParams, ExpertsParams, MatVecParams, MulMatIdParams, ProductsParams};
use ggml_core::precision::Precision;
use ggml_core::{DType, TensorId};

/// Threads of a work-group for tiles and for sorting.
const TILE_THREADS: u32 = 128;
const GATHER_THREADS: u32 = 256;
/// Rows and pairs of a tile.
const TILE: [u32; 2] = [64, 32];
/// Maximum pairs of an index and a token: loops over them count with 32 bits, some steps beyond the end.
const MOST_PAIRS: u64 = 1 << 31;
/// Bytes of an entry in the list of tiles.
const ENTRY: u64 = 12;

/// Tiles of a type.
struct Kernels {
    /// Stem of their source.
    module: &'static str,
    tile: &'static str,
    /// Kernel for activations in 8 bits. Types without blocks and types of few bits have none.
    int8: Option<&'static str>,
    /// Kernel for activations in F16. Types whose values exceed F16 and types of few bits have none.
    half: Option<&'static str>,
    /// The same on targets without dot products, which multiply a block's integers.
    packed: Option<&'static str>,
}

/// Format of a tile's activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    F32,
    Int8,
    Half,
}

/// Builds the kernels of a type from its name in the kernels' names.
macro_rules! kernels {
    ($t:literal, $module:literal, $int8:expr, $half:expr, $packed:expr) => {
        Kernels {
            module: $module,
            tile: concat!("mat_tile_id_", $t),
            int8: $int8,
            half: $half,
            packed: $packed,
        }
    };
}

/// Builds the kernels of a type by its kind.
macro_rules! entry {
    (plain $t:literal $all:literal) => {
        kernels!($t, "mul_mat_id", None, None, None)
    };
    (f16 $t:literal $all:literal) => {
        kernels!($t, "mul_mat_id", None, Some(concat!("mat_tile_id_half_", $t)), None)
    };
    (wide_32 $t:literal $all:literal) => {
        kernels!(
            $t,
            "mul_mat_id_32",
            Some(concat!("mat_tile_id_int8_", $t)),
            None,
            Some(concat!("mat_tile_id_packed_", $t))
        )
    };
    (low $t:literal $all:literal) => {
        kernels!($t, "mul_mat_id_low", None, None, None)
    };
    (blocks_32 $t:literal $all:literal) => {
        entry!(in "mul_mat_id_32" $t)
    };
    (blocks_256 $t:literal $all:literal) => {
        entry!(in "mul_mat_id_256" $t)
    };
    (in $module:literal $t:literal) => {
        kernels!(
            $t,
            $module,
            Some(concat!("mat_tile_id_int8_", $t)),
            Some(concat!("mat_tile_id_half_", $t)),
            Some(concat!("mat_tile_id_packed_", $t))
        )
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    of_type!(dtype, entry)
}

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = MulMatIdParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let dtype = c.graph.tensor(src[0]).dtype;
    if p.k >= 1 << 29 || u64::from(p.used) * u64::from(p.tokens) > MOST_PAIRS {
        return Err(Refusal(format!(
            "MUL_MAT_ID of rows of {} elements, {} indices of {} tokens: offsets and pairs have 32 bits",
            p.k, p.used, p.tokens
        )));
    }
    match chosen(c, &p, dtype)? {
        Some(tile) => Ok(tiles(c, &p, [src[0], src[1], src[2]], tile, Some(c.node))?.0),
        None => {
            let work = vec(&p, dtype, [src[0], src[1], src[2], c.node]);
            mat_vec::plan(c, &work).unwrap_or_else(|| Err(no_kernel(c, dtype)))
        }
    }
}

/// The tiles of a product: source and name of the kernel, format of the activations.
pub(super) type Tile = (&'static str, &'static str, Form);

/// Returns the tiles of a product; `None` for mat-vec.
pub(super) fn chosen(c: &Context<'_>, p: &MulMatIdParams, dtype: DType) -> Result<Option<Tile>, Refusal> {
    let kernels = kernels(dtype).ok_or_else(|| no_kernel(c, dtype))?;
    let tile = choose(c.profile, &kernels, p, (dtype, c.precision));
    Ok(tile.map(|(kernel, form)| (kernels.module, kernel, form)))
}

/// Plans the launches of a product in tiles and of the weighted sum over each token's experts. The results of
/// the products are in scratch memory.
pub(super) fn summed(
    c: &Context<'_>,
    p: &ExpertsParams,
    tile: Tile,
    group: &Experts,
) -> Result<Vec<Launch>, Refusal> {
    let (product, weighted) = group.plain_sum().ok_or_else(|| {
        Refusal("products of an expert with many tokens are fused with their sum only, without biases".into())
    })?;
    let sum = ExpertSumParams::new(p)?;
    let (mut launches, products) =
        tiles(c, &sum.products(p), [product.weight, group.input, group.ids], tile, None)?;
    launches.push(sum_launch(c, group, &sum, [products, Operand::Tensor(weighted.weights)])?);
    Ok(launches)
}

/// Returns the launch of the weighted sum over each token's experts, and of the residual if the group has one.
/// `operands`: results of the products, weights.
pub(super) fn sum_launch(
    c: &Context<'_>,
    group: &Experts,
    sum: &ExpertSumParams,
    operands: [Operand; 2],
) -> Result<Launch, Refusal> {
    let mut operands = operands.to_vec();
    operands.extend(group.added().map(Operand::Tensor));
    operands.extend(tensors(&group.results()));
    let kernel = if group.added().is_some() { "expert_sum_residual" } else { "expert_sum_plain" };
    let groups = [u64::from(sum.m.div_ceil(ROW_THREADS)), sum.tokens.into(), 1];
    launch(c, ("mul_mat_id", kernel), operands, sum, groups, ROW_THREADS)
}

/// Describes the products of few tokens for the mat-vec kernels: weights, input, indices and result.
pub(super) fn vec(p: &MulMatIdParams, dtype: DType, [weights, input, ids, result]: [TensorId; 4]) -> MatVec {
    MatVec {
        dtype,
        products: ProductsParams {
            k: p.k,
            n: 1,
            m: [p.m, 0, 0],
            ne2: p.used,
            r2: 1,
            nb0: p.nb0,
            nb1: [0, p.nb1[0]],
            ..ProductsParams::default()
        },
        more: MatVecParams {
            r3: 1,
            nb13: p.nb1[1],
            experts: p.experts,
            nb2: p.nb2,
            ..MatVecParams::default()
        },
        planes: u64::from(p.used) * u64::from(p.tokens),
        weights: tensors(&[weights]),
        input: Operand::Tensor(input),
        norm: None,
        biases: [None; 3],
        residual: None,
        experts: [Some(Operand::Tensor(ids)), None],
        results: tensors(&[result]),
    }
}

/// Pairs of an expert from which tiles in F16 are used: they read its weights once. Prompts of 64 tokens, four
/// for each of 128 experts, take 1.9 times as long with mat-vec on an H200.
const HALF_FROM: u32 = 3;

/// Chooses tiles and their activation format if an expert has as many pairs as MUL_MAT needs columns for
/// tiles, or enough for tiles in F16; else `None`, mat-vec.
fn choose(
    profile: &Profile,
    kernels: &Kernels,
    p: &MulMatIdParams,
    (dtype, precision): (DType, Precision),
) -> Option<(&'static str, Form)> {
    let (tuning, fast) = (Tuning::of(profile), precision == Precision::Fast);
    let half = if tuning.half == Half::Packed { kernels.packed } else { kernels.half };
    let half = half.filter(|_| fast && tuning.half.is_used_for(dtype)).map(|tile| (tile, Form::Half));
    let int8 = kernels.int8.filter(|_| fast && tuning.int8 == Int8::Dot4).map(|tile| (tile, Form::Int8));
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    let int8 = int8.filter(|_| offsets_fit(dtype, p.nb0[0], p.k, pairs));
    let tile = half.or(int8).unwrap_or((kernels.tile, Form::F32));
    let by_units = tile.1 == Form::Half && tuning.half != Half::Packed;
    let from = if by_units { HALF_FROM.min(tuning.tile_from) } else { tuning.tile_from };
    (pairs >= u64::from(from) * u64::from(p.experts)).then_some(tile)
}

/// Plans the launches: sort the pairs by expert, round the activations if the product needs it, then compute
/// the product. Returns the operand that receives the results: `d`, or else scratch memory.
fn tiles(
    c: &Context<'_>,
    p: &MulMatIdParams,
    [weights, input, ids]: [TensorId; 3],
    (module, kernel, form): Tile,
    d: Option<TensorId>,
) -> Result<(Vec<Launch>, Operand), Refusal> {
    let dtype = c.graph.tensor(weights).dtype;
    let (pairs, buckets) = (u64::from(p.used) * u64::from(p.tokens), u64::from(p.experts) + 1);
    let entries = pairs / u64::from(TILE[1]) + buckets;
    // Rows of b per token.
    let rows = if p.nb1[0] == 0 { 1 } else { p.used };
    if pairs > MOST_PAIRS {
        return Err(Refusal(format!("{} indices of {} tokens are too many to be listed", p.used, p.tokens)));
    }
    let columns = u64::from(rows) * u64::from(p.tokens);
    let rounded = match form {
        Form::F32 => [(0, 0); 2],
        Form::Int8 => int8_column(c.profile, dtype, p.k).map(|bytes| (columns, bytes)),
        Form::Half => [(columns, half_column(p.k)), (columns, 4)],
    };
    let results = if d.is_some() { (0, 0) } else { (pairs, 4 * u64::from(p.m)) };
    let [sorted, list, rounded, scales, results] =
        scratch(c, [(pairs, 4), (entries, ENTRY), rounded[0], rounded[1], results])?;
    let d = d.map_or(results, Operand::Tensor);
    let gather = vec![Operand::Tensor(ids), sorted, list];
    let gather = launch(c, ("mul_mat_id", "gather_pairs"), gather, p, [buckets, 1, 1], GATHER_THREADS)?;
    let mut launches = vec![Launch { written: 2, ..gather }];
    let mut operands = tensors(&[weights, input]);
    if form != Form::F32 {
        let of_b = p.of_columns();
        launches.push(match form {
            Form::Half => round_half(c, &of_b, operands[1], [rounded, scales])?,
            _ if has_blocks_k(c.profile, dtype) => round_int8_k(c, &of_b, operands[1], [rounded, scales])?,
            _ => round_int8(c, &of_b, operands[1], [rounded, scales])?,
        });
        operands.splice(1.., [rounded, scales]);
    }
    operands.extend([sorted, list, d]);
    let groups = [u64::from(p.m.div_ceil(TILE[0])), entries, 1];
    launches.push(launch(c, (module, kernel), operands, p, groups, TILE_THREADS)?);
    Ok((launches, d))
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
            choose(&profile, &kernels(dtype).unwrap(), &p, (dtype, precision))
        };
        let (exact, fast) = (Precision::Exact, Precision::Fast);
        let q4_k = |tokens, precision| chosen("gfx906", DType::Q4_K, 768, 128, 8, tokens, precision);
        assert_eq!((q4_k(1, exact), q4_k(143, fast)), (None, None));
        assert_eq!(q4_k(144, exact), Some(("mat_tile_id_q4_k", Form::F32)));
        assert_eq!(q4_k(144, fast), Some(("mat_tile_id_int8_q4_k", Form::Int8)));
        // Without dot4 products are of pairs of F16, or of F32.
        let on_900 = |tokens| chosen("gfx900", DType::Q4_K, 768, 128, 8, tokens, fast);
        assert_eq!((on_900(143), on_900(144)), (None, Some(("mat_tile_id_packed_q4_k", Form::Half))));
        let on_803 = chosen("gfx803", DType::Q4_K, 768, 128, 8, 512, fast);
        assert_eq!(on_803, Some(("mat_tile_id_q4_k", Form::F32)));
        let plain = |target, dtype| chosen(target, dtype, 768, 4, 2, 18, fast);
        assert_eq!(plain("gfx906", DType::F16), Some(("mat_tile_id_half_f16", Form::Half)));
        assert_eq!(plain("gfx906", DType::BF16), Some(("mat_tile_id_bf16", Form::F32)));
        // Matrix units are used for all types whose values fit F16.
        assert_eq!(plain("gfx1100", DType::Q4_K), Some(("mat_tile_id_half_q4_k", Form::Half)));
        assert_eq!(plain("gfx1100", DType::MXFP4), Some(("mat_tile_id_int8_mxfp4", Form::Int8)));
        assert_eq!(plain("sm_70", DType::F16), Some(("mat_tile_id_f16", Form::F32)));
    }

    /// Products that are too large for the operation catalogue use kernels that it does not cover. These
    /// exist and declare the arguments that launches pass.
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
            // Sorting, mat-vec and F32 tiles; mat-vec's rounding; tiles of bytes or F16, each with its
            // rounding kernel.
            let dot4 = Tuning::of(&profile).int8 == Int8::Dot4;
            let takes_half = |t: &&DType| {
                let (half, kernels) = (Tuning::of(&profile).half, kernels(**t).unwrap());
                let kernel = if half == Half::Packed { kernels.packed } else { kernels.half };
                half.is_used_for(**t) && kernel.is_some()
            };
            let (half, rest): (Vec<_>, Vec<_>) = WEIGHT_TYPES.iter().partition(takes_half);
            let blocks = |types: &[&DType]| types.iter().filter(|t| dot4 && t.is_quantized()).count();
            let with_rounding = |tiles: usize| tiles + tiles.min(1);
            let in_bytes = rest.iter().filter(|&&&t| dot4 && kernels(t).unwrap().int8.is_some()).count();
            let all = 1 + 2 * WEIGHT_TYPES.len() + blocks(&half) + blocks(&rest);
            // Q4_K and Q5_K have one of their own.
            let by_block = usize::from(dot4 && rest.contains(&&DType::Q4_K));
            let all = all + with_rounding(in_bytes) + by_block + with_rounding(half.len());
            assert_eq!(met.len(), all, "{name}: {met:?}");
        }
    }
}
