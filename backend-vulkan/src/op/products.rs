//! Products with few columns: matrix-vector products of one matrix, or of several fused with the operations
//! before and after them.

use super::grid::cover;
use super::vec_shape::{MATRICES, Shape, VecSpec};
use super::weights::{WEIGHTS, Weights, aligned, even};
use super::{Context, Dispatch, Operand, Refusal, mat_narrow, staged};
use crate::device::profile::Profile;
use crate::device::tuning::MatVec;
use crate::pipeline::PipelineSpec;
use crate::route::Route;
use ggml_core::fuse::{GluPart, Product, Products};
use ggml_core::kernel::ProductsParams;
use ggml_core::op::Activation;
use ggml_core::precision::Precision;
use ggml_core::{DType, TensorId};

/// Column counts for which the matrix-vector kernel is compiled.
const COLUMNS: [u32; 4] = [1, 2, 4, 8];

/// Returns true if products with quantised weights round their activations to 8 bits.
pub(super) fn rounds(profile: &Profile, precision: Precision, dtype: DType) -> bool {
    let in_floats = profile.tuning.q8_0_floats && dtype == DType::Q8_0;
    precision == Precision::Fast && dtype.is_quantized() && !in_floats && profile.uses(Route::DotVectors)
}

/// Reduces the rows of a work-group, then gives each row more invocations, until there are enough
/// work-groups. Three quarters of the work-groups are enough before rows are reduced: rows that share
/// activations save more than the last work-groups.
fn fill(profile: &Profile, shape: &Shape<'_>, most: MatVec) -> MatVec {
    let (enough, mut t) = (u64::from(profile.enough_groups()), most);
    let few =
        |t: &MatVec, enough: u64| shape.rows * u64::from(shape.pair) / u64::from(t.rows * t.teams) < enough;
    while few(&t, enough * 3 / 4) && t.rows > shape.pair {
        t.rows /= 2;
    }
    while few(&t, enough) && t.teams > 1 && 2 * (t.workgroup / t.teams) <= shape.k / shape.weights.piece {
        t.teams /= 2;
    }
    t
}

/// Returns the kernel for a shape.
pub(super) fn vec_spec(profile: &Profile, shape: &Shape<'_>) -> VecSpec {
    let index = COLUMNS.iter().position(|&n| n >= shape.columns).unwrap_or(COLUMNS.len() - 1);
    let columns = COLUMNS[index];
    if let Some(spec) = staged::spec(profile, shape) {
        return spec;
    }
    let (variant, table) = match profile.tuning.mat_vec_int8 {
        Some(int8) if shape.int8 => ("int8", int8),
        _ => (profile.reduction(), profile.tuning.mat_vec),
    };
    let mut most = table[index];
    most.workgroup = profile.workgroup(most.workgroup);
    most.rows = if shape.weights.piece == 32 { most.rows_of_32 } else { most.rows };
    // A team is one subgroup or more for any subgroup size that the driver may choose.
    let (smallest, largest, required) = profile.vector_lanes();
    if variant != "lds" {
        most.teams = most.teams.min(most.workgroup / largest).max(1);
    }
    // If the subgroup size is known, short rows use a part of a subgroup, so that fewer invocations idle.
    let lanes = (shape.k / shape.weights.piece).next_power_of_two().max(16);
    if variant == "int8" && smallest == largest && lanes < largest {
        most.teams = most.workgroup / lanes;
    }
    let t = fill(profile, shape, most);
    let subgroups = t.workgroup.div_ceil(smallest);
    let constants = vec![
        t.workgroup,
        t.rows,
        columns,
        shape.aligned as u32,
        shape.even as u32,
        t.teams,
        if variant == "lds" { 1 } else { subgroups },
        if variant == "int8" { profile.tuning.vec_chunk / columns } else { 0 },
        if variant == "int8" { profile.tuning.vec_quads } else { 0 },
    ];
    VecSpec {
        variant: shape.weights.vec_variant(variant),
        constants,
        rows: t.rows * t.teams / shape.pair,
        columns,
        passes: 1,
        subgroup: required.filter(|_| variant != "lds"),
    }
}

/// Returns the group that consists of a single MUL_MAT.
pub(super) fn single(c: &Context<'_>) -> Products {
    let product = Product { weight: c.src(0), node: c.node, bias: None, result: c.node };
    Products { norm: None, input: c.src(1), products: vec![product], glu: None, residual: None }
}

