//! Cases of several nodes that a backend may compute together. Each names the group that its node should
//! belong to.

use crate::catalogue::{Case, CaseBuilder, Fill};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Activation, FlashAttnExt, Glu, Rope, RopeMode};
use crate::tensor::TensorId;

mod best;
mod choices;
mod recurrent;

const EPS: f32 = 1e-5;
const UNIT: Fill = Fill::Uniform(-1.0, 1.0);

/// All cases.
pub(crate) fn cases() -> Vec<Case> {
    let all = [
        products(),
        heads(),
        norms(),
        choices::cases(),
        experts(),
        chains(),
        recurrent::cases(),
        best::cases(),
    ];
    all.into_iter().flatten().collect()
}

/// Graph under construction.
struct Parts<'a> {
    g: &'a mut Graph,
    c: &'a mut CaseBuilder,
}

impl Parts<'_> {
    fn leaf(&mut self, name: &str, dtype: DType, ne: &[usize], fill: Fill) -> Result<TensorId> {
        let mut extents = [1; 4];
        extents[..ne.len()].copy_from_slice(ne);
        self.c.leaf(self.g, name, dtype, extents, fill)
    }

    fn plain(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        self.leaf(name, DType::F32, ne, UNIT)
    }

    fn norm(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let n = self.g.tensor(x).ne[0];
        let weight = self.plain(name, &[n])?;
        let normed = self.g.rms_norm(x, EPS)?;
        self.g.mul(normed, weight)
    }

    fn product(
        &mut self,
        x: TensorId,
        name: &str,
        dtype: DType,
        rows: usize,
        bias: bool,
    ) -> Result<TensorId> {
        let k = self.g.tensor(x).ne[0];
        let weight = self.leaf(name, dtype, &[k, rows], UNIT)?;
        let product = self.g.mul_mat(weight, x)?;
        if !bias {
            return Ok(product);
        }
        let bias = self.plain(&format!("{name}.bias"), &[rows])?;
        self.g.add(product, bias)
    }
}

fn case(group: &'static str, what: String, build: impl FnOnce(&mut Parts<'_>) -> Result<TensorId>) -> Case {
    let name = format!("{}({what})", group.to_uppercase());
    let mut case = Case::new(name, |g, c| build(&mut Parts { g, c }));
    case.group = Some(group);
    case
}

/// Nodes around a product.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// A norm, three matrices of which the second and third are smaller, biases. The number is the index of
    /// the compared product.
    Three(usize),
    /// A norm, gate and up.
    Gated,
    /// Both halves of one matrix.
    Halves,
    /// A residual sum.
    Residual,
    /// A norm and a bias.
    One,
}

fn products() -> Vec<Case> {
    use Form::*;
    let mut cases = Vec::new();
    let mut add = |dtype: DType, form: Form, k: usize, n: usize| {
        let words = match form {
            Three(which) => format!("norm, three with biases, number {which}"),
            Gated => "norm, gate and up".into(),
            Halves => "halves of one".into(),
            Residual => "residual".into(),
            One => "norm, bias".into(),
        };
        cases.push(case("products", format!("{dtype}, {words}, k={k}, n={n}"), |p| {
            let x = p.plain("x", &[k, n])?;
            let input = if matches!(form, Three(_) | Gated | One) { p.norm(x, "norm")? } else { x };
            match form {
                Three(which) => {
                    let all = [("q", 134), ("k", 67), ("v", 33)];
                    let all = all.map(|(name, m)| p.product(input, name, dtype, m, true));
                    all.into_iter().nth(which).unwrap_or(Ok(input))
                }
                Gated => {
                    let gate = p.product(input, "gate", dtype, 77, false)?;
                    let up = p.product(input, "up", dtype, 77, false)?;
                    p.g.glu(Glu::new(Activation::Silu), gate, Some(up))
                }
                Halves => {
                    let both = p.product(input, "both", dtype, 90, false)?;
                    p.g.glu(Glu::new(Activation::Gelu), both, None)
                }
                Residual => {
                    let product = p.product(input, "weight", dtype, 66, false)?;
                    let residual = p.plain("residual", &[66, n])?;
                    p.g.add(residual, product)
                }
                One => p.product(input, "weight", dtype, 35, true),
            }
        }));
    };
    let short = |dtype: DType| if dtype.block() == 256 { 768 } else { 352 };
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_K] {
        for n in [1, 5] {
            for form in [Three(0), Gated, Halves, Residual] {
                add(dtype, form, short(dtype), n);
            }
        }
        add(dtype, Three(1), short(dtype), 1);
        add(dtype, Three(2), short(dtype), 1);
    }
    for dtype in [DType::F32, DType::BF16, DType::Q4_0, DType::Q5_0, DType::Q6_K, DType::MXFP4] {
        add(dtype, One, short(dtype), 1);
    }
    // Long rows, for which some devices have another kernel, and not a power of two.
    for dtype in [DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        for form in [Three(2), Gated, Residual] {
            add(dtype, form, 2304, 1);
            add(dtype, form, 2304, 3);
        }
    }
    // Few rows, which are not divided into tiles at any number of columns.
    for (dtype, n) in [(DType::F32, 20), (DType::Q8_0, 37), (DType::Q4_K, 20)] {
        cases.push(case("products", format!("{dtype}, two of few rows, k=1024, n={n}"), |p| {
            let x = p.plain("x", &[1024, n])?;
            p.product(x, "first", dtype, 16, false)?;
            p.product(x, "second", dtype, 9, false)
        }));
    }
    cases
}

