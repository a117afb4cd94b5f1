//! Matrix instructions: MFMA of gfx90a and gfx942, WMMA of gfx11; the same product without them elsewhere.

use crate::programs::MATRICES;
use crate::programs::exact::{BFLOAT, Format, HALF};
use crate::programs::variants::{Program, Units, everywhere};
use crate::support::{Arguments, Random};
use half::f16;

/// Type of the elements of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    F64,
    F32,
    F16,
    Bf16,
    I8,
}

/// An instruction on `blocks` products of M x K by K x M.
type Shape = (&'static str, usize, usize, usize, Element);

/// Instructions of both CDNA targets.
const MFMA: [Shape; 18] = [
    ("mfma_f32_32x32x1f32", 32, 1, 2, Element::F32),
    ("mfma_f32_16x16x1f32", 16, 1, 4, Element::F32),
    ("mfma_f32_4x4x1f32", 4, 1, 16, Element::F32),
    ("mfma_f32_32x32x2f32", 32, 2, 1, Element::F32),
    ("mfma_f32_16x16x4f32", 16, 4, 1, Element::F32),
    ("mfma_f32_32x32x4f16", 32, 4, 2, Element::F16),
    ("mfma_f32_16x16x4f16", 16, 4, 4, Element::F16),
    ("mfma_f32_4x4x4f16", 4, 4, 16, Element::F16),
    ("mfma_f32_32x32x8f16", 32, 8, 1, Element::F16),
    ("mfma_f32_16x16x16f16", 16, 16, 1, Element::F16),
    ("mfma_f32_32x32x8bf16_1k", 32, 8, 1, Element::Bf16),
    ("mfma_f32_16x16x16bf16_1k", 16, 16, 1, Element::Bf16),
    ("mfma_f32_4x4x4bf16_1k", 4, 4, 16, Element::Bf16),
    ("mfma_i32_32x32x4i8", 32, 4, 2, Element::I8),
    ("mfma_i32_16x16x4i8", 16, 4, 4, Element::I8),
    ("mfma_i32_4x4x4i8", 4, 4, 16, Element::I8),
    ("mfma_f64_16x16x4f64", 16, 4, 1, Element::F64),
    ("mfma_f64_4x4x4f64", 4, 4, 4, Element::F64),
];
/// Instructions that gfx940 dropped.
const NARROW: [Shape; 4] = [
    ("mfma_i32_32x32x8i8", 32, 8, 1, Element::I8),
    ("mfma_i32_16x16x16i8", 16, 16, 1, Element::I8),
    ("mfma_f32_32x32x4bf16", 32, 4, 1, Element::Bf16),
    ("mfma_f32_16x16x8bf16", 16, 8, 1, Element::Bf16),
];
/// Instructions that gfx940 added.
const WIDE: [Shape; 2] =
    [("mfma_i32_32x32x16_i8", 32, 16, 1, Element::I8), ("mfma_i32_16x16x32_i8", 16, 32, 1, Element::I8)];

/// Elements as numbers, and as the bytes in memory.
fn elements(random: &mut Random, element: Element, count: usize) -> (Vec<f64>, Vec<u8>) {
    let mut values = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..count {
        let x = f64::from(random.unit()) * 2.0;
        let small = |format: Format| {
            let bits = format.nearest(x);
            (format.value(bits), bits.to_le_bytes().to_vec())
        };
        let (value, raw) = match element {
            Element::F64 => (x, x.to_le_bytes().to_vec()),
            Element::F32 => (f64::from(x as f32), (x as f32).to_le_bytes().to_vec()),
            Element::F16 => small(HALF),
            Element::Bf16 => small(BFLOAT),
            Element::I8 => {
                let byte = random.u32() as u8 as i8;
                (f64::from(byte), vec![byte as u8])
            }
        };
        values.push(value);
        bytes.extend(raw);
    }
    (values, bytes)
}

fn multiply(p: &Program, shape: Shape) {
    let (kernel, m, k, blocks, element) = shape;
    let mut random = Random::new(kernel.len() as u64 * 31 + k as u64);
    let (a, raw_a) = elements(&mut random, element, blocks * m * k);
    let (b, raw_b) = elements(&mut random, element, blocks * k * m);
    let (kind, tolerance) = match element {
        Element::F64 => (Element::F64, 1e-14),
        Element::I8 => (Element::I8, 0.0),
        _ => (Element::F32, 1e-5),
    };
    let size = blocks * m * m;
    let (c, raw_c): (Vec<f64>, Vec<u8>) = if kind == Element::I8 {
        let c: Vec<i32> = (0..size).map(|_| random.u32() as i32 >> 4).collect();
        (c.iter().map(|&x| f64::from(x)).collect(), bytemuck::cast_slice(&c).to_vec())
    } else {
        elements(&mut random, kind, size)
    };
    let (left, right, start, to) =
        (p.upload(&raw_a), p.upload(&raw_b), p.upload(&raw_c), p.allocate(raw_c.len()));
    p.run(kernel, [1; 3], [64, 1, 1], &Arguments::new().add(left).add(right).add(start).add(to));
    let got: Vec<f64> = match kind {
        Element::F64 => p.download::<f64>(to, size),
        Element::F32 => p.download::<f32>(to, size).into_iter().map(f64::from).collect(),
        _ => p.download::<i32>(to, size).into_iter().map(f64::from).collect(),
    };
    for (at, got) in got.into_iter().enumerate() {
        let (block, row, column) = (at / (m * m), at / m % m, at % m);
        let products =
            (0..k).map(|k_at| a[(block * m + row) * k + k_at] * b[(block * k + k_at) * m + column]);
        let expected = c[at] + products.sum::<f64>();
        let near = (got - expected).abs() <= tolerance;
        assert!(near, "{kernel}: block {block}, row {row}, column {column}: {got}, expected {expected}");
    }
}

#[test]
fn mfma() {
    everywhere(MATRICES, |p| {
        let Units::Cdna { wide_integers } = p.units else {
            assert!(p.module.kernel(MFMA[0].0).is_none());
            return;
        };
        let others: &[Shape] = if wide_integers { &WIDE } else { &NARROW };
        MFMA.iter().chain(others).for_each(|&shape| multiply(p, shape));
    });
}

/// Runs a WMMA kernel on bytes of A, B and C; returns `N` tiles.
fn tiles<T: bytemuck::Pod>(p: &Program, kernel: &str, a: &[u8], b: &[u8], c: &[T], count: usize) -> Vec<T> {
    let (left, right, start) = (p.upload(a), p.upload(b), p.upload(c));
    let to = p.allocate(count * 256 * size_of::<T>());
    let arguments = Arguments::new().add(left).add(right).add(start).add(to);
    p.run(kernel, [1; 3], [p.wave as u32, 1, 1], &arguments);
    p.download(to, count * 256)
}

/// Returns element `at` of a 16 x 16 product.
fn product(a: &[f64], b: &[f64], at: usize) -> f64 {
    (0..16).map(|k| a[at / 16 * 16 + k] * b[k * 16 + at % 16]).sum()
}

#[test]
fn wmma_of_floats() {
    let mut random = Random::new(90);
    everywhere_with_wmma(|p| {
        for (kernel, element) in
            [("wmma_f32_16x16x16_f16", Element::F16), ("wmma_f32_16x16x16_bf16", Element::Bf16)]
        {
            let mut random = Random::new(91);
            let (a, raw_a) = elements(&mut random, element, 256);
            let (b, raw_b) = elements(&mut random, element, 256);
            let c: Vec<f32> = (0..256).map(|_| random.unit()).collect();
            for (at, got) in tiles(p, kernel, &raw_a, &raw_b, &c, 1).into_iter().enumerate() {
                let expected = f64::from(c[at]) + product(&a, &b, at);
                assert!(
                    (f64::from(got) - expected).abs() < 1e-5,
                    "{kernel} {at}: {got}, expected {expected}"
                );
            }
        }
    });
    // Sums of 16 bits: integers that the format holds.
    let [a, b] = [(); 2].map(|()| (0..256).map(|_| f64::from(random.below(5)) - 2.0).collect::<Vec<f64>>());
    let c: Vec<f64> = (0..256).map(|_| f64::from(random.below(100)) - 50.0).collect();
    everywhere_with_wmma(|p| {
        for (kernel, format) in [("wmma_f16_16x16x16_f16", HALF), ("wmma_bf16_16x16x16_bf16", BFLOAT)] {
            let bits = |v: &[f64]| v.iter().map(|&x| format.nearest(x)).collect::<Vec<u16>>();
            let (raw_a, raw_b) = (bits(&a), bits(&b));
            let (raw_a, raw_b) = (bytemuck::cast_slice(&raw_a), bytemuck::cast_slice(&raw_b));
            let got: Vec<f64> =
                tiles(p, kernel, raw_a, raw_b, &bits(&c), 3).into_iter().map(|h| format.value(h)).collect();
            for at in 0..256 {
                let expected = [(&a, &b), (&b, &a), (&a, &a)].map(|(x, y)| c[at] + product(x, y, at));
                assert_eq!([got[at], got[256 + at], got[512 + at]], expected, "{kernel} {at}");
            }
        }
    });
}

#[test]
fn wmma_of_integers() {
    let mut random = Random::new(92);
    let [a, b] = [(); 2].map(|()| (0..256).map(|_| random.u32() as u8).collect::<Vec<u8>>());
    // A third is so close to the limits that the sum saturates.
    let c: Vec<i32> =
        (0..256).map(|i| [random.u32() as i32 >> 8, i32::MAX - 9, i32::MIN + 9][i % 3]).collect();
    everywhere_with_wmma(|p| {
        for (kernel, bits) in [("wmma_i32_16x16x16_iu8", 8), ("wmma_i32_16x16x16_iu4", 4)] {
            let got = tiles(p, kernel, &a, &b, &c, 5);
            let values = |raw: &[u8], signed: bool| {
                let value = |&byte: &u8| {
                    let shifted = byte << (8 - bits);
                    f64::from(if signed {
                        i32::from(shifted as i8) >> (8 - bits)
                    } else {
                        i32::from(shifted >> (8 - bits))
                    })
                };
                raw.iter().map(value).collect::<Vec<f64>>()
            };
            for (tile, (left, right)) in
                [(false, false), (true, false), (false, true), (true, true), (true, true)]
                    .into_iter()
                    .enumerate()
            {
                let (x, y) = (values(&a, left), values(&b, right));
                for at in 0..256 {
                    let sum = i64::from(c[at]) + product(&x, &y, at) as i64;
                    let saturated = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
                    let expected = if tile == 4 { saturated } else { sum as i32 };
                    assert_eq!(got[tile * 256 + at], expected, "{kernel}: tile {tile}, element {at}");
                }
            }
        }
    });
}

/// Runs a check where WMMA exists; elsewhere the kernels must be absent.
fn everywhere_with_wmma(check: impl Fn(&Program)) {
    everywhere(MATRICES, |p| {
        let present = p.module.kernel("wmma_i32_16x16x16_iu8").is_some();
        assert_eq!(present, p.units == Units::Gfx11);
        if present {
            check(p);
        }
    });
}

#[test]
fn product_in_tiles() {
    let (height, depth, width) = (64usize, 48, 96);
    let mut random = Random::new(93);
    let mut matrix = |count| (0..count).map(|_| f16::from_f32(random.unit())).collect::<Vec<f16>>();
    let (a, b) = (matrix(height * depth), matrix(depth * width));
    everywhere(MATRICES, |p| {
        let (left, right, to) = (p.upload(&a), p.upload(&b), p.allocate(height * width * 4));
        let arguments = Arguments::new().add(left).add(right).add(to).add(depth as u32).add(width as u32);
        p.run("tiles", [width as u32 / 32, height as u32 / 32, 1], [128, 1, 1], &arguments);
        for (at, got) in p.download::<f32>(to, height * width).into_iter().enumerate() {
            let (row, column) = (at / width, at % width);
            let products = (0..depth).map(|k| a[row * depth + k].to_f64() * b[k * width + column].to_f64());
            let expected: f64 = products.sum();
            assert!((f64::from(got) - expected).abs() < 1e-4, "{row}, {column}: {got}, expected {expected}");
        }
    });
}
