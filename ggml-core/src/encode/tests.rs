use super::*;
use crate::rng::Rng;

pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let tensor = crate::shape::Shape {
        name: "t".into(),
        dtype,
        ne: [bytes.len() / dtype.block_bytes() * dtype.block(), 1, 1, 1],
        nb: [dtype.block_bytes(), bytes.len(), bytes.len(), bytes.len()],
    };
    crate::exact::Operand::new(&tensor, 0, bytes).row([0, 0, 0]).unwrap()
}

fn nmse(dtype: DType, x: &[f32]) -> f64 {
    let decoded = decode(dtype, &encode(dtype, x.len(), x).unwrap());
    let error: f64 = decoded.iter().zip(x).map(|(d, x)| (d - f64::from(*x)).powi(2)).sum();
    error / x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()
}

#[test]
fn blocks_by_hand() {
    let mut x = [0.0f32; 32];
    x[0] = 127.0;
    x[1] = -63.5;
    x[31] = 1.4;
    let b = encode(DType::Q8_0, 32, &x).unwrap();
    assert_eq!((b.len(), &b[..2], b[2], b[3] as i8, b[33]), (34, &[0x00, 0x3c][..], 127, -64, 1));
    let mut y = [0.0f32; 32];
    y[0] = -8.0;
    y[16] = 7.0;
    y[5] = 3.4;
    let b = encode(DType::Q4_0, 32, &y).unwrap();
    assert_eq!((b.len(), &b[..2], b[2], b[3], b[7]), (18, &[0x00, 0x3c][..], 0xf0, 0x88, 0x8b));
    let b = encode(DType::Q4_1, 32, &y).unwrap();
    assert_eq!((b.len(), &b[..4], b[4], b[5], b[9]), (20, &[0x00, 0x3c, 0x00, 0xc8][..], 0xf0, 0x88, 0x8b));
    y[1] = -16.0;
    y[17] = 15.0;
    let b = encode(DType::Q5_0, 32, &y).unwrap();
    // Only elements 0 and 1 are below zero.
    assert_eq!((b.len(), &b[..6], b[6], b[7]), (22, &[0x00, 0x3c, 0xfc, 0xff, 0xff, 0xff][..], 0x78, 0xf0));
    let b = encode(DType::Q5_1, 32, &y).unwrap();
    assert_eq!((b.len(), &b[..4], b[8], b[9]), (24, &[0x00, 0x3c, 0x00, 0xcc][..], 0x78, 0xf0));
    y[2] = 5.0; // 1.25 units of 4, equally near to 1 and 1.5: the first is used; the same for 7
    let b = encode(DType::MXFP4, 32, &y).unwrap();
    assert_eq!((b.len(), b[0], b[1], b[2], b[3]), (17, 129, 0x3c, 0x6e, 0x02));
    assert!(encode(DType::Q8_0, 31, &x[..31]).is_err());
    assert!(encode(DType::Q8_K, 256, &[0.0; 256]).is_err());
}

/// Error of each type on typical weight distributions: about what its step size gives.
#[test]
fn little_is_lost() {
    let mut rng = Rng::new(4);
    let normal: Vec<f32> = (0..8192).map(|_| rng.normal() * 0.02).collect();
    let uniform: Vec<f32> = (0..8192).map(|_| rng.uniform(-1.0, 1.0)).collect();
    for (dtype, bound) in [
        (DType::Q8_0, 5e-5),
        (DType::Q6_K, 7e-4),
        (DType::Q5_K, 2e-3),
        (DType::Q5_1, 2.5e-3),
        (DType::Q5_0, 3e-3),
        (DType::Q4_K, 8e-3),
        (DType::Q4_1, 1e-2),
        (DType::Q4_0, 1.2e-2),
        (DType::IQ4_XS, 8e-3),
        (DType::IQ4_NL, 8e-3),
        (DType::MXFP4, 2.5e-2),
        (DType::Q3_K, 4e-2),
        (DType::Q2_K, 0.12),
        (DType::NVFP4, 9e-3),
        (DType::IQ3_S, 2.7e-2),
        (DType::IQ3_XXS, 4.2e-2),
        (DType::IQ2_S, 9e-2),
        (DType::IQ2_XS, 0.12),
        (DType::IQ2_XXS, 0.15),
        (DType::IQ1_M, 0.22),
        (DType::IQ1_S, 0.27),
        (DType::Q2_0, 0.13),
        (DType::Q1_0, 0.38),
        (DType::TQ1_0, 0.7),
        (DType::TQ2_0, 0.7),
    ] {
        for (name, x) in [("normal", &normal), ("uniform", &uniform)] {
            let error = nmse(dtype, x);
            assert!(error < bound, "{dtype} {name}: {error:e}");
        }
    }
}