/// Returns the dispatch of a group.
pub(super) fn plan(c: &Context<'_>, group: &Products) -> Result<Vec<Dispatch>, Refusal> {
    let p = ProductsParams::new(c.graph, group, |id| c.windows.remainder(c.graph, id))?;
    let Some(first) = group.products.first().filter(|_| group.products.len() <= MATRICES) else {
        return Err(Refusal(format!("{} products are not computed together", group.products.len())));
    };
    let dtype = c.graph.tensor(first.weight).dtype;
    let many = p.n > c.profile.tuning.vec_columns && !mat_narrow::takes(c.profile, c.precision, dtype, p.n);
    if many && !p.have_few_rows(c.profile.units()) {
        return Err(Refusal(format!("products of {} columns use tiles and are not fused", p.n)));
    }
    accepts(c, group.products.iter().map(|product| product.weight), group.glu)?;
    let operands: Vec<Operand> = operands(group).into_iter().map(Operand::Tensor).collect();
    fit_windows(c, &operands)?;
    product(c, dtype, operands, &p)
}

/// Returns an error for products that the kernels do not compute together.
pub(super) fn accepts(
    c: &Context<'_>,
    weights: impl IntoIterator<Item = TensorId>,
    glu: Option<GluPart>,
) -> Result<(), Refusal> {
    let mut types = weights.into_iter().map(|id| c.graph.tensor(id).dtype);
    let first = types.next();
    if types.any(|dtype| Some(dtype) != first) {
        return Err(Refusal("products with weights of different types are not computed together".into()));
    }
    // Other functions would add code to every kernel.
    let by_sigmoid = [Activation::Silu, Activation::Gelu, Activation::GeluQuick];
    if glu.is_some_and(|glu| glu.op.clamped.is_none() && !by_sigmoid.contains(&glu.op.activation)) {
        return Err(Refusal("products are computed together with SWIGLU, GEGLU and GEGLU_QUICK only".into()));
    }
    Ok(())
}

/// Returns an error for operands that are larger than a window: only operands of single products are split.
pub(super) fn fit_windows(c: &Context<'_>, operands: &[Operand]) -> Result<(), Refusal> {
    let mut parts = operands.iter().filter_map(|operand| operand.range(c.graph));
    match parts.find(|&(_, _, bytes)| bytes > c.window_limit()) {
        Some((id, ..)) => {
            Err(Refusal(format!("{} exceeds the device's maximum window", c.graph.tensor(id).describe())))
        }
        None => Ok(()),
    }
}

/// Returns the tensors of a group in the order of the kernel's bindings. In place of a missing tensor, one
/// that is read or written anyway is bound.
fn operands(group: &Products) -> Vec<TensorId> {
    let x = group.norm.map_or(group.input, |norm| norm.x);
    let result = |product: &Product| match (group.glu, group.residual) {
        (Some(glu), _) => glu.node,
        (None, Some(sum)) => sum.node,
        (None, None) => product.result,
    };
    // One entry for each product; missing ones repeat the first.
    let each = |of: &dyn Fn(&Product) -> TensorId| {
        let all: Vec<TensorId> = group.products.iter().map(of).collect();
        (0..MATRICES).filter_map(move |i| all.get(i).or(all.first()).copied()).collect::<Vec<_>>()
    };
    let halves = group.glu.is_some() && group.products.len() == 1;
    let bias = |product: &Product| product.bias.unwrap_or(x);
    let mut biases = each(&bias);
    if !halves {
        biases.iter_mut().skip(group.products.len()).for_each(|id| *id = x);
    }
    let before = [vec![x, group.norm.map_or(x, |norm| norm.weight)], biases].concat();
    let after = [vec![group.added().unwrap_or(x)], each(&result)].concat();
    [each(&|product| product.weight), before, after].concat()
}

/// Returns the operands of a single product without fused operations.
pub(super) fn single_operands(a: Operand, b: Operand, d: Operand) -> Vec<Operand> {
    [a, a, a, b, b, b, b, b, b, d, d, d].to_vec()
}

/// Returns the dispatches of products with the given operands.
pub(super) fn product(
    c: &Context<'_>,
    dtype: DType,
    operands: Vec<Operand>,
    p: &ProductsParams,
) -> Result<Vec<Dispatch>, Refusal> {
    match mat_narrow::plan(c, dtype, &operands, p) {
        Some(dispatches) => dispatches,
        None => Ok(vec![vectors(c, dtype, operands, p)?]),
    }
}

