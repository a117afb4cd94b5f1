//! Groups of products: one launch of the mat-vec kernels, or two if the activations are prepared first. With
//! many columns only products of few rows are fused; the others use tiles.

use super::grid::{no_kernel, scratch, tensors};
use super::mat_vec::{self, MatVec};
use super::{Context, Launch, Operand, Refusal, mat_narrow, mul_mat_id};
use crate::tuning::Tuning;
use ggml_core::fuse::{Experts, GluPart, Products};
use ggml_core::kernel::{ExpertSumParams, ExpertsParams, MatVecParams, MulMatIdParams, ProductsParams};
use ggml_core::op::Activation;
use ggml_core::{DType, TensorId};

/// Plans the launches of products that share one input.
pub(super) fn plan(c: &Context<'_>, group: &Products) -> Result<Vec<Launch>, Refusal> {
    let products = ProductsParams::new(c.graph, group, |_| 0)?;
    let tuning = Tuning::of(c.profile);
    let first = group.products.first().ok_or_else(nothing)?;
    let dtype = c.graph.tensor(first.weight).dtype;
    let narrow = mat_narrow::takes(c.profile, c.precision, dtype, [products.k, products.n]);
    let tiles = products.n >= tuning.tile_from && !narrow;
    if tiles && !products.have_few_rows(tuning.units(c.profile)) {
        return Err(Refusal(format!("products of {} columns use tiles and are not fused", products.n)));
    }
    let weights = || group.products.iter().map(|product| product.weight);
    accepts(c, group.glu, products.k, weights(), dtype)?;
    let joined = group.glu.map(|glu| glu.node).or(group.residual.map(|sum| sum.node));
    let results = match joined {
        Some(result) => vec![result],
        None => group.products.iter().map(|product| product.result).collect(),
    };
    // The halves of one product are treated as two matrices.
    let halves = group.glu.is_some() && group.products.len() == 1;
    let bias = |i: usize| group.products.get(if halves { 0 } else { i }).and_then(|product| product.bias);
    let work = MatVec {
        dtype,
        products,
        more: MatVecParams { r3: 1, ..MatVecParams::default() },
        planes: 1,
        weights: weights().map(Operand::Tensor).collect(),
        input: Operand::Tensor(group.norm.map_or(group.input, |norm| norm.x)),
        norm: group.norm.map(|norm| Operand::Tensor(norm.weight)),
        biases: [0, 1, 2].map(|i| bias(i).map(Operand::Tensor)),
        residual: group.added().map(Operand::Tensor),
        experts: [None; 2],
        results: tensors(&results),
    };
    let launches = mat_narrow::plan(c, &work).or_else(|| mat_vec::plan(c, &work));
    launches.unwrap_or_else(|| Err(no_kernel(c, dtype)))
}

/// Plans the launch of products with the experts of each token.
pub(super) fn plan_experts(c: &Context<'_>, group: &Experts) -> Result<Vec<Launch>, Refusal> {
    let first = group.products.first().ok_or_else(nothing)?;
    let p = MulMatIdParams::new(c.graph, first.node, &[])?;
    let dtype = c.graph.tensor(first.weight).dtype;
    if let Some(tile) = mul_mat_id::chosen(c, &p, dtype)? {
        accepts(c, group.glu, p.k, [first.weight].into_iter(), dtype)?;
        return mul_mat_id::summed(c, &ExpertsParams::new(c.graph, group, |_| 0)?, tile, group);
    }
    let weights = || group.products.iter().map(|product| product.weight);
    accepts(c, group.glu, p.k, weights(), dtype)?;
    if weights().any(|id| c.graph.tensor(id).nb != c.graph.tensor(first.weight).nb) {
        return Err(Refusal("products of expert matrices with different strides are not fused".into()));
    }
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    let mut work = mul_mat_id::vec(&p, dtype, [first.weight, group.input, group.ids, first.result]);
    for (i, product) in group.products.iter().enumerate().take(work.biases.len()) {
        work.products.m[i] = p.m;
        work.biases[i] = product.bias.map(|(matrix, _)| Operand::Tensor(matrix));
        work.products.parts |= if product.bias.is_some() { ProductsParams::BIAS << i } else { 0 };
    }
    work.weights = weights().map(Operand::Tensor).collect();
    work.results = group.products.iter().map(|product| Operand::Tensor(product.result)).collect();
    if let Some(glu) = group.glu {
        let (alpha, limit) = glu.op.clamped.map_or((0.0, 0.0), |c| (c.alpha, c.limit));
        work.products = ProductsParams { op: glu.op.activation as u32, alpha, limit, ..work.products };
        work.products.parts |= ProductsParams::GLU;
        work.results = tensors(&[glu.node]);
    }
    if let Some(weighted) = group.weighted.as_ref().filter(|_| has_experts_apart(c, &p)) {
        let sum = ExpertSumParams::new(&ExpertsParams::new(c.graph, group, |_| 0)?)?;
        // Products of one column stage their activations in LDS, so they need no scratch of their own.
        let [products] = scratch(c, [(pairs, 4 * u64::from(p.m))])?;
        work.results = vec![products];
        let mut launches = mat_vec::plan(c, &work).unwrap_or_else(|| Err(no_kernel(c, dtype)))?;
        let weights = Operand::Tensor(weighted.weights);
        launches.push(mul_mat_id::sum_launch(c, group, &sum, [products, weights])?);
        return Ok(launches);
    }
    if let Some(weighted) = &group.weighted {
        let weights = c.graph.tensor(weighted.weights);
        let stride = |d: usize| u32::try_from(weights.nb[d] / size_of::<f32>());
        let strides = stride(1).ok().zip(stride(2).ok());
        let (of_index, of_token) =
            strides.ok_or_else(|| Refusal("strides of the expert weights exceed 32 bits".into()))?;
        work.more.nbf = [of_index, of_token];
        work.more.summed = p.used;
        work.planes = p.tokens.into();
        work.experts[1] = Some(Operand::Tensor(weighted.weights));
        work.results = weighted.nodes.last().map(|&node| Operand::Tensor(node)).into_iter().collect();
    }
    if let (Some(sum), Some(added)) = (group.residual, group.added()) {
        let row = u32::try_from(c.graph.tensor(added).nb[1] / size_of::<f32>());
        work.products.nbr = row.map_err(|_| Refusal("row stride of the residual exceeds 32 bits".into()))?;
        work.products.parts |= ProductsParams::RESIDUAL;
        work.residual = Some(Operand::Tensor(added));
        work.results = tensors(&[sum.node]);
    }
    mat_vec::plan(c, &work).unwrap_or_else(|| Err(no_kernel(c, dtype)))
}