impl Method<'_> {
    fn name(self) -> &'static str {
        match self {
            Method::Quick => "quick",
            Method::Search => "search",
            Method::Weighted(_) => "weighted",
        }
    }
}

/// Zeros stay zero, equal values keep their magnitude, and the encoder accepts non-finite and extreme values.
#[test]
fn edges() {
    let types = crate::dtype::DTYPES.iter().filter(|i| i.computable && i.block > 1);
    let importance: Vec<f32> = (0..768).map(|i| (i % 3) as f32).collect();
    let methods = || [Method::Quick, Method::Search, Method::Weighted(&importance)];
    for (info, method) in types.flat_map(|info| methods().map(|method| (info, method))) {
        let (dtype, effort) = (info.dtype, method.name());
        let coded = |x: &[f32]| match method {
            Method::Quick => encode(dtype, x.len(), x).unwrap(),
            Method::Search => encode_with(dtype, x.len(), x, Effort::Search).unwrap(),
            Method::Weighted(importance) => {
                encode_weighted(dtype, x.len(), x, &importance[..x.len()]).unwrap()
            }
        };
        let zeros = decode(dtype, &coded(&[0.0; 256]));
        assert!(zeros.iter().all(|x| *x == 0.0), "{dtype} {effort}");
        for value in [0.75f32, -0.75] {
            let error: f64 = decode(dtype, &coded(&[value; 256]))
                .iter()
                .map(|x| (x / f64::from(value) - 1.0).powi(2))
                .sum();
            assert!(error / 256.0 < 0.02, "{dtype} {value} {effort}: {error:e}");
        }
        let large = [f32::MAX, f32::MIN, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 8.0, 0.0].repeat(128);
        assert_eq!(coded(&large).len(), 768 / info.block * info.bytes, "{dtype} {effort}");
    }
}

/// A search has less error than a quick fit.
#[test]
fn a_search_loses_less() {
    let mut rng = Rng::new(8);
    let x: Vec<f32> = (0..16384).map(|_| rng.normal() * 0.02).collect();
    let lost = |dtype: DType, effort: Effort| -> f64 {
        let decoded = decode(dtype, &encode_with(dtype, x.len(), &x, effort).unwrap());
        decoded.iter().zip(&x).map(|(d, x)| (d - f64::from(*x)).powi(2)).sum()
    };
    for dtype in [
        DType::Q4_1,
        DType::Q5_1,
        DType::Q2_K,
        DType::Q3_K,
        DType::Q4_K,
        DType::Q5_K,
        DType::Q6_K,
        DType::IQ4_NL,
        DType::IQ4_XS,
        DType::IQ3_S,
        DType::IQ3_XXS,
        DType::IQ2_S,
        DType::IQ2_XS,
        DType::IQ2_XXS,
        DType::IQ1_M,
        DType::IQ1_S,
    ] {
        let [quick, search] = [Effort::Quick, Effort::Search].map(|effort| lost(dtype, effort));
        assert!(search < quick, "{dtype}: {search:e}, not less than {quick:e}");
    }
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q5_0] {
        let bytes = |effort| encode_with(dtype, x.len(), &x, effort).unwrap();
        assert_eq!(bytes(Effort::Quick), bytes(Effort::Search), "{dtype}");
    }
}