/// Returns the dispatch of matrix-vector products with the given operands.
fn vectors(
    c: &Context<'_>,
    dtype: DType,
    mut operands: Vec<Operand>,
    p: &ProductsParams,
) -> Result<Dispatch, Refusal> {
    let weights =
        Weights::of(dtype).ok_or_else(|| Refusal(format!("MUL_MAT has no Vulkan kernel for {dtype}")))?;
    let glu = p.parts & ProductsParams::GLU != 0;
    let used = p.m.iter().filter(|&&m| m > 0).count() as u32;
    let shape = Shape {
        weights,
        columns: p.n,
        rows: u64::from(p.rows[1] - p.rows[0]),
        k: p.k,
        pair: 1 + u32::from(glu),
        aligned: p.off0.iter().all(|&off0| aligned(dtype, (off0, &p.nb0), (p.off1, &p.nb1)))
            && p.offw.is_multiple_of(4),
        even: even(dtype, &p.off0, &p.nb0),
        int8: rounds(c.profile, c.precision, dtype),
        staged: p.n == 1 && p.ne2 == 1,
    };
    let spec = vec_spec(c.profile, &shape);
    let each = spec.rows * spec.passes;
    let groups: u64 = match (used, glu) {
        (1, _) | (_, true) => shape.rows.div_ceil(each.into()),
        _ => p.m.iter().map(|&m| u64::from(m.div_ceil(each))).sum(),
    };
    // Above 65535 groups of rows the shader continues in the second dimension of the grid.
    let x = groups.min(65535);
    let z = u64::from(p.ne2) * u64::from(p.n.div_ceil(spec.columns));
    let grid = cover(c.profile, [x, groups.div_ceil(x.max(1)), z]);
    if grid.once != 1 {
        return Err(Refusal(format!(
            "MUL_MAT of {} rows, {} columns, {} matrices needs too many work-groups",
            shape.rows, p.n, p.ne2
        )));
    }
    operands.extend(weights.table());
    Ok(Dispatch {
        pipeline: spec.pipeline("mul_mat_vec", spec.of_products(p.parts, used)),
        operands,
        written: MATRICES,
        params: bytemuck::bytes_of(p).to_vec(),
        grid: grid.groups,
    })
}

/// Returns the shapes to audit: for each type of weights one for each column count, and for one column also
/// unaligned strides and a single row.
pub(super) fn shapes(profile: &Profile) -> Vec<Shape<'static>> {
    let mut all = Vec::new();
    for weights in &WEIGHTS {
        let many = Shape {
            weights,
            columns: 1,
            rows: 1 << 40,
            k: 4096,
            pair: 1,
            aligned: true,
            even: true,
            int8: false,
            staged: false,
        };
        let most = COLUMNS.into_iter().filter(|&columns| columns <= profile.tuning.vec_columns);
        let mut forms: Vec<Shape<'static>> = most.map(|columns| Shape { columns, ..many }).collect();
        forms.extend([Shape { aligned: false, even: false, ..many }, Shape { rows: 1, ..many }]);
        if rounds(profile, Precision::Fast, weights.dtype) {
            forms.extend(forms.clone().into_iter().map(|shape| Shape { int8: true, ..shape }));
            forms.push(Shape { int8: true, staged: true, ..many });
        }
        all.append(&mut forms);
    }
    all
}

/// Returns the pipelines of this family: one matrix without fused operations, and three with all of them.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let everything = ProductsParams::NORM | (7 * ProductsParams::BIAS);
    let glu = ProductsParams::NORM | ProductsParams::GLU;
    let of = |shape: &Shape<'_>, parts: u32, used: u32| {
        let spec = vec_spec(profile, shape);
        spec.pipeline("mul_mat_vec", spec.of_products(parts, used))
    };
    let mut all = Vec::new();
    for shape in shapes(profile) {
        all.push(of(&shape, 0, 1));
        if shape.is_usual() {
            all.push(of(&shape, ProductsParams::RESIDUAL, 1));
            all.push(of(&shape, everything, 3));
            all.push(of(&Shape { pair: 2, ..shape }, glu, 2));
        }
    }
    all
}
