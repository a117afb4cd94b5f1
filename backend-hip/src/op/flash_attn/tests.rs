//! Tests of the choice of kernels.

use super::*;
use crate::arch::{Profile, Target};
use crate::code::kernels::{Embedded, KernelSet, Kernels as Code};
use ggml_core::op::flash_attn::{CACHE_TYPES, FlashAttnExt};
use ggml_core::precision::Precision;
use ggml_core::{Graph, Source};
use std::collections::BTreeSet;
use std::sync::Arc;

#[test]
fn spans_fill_the_device_and_bound_the_scratch() {
    assert_eq!(tile_span(8192, 4000, 396), 8192, "enough work-groups without");
    assert_eq!(tile_span(500, 8, 396), 500, "few positions");
    assert_eq!(tile_span(4608, 112, 396), 1536, "336 work-groups in a round, for 112");
    assert_eq!(tile_span(4608, 140, 264), 1536, "420 in two rounds, for 140 in one that idles");
    assert_eq!(tile_span(4608, 256, 264), 4608, "a round");
    assert_eq!(tile_span(131072, 8, 396), 2688, "49 splits of 8 work-groups");
    assert_eq!(tile_span(131072, 1, 240), 576, "a round of 228 splits");
    let longest = u32::MAX - 31;
    assert!(u64::from(longest.div_ceil(tile_span(longest, 1, 1 << 20))) <= MAX_SPLITS);
}

/// All kernels exist and declare the arguments that launches pass.
#[test]
fn kernels_fit_the_code_objects() {
    for name in Embedded.targets() {
        let target = Target::parse(name).unwrap();
        let profile = Profile::of(&target).unwrap();
        let code = Code::new(Arc::new(Embedded), &target);
        let (mut met, mut on_units) = (BTreeSet::new(), BTreeSet::new());
        for &dtype in CACHE_TYPES {
            for (d, tokens) in
                [64, 128, 256, 512, 608].iter().flat_map(|&d| [1, 4, 8, 16, 160].map(|tokens| (d, tokens)))
            {
                let mut graph = Graph::new();
                let mut leaf =
                    |name: &str, dtype, n| graph.leaf(name, dtype, [d, n, 1, 1], Source::Input).unwrap();
                let q = leaf("q", DType::F32, tokens);
                let (k, v) = (leaf("k", dtype, 1 << 17), leaf("v", dtype, 1 << 17));
                let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
                let node = graph.flash_attn_ext(op, q, k, v, None).unwrap();
                let launches = [Precision::Exact, Precision::Fast].map(|precision| {
                    let context = Context { graph: &graph, node, profile: &profile, precision };
                    code.plan(&context).unwrap_or_else(|why| panic!("{name} {dtype}: {why:?}"))
                });
                met.extend(launches[0].iter().map(|(launch, _)| launch.kernel));
                on_units.extend(launches[1].iter().map(|(launch, _)| launch.kernel));
            }
        }
        let few: usize = CACHE_TYPES.iter().map(|&t| 3 * kernels(t).unwrap().groups).sum();
        assert_eq!(met.len(), few + 5 * CACHE_TYPES.len() + 1, "{name}: {met:?}");
        let units: BTreeSet<&str> = on_units.difference(&met).copied().collect();
        let sizes = |blocks: bool| match profile.matrix {
            Matrix::None => 0,
            Matrix::Tensor if !blocks => 3,
            Matrix::Tensor | Matrix::Mfma | Matrix::Wmma | Matrix::WmmaGfx12 => 2,
        };
        let types = [DType::F16, DType::Q8_0, DType::Q4_0];
        let of_type = |t: DType| kernels(t).unwrap().matrix[..sizes(t != DType::F16)].to_vec();
        let of_f16 = kernels(DType::F16).unwrap();
        let long = (profile.matrix != Matrix::None).then_some(of_f16.long_matrix);
        let few_half = of_f16.few_half.into_iter().flatten().filter(|_| profile.has_pairs());
        let few_units = of_f16.few_units.into_iter().flatten().copied();
        let few_units = few_units.filter(|_| profile.matrix == Matrix::Tensor);
        let longest = longest_on_units(profile.matrix, DType::F16);
        let lengths = [64, 128, 256].into_iter().zip(of_f16.half);
        let pairs = lengths.filter(|(row, _)| profile.has_pairs() && *row > longest).map(|(_, name)| name);
        let of_types = types.iter().flat_map(|&t| of_type(t));
        let expected: BTreeSet<&str> =
            of_types.chain(long).chain(pairs).chain(few_half).chain(few_units).collect();
        assert_eq!(units, expected, "{name}");
    }
}