fn heads() -> Vec<Case> {
    let mut cases = Vec::new();
    // Index of the compared operand (q, k or v); elements of a head and how many of them are rotated; tokens;
    // type of the cache; true for a norm.
    let shapes = [
        (0, 64, 64, 1, DType::F16, false),
        (1, 64, 64, 1, DType::F16, false),
        (2, 64, 64, 1, DType::F16, false),
        (0, 128, 128, 3, DType::F16, true),
        (1, 128, 128, 3, DType::F16, true),
        (1, 96, 48, 5, DType::F32, true),
        (1, 128, 128, 2, DType::Q8_0, true),
        (2, 128, 128, 2, DType::Q8_0, true),
        (1, 64, 64, 33, DType::Q4_0, false),
        (2, 256, 256, 1, DType::F16, true),
        (1, 256, 128, 3, DType::F16, true),
        (2, 256, 64, 3, DType::Q4_0, false),
        (1, 128, 64, 33, DType::Q8_0, false),
        (0, 80, 32, 3, DType::F16, true),
        (1, 80, 32, 3, DType::F32, true),
        (1, 80, 80, 3, DType::F16, false),
        (2, 80, 80, 3, DType::F16, false),
    ];
    for (which, d, rotated, tokens, dtype, normed) in shapes {
        let words = ["q", "k", "v"][which];
        let norm = if normed { ", normed" } else { "" };
        let what = format!("{words}, d={d}, {rotated} turned, tokens={tokens}, {dtype} cache{norm}");
        let mode = if normed { RopeMode::Neox } else { RopeMode::Normal };
        // With factors, cells outside the cache, and NaN elements.
        let special = d == 80;
        cases.push(case("heads", what, |p| {
            let at = Fill::Values((0..tokens).map(|i| (i * 7 + 3) as f32).collect());
            let at = p.leaf("at", DType::I32, &[tokens], at)?;
            let cells = if special { Fill::Values(vec![-1.0, 39.0, 40.0]) } else { Fill::Distinct(40) };
            let cells = p.leaf("cells", DType::I32, &[tokens], cells)?;
            // q, k and v are parts of one product's rows.
            let row = 8 * d;
            let lost = [
                (0, f32::NAN),
                (row + 3 * d, f32::INFINITY),
                (row + 4 * d + 1, f32::NAN),
                (row + 6 * d, f32::INFINITY),
            ];
            let lost = lost.map(|(i, x)| (i..i + 1, x)).into_iter().filter(|_| special);
            let joint = p.leaf("joint", DType::F32, &[row, tokens], UNIT.but(lost))?;
            let factors = if special {
                Some(p.leaf("factors", DType::F32, &[d], Fill::Uniform(1.0, 4.0))?)
            } else {
                None
            };
            let part = |g: &mut Graph, first: usize, heads: usize| {
                let nb = [4, 4 * d, 4 * row, 4 * row * tokens];
                g.view(joint, [d, heads, tokens, 1], nb, 4 * first * d)
            };
            let parts = [part(p.g, 0, 4)?, part(p.g, 4, 2)?, part(p.g, 6, 2)?];
            let rope = Rope::plain(mode, rotated, 1e4);
            let mut rotated = Vec::new();
            for (name, x) in [("q_norm", parts[0]), ("k_norm", parts[1])] {
                let x = if normed { p.norm(x, name)? } else { x };
                rotated.push(p.g.rope(rope, x, at, factors)?);
            }
            let [k, v] = [("k", rotated[1]), ("v", parts[2])].map(|(name, x)| {
                let cache = p.c.state(p.g, name, dtype, [2 * d, 40, 1, 1], UNIT)?;
                let nb = p.g.tensor(x).nb;
                let strides = [4, nb[2], nb[2] * tokens, nb[2] * tokens];
                let rows = p.g.view(x, [2 * d, tokens, 1, 1], strides, 0)?;
                p.g.set_rows(cache, rows, cells)
            });
            let results = [rotated[0], k?, v?];
            let seen = |g: &mut Graph, written: TensorId| {
                let bytes = |n: usize| n / dtype.block() * dtype.block_bytes();
                let nb = [dtype.block_bytes(), bytes(2 * d), bytes(d), bytes(2 * d) * 40];
                g.view(written, [d, 40, 2, 1], nb, 0)
            };
            let (k, v) = (seen(p.g, results[1])?, seen(p.g, results[2])?);
            let q = p.g.permute(results[0], [0, 2, 1, 3])?;
            let op = FlashAttnExt { scale: 0.1, max_bias: 0.0, logit_softcap: 0.0 };
            p.g.flash_attn_ext(op, q, k, v, None)?;
            Ok(results[which])
        }));
    }
    cases
}