/// Returns true if the experts of a token are computed beside each other, and their weighted sum by a launch of its
/// own. In one launch a work-group computes them one after the other, which takes as long as there are experts if
/// the rows do not fill the device: decode with eight layers of qwen3-30b-a3b (2048 rows, eight experts) on an H200
/// had 1,872 tokens a second so, and 2,172 with experts apart.
fn has_experts_apart(c: &Context<'_>, p: &MulMatIdParams) -> bool {
    let tuning = Tuning::of(c.profile);
    let waves = u64::from(p.m.div_ceil(4)) * u64::from(p.tokens);
    tuning.experts_apart && p.used > 1 && waves < 2 * mat_vec::enough(c.profile, &tuning)
}

fn nothing() -> Refusal {
    Refusal("a group without products".into())
}

/// Returns an error for anything the kernels do not support: matrices of several types, long rows, some
/// functions.
fn accepts(
    c: &Context<'_>,
    glu: Option<GluPart>,
    k: u32,
    mut weights: impl Iterator<Item = TensorId>,
    dtype: DType,
) -> Result<(), Refusal> {
    if k >= 1 << 29 {
        return Err(Refusal(format!(
            "products of rows of {k} elements: a lane's offset in a row has 32 bits"
        )));
    }
    let simple = |glu: &GluPart| {
        let sigmoid = [Activation::Silu, Activation::Gelu, Activation::GeluQuick];
        glu.op.clamped.is_some() || sigmoid.contains(&glu.op.activation)
    };
    if let Some(glu) = glu.filter(|glu| !simple(glu)) {
        return Err(Refusal(format!("{} is not fused with products", c.graph.tensor(glu.node).describe())));
    }
    if weights.any(|id| c.graph.tensor(id).dtype != dtype) {
        return Err(Refusal("products with weights of different types are not fused".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Profile, Target};
    use ggml_core::fuse::{ExpertProduct, Weighted};
    use ggml_core::precision::Precision;
    use ggml_core::{Graph, Source};

    /// Returns the kernels of eight experts of `m` rows and their weighted sum, for one token.
    fn kernels_of_experts(target: &str, m: usize) -> Vec<&'static str> {
        let mut graph = Graph::new();
        let mut leaf = |name, dtype, ne| graph.leaf(name, dtype, ne, Source::Input).unwrap();
        let weight = leaf("down", DType::Q4_K, [768, m, 128, 1]);
        let input = leaf("x", DType::F32, [768, 8, 1, 1]);
        let ids = leaf("ids", DType::I32, [8, 1, 1, 1]);
        let weights = leaf("weights", DType::F32, [1, 8, 1, 1]);
        let node = graph.mul_mat_id(weight, input, ids).unwrap();
        let mul = graph.mul(node, weights).unwrap();
        let row = 4 * m;
        let mut part =
            |at: usize| graph.view(mul, [m, 1, 1, 1], [4, 8 * row, 8 * row, 8 * row], at * row).unwrap();
        let parts: Vec<TensorId> = (0..8).map(&mut part).collect();
        let sum = parts[1..].iter().fold(parts[0], |sum, &next| graph.add(sum, next).unwrap());
        let product = ExpertProduct { weight, node, bias: None, result: node };
        let weighted = Some(Weighted { weights, nodes: vec![mul, sum] });
        let group = Experts { input, ids, products: vec![product], glu: None, weighted, residual: None };
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        let c = Context { graph: &graph, node: sum, profile: &profile, precision: Precision::Fast };
        plan_experts(&c, &group).unwrap().iter().map(|launch| launch.kernel).collect()
    }

    #[test]
    fn experts_are_apart_where_their_rows_do_not_fill_the_device() {
        let [product, sum] = kernels_of_experts("sm_90", 2048)[..] else { panic!("one launch") };
        assert!(product.starts_with("mat_vec_") && sum == "expert_sum_plain", "{product} {sum}");
        assert_eq!(kernels_of_experts("sm_90", 7168).len(), 1);
        assert_eq!(kernels_of_experts("gfx906", 2048).len(), 1, "not measured there");
    }
}