/// Matrix units accept rows of a multiple of eight elements that are not too long: on NVIDIA rows of F16
/// must be aligned to 16 bytes, others need no alignment.
#[test]
fn matrix_units_are_used_for_loadable_rows() {
    let chosen = |target: &str, dtype: DType, d: usize, shift: usize, precision| {
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        let mut graph = Graph::new();
        let q = graph.leaf("q", DType::F32, [d, 64, 1, 1], Source::Input).unwrap();
        let [k, v] = ["k", "v"].map(|name| {
            let cells = graph.leaf(name, dtype, [d, 50, 1, 1], Source::Input).unwrap();
            graph.view(cells, [d, 40, 1, 1], graph.tensor(cells).nb, shift).unwrap()
        });
        let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
        let node = graph.flash_attn_ext(op, q, k, v, None).unwrap();
        let p = FlashAttnParams::new(&graph, node, &[]).unwrap();
        let context = Context { graph: &graph, node, profile: &profile, precision };
        matrix_kernel(&context, &p, &kernels(dtype).unwrap()).map(|many| many.kernel)
    };
    let (exact, fast) = (Precision::Exact, Precision::Fast);
    for (target, longest) in [("sm_80", 256), ("gfx908", 128), ("gfx1100", 128), ("gfx1200", 128)] {
        assert_eq!(chosen(target, DType::F16, 64, 0, fast), Some("flash_attn_matrix_f16_d64"));
        assert_eq!(chosen(target, DType::Q8_0, 96, 0, fast), Some("flash_attn_matrix_q8_0_d128"));
        assert_eq!(chosen(target, DType::Q4_0, 128, 18, fast), Some("flash_attn_matrix_q4_0_d128"));
        let long = chosen(target, DType::F16, 200, 0, fast);
        assert_eq!(long, Some("flash_attn_matrix_f16_d256").filter(|_| longest == 256), "{target}");
        assert_eq!(chosen(target, DType::F16, 512, 0, fast), Some("flash_attn_matrix_f16_long"));
        let anywhere = chosen(target, DType::F16, 64, 8, fast).is_some();
        assert_eq!(anywhere, target != "sm_80", "{target}");
        for none in [
            chosen(target, DType::F32, 64, 0, fast),
            chosen(target, DType::Q8_0, 64, 0, exact),
            chosen(target, DType::F16, 100, 0, fast),
            chosen(target, DType::F16, 580, 0, fast),
            chosen(target, DType::Q8_0, 512, 0, fast),
            chosen(target, DType::F16, 512, 0, exact),
            chosen(target, DType::Q8_0, 160, 0, fast),
            chosen(target, DType::Q4_0, 256, 0, fast),
        ] {
            assert_eq!(none, None, "{target}");
        }
    }
    assert_eq!(chosen("gfx906", DType::F16, 64, 0, fast), None);
}

/// Pairs of F16 are multiplied where activations may be rounded, the cache is F16, and 32 bits hold the bytes
/// of a step.
#[test]
fn pairs_are_multiplied_where_they_fit() {
    let chosen = |target: &str, dtype: DType, [d, dv]: [usize; 2], stride: usize, precision| {
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        let mut graph = Graph::new();
        let q = graph.leaf("q", DType::F32, [d, 64, 1, 1], Source::Input).unwrap();
        let [k, v] = [("k", d), ("v", dv)].map(|(name, row)| {
            let cells = graph.leaf(name, dtype, [row * stride, 40, 1, 1], Source::Input).unwrap();
            graph.view(cells, [row, 40, 1, 1], graph.tensor(cells).nb, 0).unwrap()
        });
        let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
        let node = graph.flash_attn_ext(op, q, k, v, None).unwrap();
        let p = FlashAttnParams::new(&graph, node, &[]).unwrap();
        let context = Context { graph: &graph, node, profile: &profile, precision };
        let many = pair_kernel(&p, &kernels(dtype).unwrap()).filter(|_| can_multiply_pairs(&context, &p));
        many.map(|many| many.kernel)
    };
    let (exact, fast) = (Precision::Exact, Precision::Fast);
    for target in ["gfx906", "gfx1030", "gfx90a", "gfx1100", "gfx1201"] {
        assert_eq!(chosen(target, DType::F16, [64, 64], 1, fast), Some("flash_attn_half_f16_d64"));
        assert_eq!(chosen(target, DType::F16, [40, 72], 1, fast), Some("flash_attn_half_f16_d128"));
        assert_eq!(chosen(target, DType::F16, [192, 128], 1, fast), Some("flash_attn_half_f16_d256"));
        for none in [
            chosen(target, DType::F16, [64, 64], 1, exact),
            chosen(target, DType::F32, [64, 64], 1, fast),
            chosen(target, DType::Q8_0, [64, 64], 1, fast),
            chosen(target, DType::F16, [100, 64], 1, fast),
            chosen(target, DType::F16, [264, 64], 1, fast),
            chosen(target, DType::F16, [64, 64], 1 << 19, fast),
        ] {
            assert_eq!(none, None, "{target}");
        }
    }
    for target in ["gfx900", "gfx1010", "sm_90"] {
        assert_eq!(chosen(target, DType::F16, [64, 64], 1, fast), None, "{target}");
    }
}