fn norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, rows) in [(64, 3), (1153, 2), (4096, 1)] {
        for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
            let words = match (before, after) {
                (false, false) => "weight",
                (true, false) => "sum before",
                (false, true) => "sum after",
                (true, true) => "sums before and after",
            };
            cases.push(case("norm", format!("{words}, n={n}, rows={rows}"), |p| {
                let mut x = p.plain("x", &[n, rows])?;
                if before {
                    let y = p.plain("y", &[n, rows])?;
                    x = p.g.add(x, y)?;
                }
                let normed = p.norm(x, "weight")?;
                if !after {
                    return Ok(normed);
                }
                let c = p.plain("c", &[n, rows])?;
                p.g.add(c, normed)
            }));
        }
    }
    // Adjacent rows of a wider tensor; non-finite elements; a row too long for registers.
    for n in [100, 101, 8193] {
        cases.push(case("norm", format!("sums before and after, strided, n={n}, rows=3"), |p| {
            let lost = [(n + 2..n + 3, f32::NAN), (3 * n + 6..3 * n + 7, f32::INFINITY)];
            let joint = p.leaf("joint", DType::F32, &[3 * n + 4, 3], UNIT.but(lost))?;
            let row = 4 * (3 * n + 4);
            let part = |g: &mut Graph, i: usize| {
                g.view(joint, [n, 3, 1, 1], [4, row, 3 * row, 3 * row], 4 * (i * n + 1))
            };
            let (x, y, c) = (part(p.g, 0)?, part(p.g, 1)?, part(p.g, 2)?);
            let sum = p.g.add(x, y)?;
            let normed = p.norm(sum, "weight")?;
            p.g.add(normed, c)
        }));
    }
    for (n, rows) in [(128, 5), (77, 2)] {
        let lost = [(n + 3..n + 4, f32::INFINITY), (n + 5..n + 6, f32::NAN)];
        cases.push(case("norm", format!("gate, n={n}, rows={rows}"), |p| {
            let (x, gate) =
                (p.plain("x", &[n, rows])?, p.leaf("gate", DType::F32, &[n, rows], UNIT.but(lost))?);
            let normed = p.norm(x, "weight")?;
            p.g.glu(Glu::new(Activation::Silu), gate, Some(normed))
        }));
        cases.push(case("scaled", format!("n={n}, rows={rows}"), |p| {
            let joint = p.plain("joint", &[n * rows + 3])?;
            let x = p.g.view(joint, [n, rows, 1, 1], [4, 4 * n, 4 * n * rows, 4 * n * rows], 12)?;
            let normed = p.g.rms_norm(x, EPS)?;
            p.g.scale(normed, 0.3, 0.0)
        }));
    }
    // The result of the sum.
    cases.push(case("norm", "sum before, which is kept, n=320, rows=2".into(), |p| {
        let (x, y) = (p.plain("x", &[320, 2])?, p.plain("y", &[320, 2])?);
        let sum = p.g.add(x, y)?;
        p.norm(sum, "weight")?;
        Ok(sum)
    }));
    cases
}

