use super::*;
use crate::rng::Rng;

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let tensor = crate::tensor::Tensor {
        name: "t".into(),
        dtype,
        ne: [bytes.len() / dtype.block_bytes() * dtype.block(), 1, 1, 1],
        nb: [dtype.block_bytes(), bytes.len(), bytes.len(), bytes.len()],
        root: crate::TensorId(0),
        offset: 0,
        source: crate::Source::Input,
    };
    crate::reference::Operand::new(&tensor, bytes).row([0, 0, 0]).unwrap()
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
    // Below zero are elements 0 and 1 only.
    assert_eq!((b.len(), &b[..6], b[6], b[7]), (22, &[0x00, 0x3c, 0xfc, 0xff, 0xff, 0xff][..], 0x78, 0xf0));
    let b = encode(DType::Q5_1, 32, &y).unwrap();
    assert_eq!((b.len(), &b[..4], b[8], b[9]), (24, &[0x00, 0x3c, 0x00, 0xcc][..], 0x78, 0xf0));
    y[2] = 5.0; // 1.25 steps of 4, as near to 1 as to 1.5: the first of them, and so for 7
    let b = encode(DType::MXFP4, 32, &y).unwrap();
    assert_eq!((b.len(), b[0], b[1], b[2], b[3]), (17, 129, 0x3c, 0x6e, 0x02));
    assert!(encode(DType::Q8_0, 31, &x[..31]).is_err());
    assert!(encode(DType::Q8_K, 256, &[0.0; 256]).is_err());
}

/// Error of each type on what weights look like: about what its steps give.
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

/// Zeros stay zeros, equal and positive values keep their size, nothing becomes NaN.
#[test]
fn edges() {
    let types = crate::dtype::DTYPES.iter().filter(|i| i.computable && i.block > 1);
    for (info, effort) in types.flat_map(|info| [(info, Effort::Quick), (info, Effort::Search)]) {
        let dtype = info.dtype;
        let coded = |x: &[f32]| encode_with(dtype, x.len(), x, effort).unwrap();
        let zeros = decode(dtype, &coded(&[0.0; 256]));
        assert!(zeros.iter().all(|x| *x == 0.0), "{dtype} {effort:?}");
        for value in [0.75f32, -0.75] {
            let error: f64 = decode(dtype, &coded(&[value; 256]))
                .iter()
                .map(|x| (x / f64::from(value) - 1.0).powi(2))
                .sum();
            assert!(error / 256.0 < 0.02, "{dtype} {value} {effort:?}: {error:e}");
        }
        let large = [f32::MAX, f32::MIN, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 8.0, 0.0].repeat(128);
        assert_eq!(coded(&large).len(), 768 / info.block * info.bytes, "{dtype} {effort:?}");
    }
}

/// What a search finds loses less than a quick fit by the errors that it weighs, and never much more by plain ones.
#[test]
fn a_search_loses_less() {
    let mut rng = Rng::new(8);
    let x: Vec<f32> = (0..16384).map(|_| rng.normal() * 0.02).collect();
    let lost = |dtype: DType, effort: Effort| {
        let decoded = decode(dtype, &encode_with(dtype, x.len(), &x, effort).unwrap());
        let square = |weight: fn(f64) -> f64| -> f64 {
            let errors =
                decoded.iter().zip(&x).map(|(d, x)| (d - f64::from(*x)).powi(2) * weight(f64::from(*x)));
            errors.sum()
        };
        [square(|_| 1.0), square(|x| x * x), square(f64::abs)]
    };
    for (dtype, weighed) in [
        (DType::Q2_K, 2),
        (DType::Q3_K, 1),
        (DType::Q4_K, 2),
        (DType::Q5_K, 2),
        (DType::Q6_K, 1),
        (DType::IQ4_NL, 1),
        (DType::IQ4_XS, 1),
    ] {
        let (quick, search) = (lost(dtype, Effort::Quick), lost(dtype, Effort::Search));
        assert!(search[weighed] < quick[weighed], "{dtype}: {search:?}, not less than {quick:?}");
        assert!(search[0] < 1.1 * quick[0], "{dtype}: {search:?}, {quick:?}");
    }
    let bytes = |effort| encode_with(DType::Q4_0, x.len(), &x, effort).unwrap();
    assert_eq!(bytes(Effort::Quick), bytes(Effort::Search));
}