#[test]
fn kernels_suit_the_shape() {
    let kernels = kernels(DType::F16).unwrap();
    let chosen_of = |rounded, d, dv, tokens, positions| {
        let p = FlashAttnParams {
            d: [d, dv],
            ne: [tokens, 8, 1],
            kv: [positions, 2],
            ..FlashAttnParams::default()
        };
        let profile = Profile::of(&Target::parse("gfx906").unwrap()).unwrap();
        let profile = Profile { compute_units: 60, ..profile };
        let choice = choose(&profile, &p, &kernels, rounded);
        choice.map(|c| (c.kernel, c.splits, c.groups))
    };
    let chosen = |d, dv, tokens, positions| chosen_of(None, d, dv, tokens, positions);
    assert_eq!(chosen(128, 128, 1, 4000), Ok(("flash_attn_split_f16_d128_g4", 32, 1)));
    assert_eq!(chosen(128, 128, 2, 4000), Ok(("flash_attn_split_f16_d128_g8", 32, 1)));
    // Larger groups would leave the device idle.
    assert_eq!(chosen(128, 128, 1, 1000), Ok(("flash_attn_split_f16_d128_g1", 8, 4)));
    assert_eq!(chosen(128, 128, 2, 2000), Ok(("flash_attn_split_f16_d128_g4", 16, 2)));
    assert_eq!(chosen(128, 128, 64, 100), Ok(("flash_attn_tile_f16_d128", 1, 8)));
    assert_eq!(chosen(320, 64, 1, 100), Ok(("flash_attn_split_f16_long", 4, 1)));
    assert_eq!(chosen(100, 100, 3, 9), Ok(("flash_attn_any_f16", 1, 12)));
    assert_eq!(chosen(320, 64, 3, 100), Ok(("flash_attn_tile_f16_d64", 1, 1)));
    assert_eq!(chosen(584, 512, 1, 9), Ok(("flash_attn_any_f16", 1, 4)));
    assert_eq!(chosen(576, 512, 1, 9), Ok(("flash_attn_split_f16_long", 1, 1)));
    assert_eq!(chosen(512, 512, 1, 1000), Ok(("flash_attn_split_f16_long", 32, 1)));
    assert_eq!(chosen(512, 512, 7, 10_000), Ok(("flash_attn_split_f16_long", 18, 7)));
    assert_eq!(chosen(576, 512, 200, 10_000), Ok(("flash_attn_split_f16_long", 1, 200)));
    let units = Many { kernel: "of units", threads: 256, rows: 16, resident: 4 };
    let on_units = |tokens| chosen_of(Some(units), 576, 512, tokens, 10_000);
    assert_eq!(on_units(32), Ok(("flash_attn_split_f16_long", 4, 32)), "128 rows");
    assert_eq!(on_units(33), Ok(("of units", 13, 9)), "234 of 240 work-groups");
    assert_eq!(on_units(2000), Ok(("of units", 1, 500)));
    let by_pairs = |d, size, tokens| chosen_of(Some(Many::pairs(&kernels, size)), d, d, tokens, 8192);
    assert_eq!(
        by_pairs(128, 1, 512),
        Ok(("flash_attn_half_f16_d128", 3, 32)),
        "192 work-groups in two rounds"
    );
    assert_eq!(by_pairs(256, 2, 3), Ok(("flash_attn_half_f16_d256", 32, 1)), "12 rows");
    assert_eq!(by_pairs(64, 0, 2), Ok(("flash_attn_split_f16_d64_g8", 64, 1)), "few rows");
    assert!(chosen(64, 1032, 1, 9).is_err());
}