fn experts() -> Vec<Case> {
    let mut cases = Vec::new();
    let (count, used) = (6, 3);
    // The last case: two indices out of range, and rows that are long when those of all experts are
    // concatenated.
    let missing = vec![5.0, -1.0, 0.0, 6.0, 2.0, 1.0];
    for (dtype, bias, tokens, k, m, chosen) in [
        (DType::Q8_0, false, 1, 256, 70, Fill::Distinct(count)),
        (DType::Q4_K, false, 1, 256, 70, Fill::Distinct(count)),
        (DType::MXFP4, true, 1, 256, 70, Fill::Distinct(count)),
        (DType::F16, true, 2, 256, 70, Fill::Distinct(count)),
        (DType::Q8_0, true, 2, 96, 33, Fill::Values(missing)),
        (DType::Q8_0, false, 1, 5600, 9, Fill::Distinct(count)),
    ] {
        let with = format!("{}, k={k}, tokens={tokens}", if bias { ", biases" } else { "" });
        let product = move |p: &mut Parts<'_>, name: &str, x: TensorId, ids: TensorId| {
            let weight = p.leaf(name, dtype, &[k, m, count], UNIT)?;
            let product = p.g.mul_mat_id(weight, x, ids)?;
            if !bias {
                return Ok(product);
            }
            let bias = p.plain(&format!("{name}.bias"), &[m, count])?;
            let flat = p.g.reshape(ids, [used * tokens, 1, 1, 1])?;
            let bias = p.g.get_rows(bias, flat)?;
            let bias = p.g.reshape(bias, [m, used, tokens, 1])?;
            p.g.add(product, bias)
        };
        cases.push(case("experts", format!("{dtype}, gate and up{with}"), |p| {
            let x = p.plain("x", &[k, 1, tokens])?;
            let ids = p.leaf("ids", DType::I32, &[used, tokens], chosen.clone())?;
            let (gate, up) = (product(p, "gate", x, ids)?, product(p, "up", x, ids)?);
            let glu = if bias { Glu::clamped(1.7, 7.0) } else { Glu::new(Activation::Silu) };
            p.g.glu(glu, gate, Some(up))
        }));
        cases.push(case("experts", format!("{dtype}, weighted sum{with}"), |p| {
            let x = p.plain("x", &[k, used, tokens])?;
            let ids = p.leaf("ids", DType::I32, &[used, tokens], chosen.clone())?;
            let weights = p.plain("weights", &[1, used, tokens])?;
            let down = product(p, "down", x, ids)?;
            let sum = sum_of(p, down, weights, [m, used, tokens])?;
            let residual = p.plain("residual", &[m, tokens])?;
            p.g.add(residual, sum)
        }));
    }
    for dtype in [DType::Q8_0, DType::F16] {
        for tokens in [3, 100] {
            let name = format!("{dtype}, weighted sum of views, tokens={tokens}");
            cases.push(case("experts", name, move |p| of_views(p, dtype, tokens)));
        }
    }
    cases.push(case("experts", "Q4_K, weighted sum, residual, tokens=90".into(), |p| {
        let (k, m, tokens) = (256, 70, 90);
        let x = p.plain("x", &[k, used, tokens])?;
        let ids = p.leaf("ids", DType::I32, &[used, tokens], Fill::Distinct(count))?;
        let weights = p.plain("weights", &[1, used, tokens])?;
        let down = p.leaf("down", DType::Q4_K, &[k, m, count], UNIT)?;
        let product = p.g.mul_mat_id(down, x, ids)?;
        let sum = sum_of(p, product, weights, [m, used, tokens])?;
        let residual = p.plain("residual", &[m, tokens])?;
        p.g.add(sum, residual)
    }));
    cases
}

/// Adds the weighted sum over the experts of each token.
fn sum_of(
    p: &mut Parts<'_>,
    product: TensorId,
    weights: TensorId,
    [m, used, tokens]: [usize; 3],
) -> Result<TensorId> {
    let weighted = p.g.mul(product, weights)?;
    let (row, all) = (4 * m, 4 * m * used);
    let part = |g: &mut Graph, expert: usize| {
        g.view(weighted, [m, tokens, 1, 1], [4, all, all * tokens, all * tokens], expert * row)
    };
    let mut sum = part(p.g, 0)?;
    for expert in 1..used {
        let next = part(p.g, expert)?;
        sum = p.g.add(sum, next)?;
    }
    Ok(sum)
}