/// Squared errors of 64 rows of 1024, relative to the sum of squares: with importance 1 for all columns, and
/// with other importances, weighted by them. The bounds are the errors of ggml's own encoders (August 2026)
/// on the same values with the same importance.
#[test]
fn importance_is_worth_as_much_as_in_ggml() {
    let (mut rng, columns) = (Rng::new(1), 1024);
    let x: Vec<f32> = (0..64 * columns).map(|_| rng.normal() * 0.02).collect();
    let importance: Vec<f32> = (0..columns).map(|_| (1.5 * rng.normal()).exp()).collect();
    let even = vec![1.0; columns];
    let lost = |dtype: DType, bytes: &[u8], importance: &[f32]| {
        let decoded = decode(dtype, bytes);
        let sums = decoded.iter().zip(&x).enumerate().fold([0.0; 2], |[lost, all], (i, (d, x))| {
            let (x, weight) = (f64::from(*x), f64::from(importance[i % columns]));
            [lost + weight * (d - x).powi(2), all + weight * x * x]
        });
        sums[0] / sums[1]
    };
    let mut points = Vec::new();
    for (dtype, of_even, of_weighted) in [
        (DType::Q4_0, 0.00669, 0.00482),
        (DType::Q4_1, 0.00490, 0.00292),
        (DType::Q5_0, 0.00164, 0.00121),
        (DType::Q5_1, 0.00115, 0.00068),
        (DType::Q2_K, 0.07195, 0.03726),
        (DType::Q3_K, 0.02102, 0.01387),
        (DType::Q4_K, 0.00502, 0.00305),
        (DType::Q5_K, 0.00126, 0.00082),
        (DType::Q6_K, 0.00030, 0.00020),
        (DType::IQ4_NL, 0.00565, 0.00386),
        (DType::IQ4_XS, 0.00575, 0.00397),
        (DType::IQ3_S, 0.01872, 0.01042),
        (DType::IQ3_XXS, 0.03318, 0.01535),
        (DType::IQ2_S, 0.06222, 0.03829),
        (DType::IQ2_XS, 0.08992, 0.04678),
        (DType::IQ2_XXS, 0.11792, 0.06652),
        (DType::IQ1_M, 0.20480, 0.10641),
        (DType::IQ1_S, 0.23820, 0.14837),
    ] {
        let coded = |importance: &[f32]| encode_weighted(dtype, columns, &x, importance).unwrap();
        let (evenly, weighted) = (coded(&even), coded(&importance));
        let searched = encode_with(dtype, columns, &x, Effort::Search).unwrap();
        // ggml's values are given to five decimal places.
        let [a, b] = [lost(dtype, &evenly, &even), lost(dtype, &weighted, &importance)];
        assert!(a < of_even + 5e-6, "{dtype}: {a}, in ggml {of_even}");
        assert!(b < of_weighted + 5e-6, "{dtype}: {b} by importance, in ggml {of_weighted}");
        for other in [&evenly, &searched] {
            let other = lost(dtype, other, &importance);
            assert!(b < 0.9 * other, "{dtype}: {b} by importance, without it {other}");
        }
        if crate::grids::grid(dtype).is_some() {
            points.push((dtype, a));
        }
    }
    assert!(points.is_sorted_by(|a, b| a.1 < b.1), "more bits, less lost: {points:?}");
}

/// Only the ratios of importances matter, and columns of importance zero keep some precision.
#[test]
fn importance_is_relative() {
    let mut rng = Rng::new(2);
    let x: Vec<f32> = (0..4096).map(|_| rng.normal()).collect();
    let importance: Vec<f32> = (0..512).map(|_| rng.normal().abs()).collect();
    let twice: Vec<f32> = importance.iter().map(|v| v * 2f32.powi(-60)).collect();
    let half: Vec<f32> = (0..512).map(|i| (i / 16 % 2) as f32).collect();
    for info in crate::dtype::DTYPES.iter().filter(|i| i.computable && i.block > 1) {
        let dtype = info.dtype;
        let coded = |importance: &[f32]| encode_weighted(dtype, 512, &x, importance).unwrap();
        assert_eq!(coded(&importance), coded(&twice), "{dtype}");
        assert_eq!(coded(&[0.0; 512]), coded(&[1.0; 512]), "{dtype}");
        let decoded = decode(dtype, &coded(&half));
        let unused = decoded.iter().zip(&x).enumerate().filter(|(i, _)| i / 16 % 2 == 0);
        let [lost, all] = unused.fold([0.0; 2], |[lost, all], (_, (d, x))| {
            [lost + (d - f64::from(*x)).powi(2), all + f64::from(*x).powi(2)]
        });
        assert!(lost < 0.7 * all, "{dtype}: {lost} of {all}");
    }
}