#[test]
fn few_rows_by_pairs_suit_the_device() {
    let profile = Profile::of(&Target::parse("gfx906").unwrap()).unwrap();
    let profile = Profile { compute_units: 60, ..profile };
    let chosen = |[d, dv]: [u32; 2], [heads, kv_heads]: [u32; 2], tokens, positions| {
        let (ne, kv) = ([tokens, heads, 1], [positions, kv_heads]);
        let p = FlashAttnParams { d: [d, dv], ne, kv, ..FlashAttnParams::default() };
        few_by_pairs(&profile, &p, &kernels(DType::F16).unwrap())
            .map(|c| (c.kernel, c.splits, c.groups, c.span))
    };
    let kernel = |name, splits, groups, span| Some((name, splits, groups, Some(span)));
    assert_eq!(chosen([128; 2], [8, 2], 1, 4096), kernel("flash_attn_split_half_f16_d128_g4", 16, 1, 256));
    assert_eq!(chosen([128; 2], [8, 2], 2, 4096), kernel("flash_attn_split_half_f16_d128_g4", 16, 2, 256));
    assert_eq!(chosen([128; 2], [8, 8], 1, 4096), kernel("flash_attn_split_half_f16_d128_g1", 8, 1, 512));
    assert_eq!(chosen([64; 2], [32, 8], 1, 32768), kernel("flash_attn_split_half_f16_d64_g4", 8, 1, 4096));
    assert_eq!(
        chosen([256; 2], [8, 2], 1, 300),
        kernel("flash_attn_split_half_f16_d256_g1", 2, 4, 256),
        "idle"
    );
    assert_eq!(few_half_span(u32::MAX, u64::MAX, 60), u32::MAX, "one split");
    for (rows, heads, tokens) in [([96, 96], 8, 1), ([128, 64], 8, 1), ([128, 128], 8, 3)] {
        assert_eq!(chosen(rows, [heads, 2], tokens, 4096), None);
    }
}

/// Query rows that share a head of k go to matrix units that read k once for all of them, split so that each
/// multiprocessor has a work-group.
#[test]
fn few_rows_on_units_suit_the_device() {
    let profile = Profile::of(&Target::parse("sm_90").unwrap()).unwrap();
    let profile = Profile { compute_units: 132, ..profile };
    let chosen = |d: usize, [heads, kv_heads]: [usize; 2], tokens, positions, precision| {
        let mut graph = Graph::new();
        let q = graph.leaf("q", DType::F32, [d, tokens, heads, 1], Source::Input).unwrap();
        let [k, v] = ["k", "v"]
            .map(|name| graph.leaf(name, DType::F16, [d, positions, kv_heads, 1], Source::Input).unwrap());
        let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
        let node = graph.flash_attn_ext(op, q, k, v, None).unwrap();
        let p = FlashAttnParams::new(&graph, node, &[]).unwrap();
        let context = Context { graph: &graph, node, profile: &profile, precision };
        few_on_units(&context, &p, &kernels(DType::F16).unwrap())
            .map(|c| (c.kernel, c.splits, c.groups, c.span.unwrap()))
    };
    let fast = Precision::Fast;
    let d128 = "flash_attn_units_f16_d128_g8";
    assert_eq!(chosen(128, [32, 8], 1, 256, fast), Some((d128, 1, 1, 256)), "two steps");
    assert_eq!(chosen(128, [32, 8], 1, 512, fast), Some((d128, 4, 1, 128)));
    assert_eq!(chosen(128, [32, 4], 1, 16640, fast), Some((d128, 33, 1, 512)), "132 work-groups");
    assert_eq!(chosen(128, [32, 8], 1, 16640, fast), Some((d128, 16, 1, 1056)), "128 work-groups");
    assert_eq!(chosen(128, [32, 8], 4, 4352, fast), Some(("flash_attn_units_f16_d128_g16", 12, 1, 384)));
    assert_eq!(chosen(64, [14, 2], 1, 512, fast), Some(("flash_attn_units_f16_d64_g8", 1, 1, 512)));
    assert_eq!(chosen(256, [8, 4], 8, 300, fast), Some(("flash_attn_units_f16_d256_g8", 3, 2, 128)));
    assert_eq!(chosen(128, [32, 32], 1, 512, fast), None, "one row");
    let groups = chosen(128, [32, 8], 5, 512, fast);
    assert_eq!(groups, Some(("flash_attn_units_f16_d128_g16", 4, 2, 128)), "two groups of rows");
    assert_eq!(chosen(128, [32, 8], 17, 512, fast), None, "many rows");
    assert_eq!(chosen(256, [8, 4], 17, 300, fast), None, "five groups of eight");
    assert_eq!(chosen(96, [32, 8], 1, 512, fast), None);
    assert_eq!(chosen(128, [32, 8], 1, 512, Precision::Exact), None);
    assert!(u64::from(u32::MAX.div_ceil(few_units_span(u32::MAX, 128, 1, 1 << 40))) <= MAX_SPLITS);
}