/// Builds two experts for each token, weighted and summed, without a residual. The input, the choice and the
/// weights are parts of longer rows, one for each token.
fn of_views(p: &mut Parts<'_>, dtype: DType, tokens: usize) -> Result<TensorId> {
    let (count, k, m) = (5, 256, 34);
    let row = 2 * k + 32;
    let joint = p.plain("joint", &[row, tokens])?;
    let x = p.g.view(joint, [k, 2, tokens, 1], [4, 4 * k, 4 * row, 4 * row * tokens], 64)?;
    let order = p.leaf("order", DType::I32, &[count, tokens], Fill::Distinct(count))?;
    let strides = [4, 4 * count, 4 * count * tokens, 4 * count * tokens];
    let ids = p.g.view(order, [2, tokens, 1, 1], strides, 4)?;
    let all = p.plain("all", &[count, tokens])?;
    let weights = p.g.view(all, [1, 2, tokens, 1], [4, 4, 4 * count, 4 * count * tokens], 8)?;
    let down = p.leaf("down", dtype, &[k, m, count], UNIT)?;
    let product = p.g.mul_mat_id(down, x, ids)?;
    sum_of(p, product, weights, [m, 2, tokens])
}

fn chains() -> Vec<Case> {
    let chain = |ne: &'static [usize]| {
        case("chain", format!("soft cap, {ne:?}"), |p| {
            let x = p.leaf("x", DType::F32, ne, Fill::Uniform(-90.0, 90.0))?;
            let inner = p.g.scale(x, 1.0 / 30.0, 0.0)?;
            let bounded = p.g.unary(Activation::Tanh, inner)?;
            p.g.scale(bounded, 30.0, 0.0)
        })
    };
    let four = case("chain", "four functions of a strided operand".into(), |p| {
        let wide =
            p.leaf("x", DType::F32, &[41, 3], UNIT.but([(1..2, f32::NAN), (50..51, f32::INFINITY)]))?;
        let mut x = p.g.view(wide, [33, 3, 1, 1], [4, 164, 492, 492], 4)?;
        for activation in [Activation::Sigmoid, Activation::Softplus, Activation::Silu] {
            x = p.g.unary(activation, x)?;
        }
        p.g.scale(x, -2.0, 1.0)
    });
    let with_row = |sum: bool, ne: &'static [usize]| {
        let words = if sum { "sum with" } else { "product with" };
        case("chain", format!("{words} a row, {ne:?}"), |p| {
            let (x, row) = (p.plain("x", ne)?, p.plain("row", &ne[..1])?);
            let x = p.g.unary(Activation::Softplus, x)?;
            let x = if sum { p.g.add(x, row)? } else { p.g.mul(x, row)? };
            p.g.scale(x, 0.5, 0.0)
        })
    };
    let rows = [with_row(false, &[32, 3]), with_row(true, &[37, 2, 2]), with_row(false, &[1, 5])];
    // Like a shared expert's gate and the residual stream: a value for each row, and two tensors of full
    // extents.
    let gated = |ne: &'static [usize]| {
        case("chain", format!("product with a column and two sums, {ne:?}"), |p| {
            let (x, column) = (p.plain("x", ne)?, p.plain("column", &[1, ne[1]])?);
            let (a, b) = (p.plain("a", ne)?, p.plain("b", ne)?);
            let x = p.g.mul(x, column)?;
            let x = p.g.add(a, x)?;
            p.g.add(x, b)
        })
    };
    // Like the nodes after a scan: a part of a strided tensor, a value for each head, a gate.
    let behind = |gate_first: bool| {
        let words = if gate_first { "gate" } else { "gated" };
        case("chain", format!("of heads, {words}"), |p| {
            let wide = p.plain("wide", &[130, 3])?;
            let x = p.g.view(wide, [16, 5, 3, 1], [4, 64, 520, 1560], 16)?;
            let (heads, sum) = (p.plain("heads", &[1, 5])?, p.plain("sum", &[16, 5, 3])?);
            let z = p.leaf("z", DType::F32, &[16, 5, 3], UNIT.but([(7..8, f32::NAN), (90..91, -80.0)]))?;
            let x = p.g.mul(x, heads)?;
            let x = p.g.add(x, sum)?;
            let (gate, up) = if gate_first { (x, z) } else { (z, x) };
            p.g.glu(Glu::new(Activation::Silu), gate, Some(up))
        })
    };
    let scaled = case("chain", "sum with a scaled one".into(), |p| {
        let (x, y) = (p.plain("x", &[65, 3])?, p.plain("y", &[65, 3])?);
        let x = p.g.scale(x, 0.22, 0.0)?;
        p.g.add(y, x)
    });
    let more = vec![gated(&[66, 3]), gated(&[4100, 1]), behind(true), behind(false), scaled];
    [vec![chain(&[333, 2]), chain(&[4097]), four], rows.into(), more].concat()
}