#[test]
fn importance_is_checked() {
    let x = [1.0; 256];
    for (importance, part) in [
        (vec![1.0; 255], "a number for each of 256 columns"),
        ([vec![1.0; 255], vec![-1.0]].concat(), "importance: -1"),
        ([vec![1.0; 255], vec![f32::NAN]].concat(), "finite"),
        ([vec![f32::INFINITY], vec![1.0; 255]].concat(), "finite"),
    ] {
        let error = encode_weighted(DType::Q4_K, 256, &x, &importance).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Seeded blocks of 32 values whose errors have different weights.
fn weighted_blocks(count: usize) -> Vec<([f32; 32], [f32; 32])> {
    let mut rng = Rng::new(12);
    let mut draw = || std::array::from_fn(|_| rng.normal());
    (0..count).map(|_| (draw(), draw().map(|w: f32| 0.1 + w.abs()))).collect()
}

/// A search for scale and minimum loses little more than the best of a fine raster of both.
#[test]
fn a_scale_and_minimum_are_nearly_the_best() {
    let search = search::Affine { top: 15.0, above_zero: true };
    let mut sums = [0.0; 2];
    for (x, weights) in weighted_blocks(12) {
        let lost = |scale: f32, minimum: f32| -> f32 {
            let error = |v: f32| scale * ((v + minimum) / scale).round().clamp(0.0, 15.0) - minimum - v;
            x.iter().zip(&weights).map(|(v, weight)| weight * error(*v).powi(2)).sum()
        };
        let [scale, minimum] = search.best(&x, &weights);
        let mut least = f32::INFINITY;
        for (i, j) in (0..80).flat_map(|i| (0..80).map(move |j| (i, j))) {
            let scale = scale * (0.8 + 0.005 * i as f32);
            least = least.min(lost(scale, minimum + scale * (j as f32 - 40.0) / 20.0));
        }
        sums[0] += lost(scale, minimum);
        sums[1] += least;
    }
    assert!(sums[0] < 1.06 * sums[1], "{sums:?}");
}

/// A search for a scale loses little more than the best of a fine raster of either sign.
#[test]
fn a_scale_is_nearly_the_best() {
    for (zero, bound) in [(4.0f32, 1.04), (16.0, 1.06), (32.0, 1.08)] {
        let mut sums = [0.0; 2];
        for (x, weights) in weighted_blocks(24) {
            let lost = |scale: f32| -> f32 {
                let error = |v: f32| scale * (v / scale).round().clamp(-zero, zero - 1.0) - v;
                x.iter().zip(&weights).map(|(v, weight)| weight * error(*v).powi(2)).sum()
            };
            let most = extreme(&x) / zero;
            let all = (1400..3000).flat_map(|i| [-0.0005, 0.0005].map(|step| i as f32 * step * most));
            sums[0] += lost(search::signed(&x, &weights, zero));
            sums[1] += all.map(lost).fold(f32::INFINITY, f32::min);
        }
        assert!(sums[0] < bound * sums[1], "{zero}: {sums:?}");
    }
}

/// Weights that were in a type of 4 bits before lie on a grid. A search finds it: types with more bits lose
/// much less of them than of other weights.
#[test]
fn a_grid_of_weights_is_found() {
    let mut rng = Rng::new(6);
    let normal: Vec<f32> = (0..8192).map(|_| rng.normal() * 0.02).collect();
    let grid = decode(DType::Q4_1, &encode(DType::Q4_1, normal.len(), &normal).unwrap());
    let grid: Vec<f32> = grid.iter().map(|v| half::f16::from_f64(*v).to_f32()).collect();
    let lost = |dtype: DType, x: &[f32]| {
        let decoded = decode(dtype, &encode_with(dtype, x.len(), x, Effort::Search).unwrap());
        decoded.iter().zip(x).map(|(d, x)| (d - f64::from(*x)).powi(2)).sum::<f64>()
    };
    for (dtype, ratio) in [(DType::Q4_1, 1e-3), (DType::Q5_1, 1e-2), (DType::Q4_K, 0.06), (DType::Q5_K, 0.25)]
    {
        let [on, off] = [&grid, &normal].map(|x| lost(dtype, x));
        assert!(on < ratio * off, "{dtype}: {on:e} on a grid, {off:e} otherwise");
    }
}

/// Integer scales of parts are chosen together: rounding each one to the nearest multiple loses more.
#[test]
fn integer_scales_are_chosen_together() {
    let mut rng = Rng::new(7);
    let mut sums = [0.0f32; 2];
    for _ in 0..32 {
        let block: [f32; 256] = std::array::from_fn(|_| rng.normal());
        let code = |v: f32| v.round().clamp(-4.0, 3.0);
        let parts = parts::Parts::new(&block, &[1.0; 256], 16);
        let fits = parts.map(|x, weights| search::signed(x, weights, 4.0));
        let chosen = [parts.multiples::<16>(&fits, 8.0, code), signed_scales(&fits, 8.0)];
        for (sum, (unit, multiples)) in sums.iter_mut().zip(chosen) {
            for (part, multiple) in block.chunks(16).zip(multiples) {
                let scale = unit.to_f32() * f32::from(multiple);
                *sum += part.iter().map(|v| (scale * code(v * inverse(scale)) - v).powi(2)).sum::<f32>();
            }
        }
    }
    assert!(sums[0] < 0.99 * sums[1], "{sums:?}");
}
