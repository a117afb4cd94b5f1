//! The kernels in registers in software, and in those of the processor where it has them.

use super::*;
use crate::cpu::dot::block::{ForQuant, with_quant};
use crate::cpu::dot::kernels::BlockKernels;
use crate::cpu::dot::quantize::RowScratch;
use crate::encode::encode;
use crate::op::mul_mat::WEIGHT_TYPES;
use crate::rng::Rng;

/// Elements of a row, rows, and columns: several segments of groups, a group that fills up the last ones, two
/// blocks and a part of a third.
const SIZES: [(usize, usize, usize); 3] = [(1280, ROWS, 37), (32 * 5, 19, 16), (32, 1, 1)];

/// Kernels with registers in software, and with those of the processor.
fn kernels<Q: Quant>(detected: Detected) -> Vec<TileKernels> {
    let (pack, _) = int8::kernels::<Q>();
    let layout = Layout::Blocks8 { sums: Sums::of::<Q>(), minima: Q::MINIMA, factors: int8::factors::<Q>() };
    let model = TileKernels { detected, layout, pack, multiply: int8::tests::in_software::<Q> };
    [Some(model), hardware().and_then(TileKernels::of_blocks::<Q>)].into_iter().flatten().collect()
}

/// Returns the instruction set of a machine that has tile registers.
fn hardware() -> Option<Detected> {
    Isa::Amx.available().then(|| Detected::new(Some(Isa::Amx)).unwrap())
}

/// Returns AVX-512, which the kernels use beside tile registers; prints a message without it.
fn avx512() -> Option<Detected> {
    if !Isa::Avx512.available() {
        println!("skipped: this machine has no AVX-512");
        return None;
    }
    Some(Detected::new(Some(Isa::Avx512)).unwrap())
}

/// Multiplies rows with columns of `k` elements: `[column][row]`.
fn product(kernels: &TileKernels, rows: &[&[u8]], x: &[f32], k: usize) -> Vec<Vec<f32>> {
    let mut group = [rows[0]; ROWS];
    group[..rows.len()].copy_from_slice(rows);
    let [values, factors] = kernels.panel_bytes(k);
    // What a panel had before shows in no product.
    let (mut values, mut factors) = (vec![0xff; values], vec![f32::NAN; factors / 4]);
    kernels.pack(&group, &mut values, &mut factors);
    let columns: Vec<&[f32]> = x.chunks_exact(k).collect();
    let lines = kernels.block_lines(k);
    let blocks = columns.len().div_ceil(COLUMNS);
    let mut x = crate::cpu::execution::lines(blocks * lines * 64).unwrap();
    for (c, column) in columns.iter().enumerate() {
        kernels.put(column, c % COLUMNS, &mut x[c / COLUMNS * lines..][..lines]);
    }
    let mut products = vec![[[f32::NAN; ROWS]; COLUMNS]; blocks];
    kernels.multiply(&values, &factors, &x, &mut products);
    let products = products.as_flattened().iter().take(columns.len());
    products.map(|products| products[..rows.len()].to_vec()).collect()
}

/// Products of all quantised types equal those of the kernel for one column, bit for bit.
#[test]
fn integer_products_equal_those_of_vectors() {
    struct Check(DType, Detected);
    impl ForQuant for Check {
        type Out = ();

        fn call<Q: Quant>(self) {
            let Check(dtype, detected) = self;
            let vectors = BlockKernels::of(dtype, detected).unwrap();
            for (k, m, n) in SIZES.map(|(k, m, n)| (k.next_multiple_of(32 * Q::GROUPS), m, n)) {
                let mut rng = Rng::new(k as u64);
                let mut value = || rng.uniform(-1.0, 1.0);
                let weights: Vec<f32> = (0..k * m).map(|_| value()).collect();
                let x: Vec<f32> = (0..k * n).map(|_| value()).collect();
                let weights = encode(dtype, k, &weights).unwrap();
                let rows: Vec<&[u8]> = weights.chunks_exact(weights.len() / m).collect();
                let row = RowScratch::new(k, false);
                let mut lines = crate::cpu::execution::lines(row.lines() * 64).unwrap();
                for kernels in kernels::<Q>(detected) {
                    let products = product(&kernels, &rows, &x, k);
                    for (x, products) in x.chunks_exact(k).zip(products) {
                        crate::cpu::simd::dispatch(detected, Fill(row, vectors.sums, x, &mut lines));
                        for (rows, got) in rows.chunks(8).zip(products.chunks(8)) {
                            let group = std::array::from_fn(|r| rows[r.min(rows.len() - 1)]);
                            let want = vectors.dot8(&group, row.column(&lines), 0);
                            assert_eq!(got, &want[..got.len()], "{dtype} k={k} m={m} n={n}");
                        }
                    }
                }
            }
        }
    }
    let Some(detected) = avx512() else { return };
    for &dtype in WEIGHT_TYPES.iter().filter(|t| t.is_quantized()) {
        with_quant(dtype, Check(dtype, detected)).unwrap();
    }
}

/// Job that quantises a column.
struct Fill<'a>(RowScratch, Sums, &'a [f32], &'a mut [Line]);

impl crate::cpu::simd::Job for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: crate::cpu::simd::Simd>(self, s: S) {
        self.0.fill(s, self.1, self.2, self.3);
    }
}

/// Products of F16 and BF16 weights have the error of activations with 16 significant bits. Rows end within a step,
/// and no value of what is beyond them is used.
#[test]
fn float_products_keep_sixteen_bits() {
    let Some(detected) = avx512() else { return };
    for (k, m, n) in [(1024 + 45, ROWS, 37), (45, 19, 16), (1, 1, 1), (160, 32, 48)] {
        let mut rng = Rng::new(k as u64);
        let weights: Vec<f32> = (0..k * m).map(|_| rng.normal()).collect();
        let x: Vec<f32> = (0..k * n).map(|_| rng.normal()).collect();
        for (dtype, pack, multiply, weight_parts) in [
            (DType::F16, bf16::kernels::<2>().0, bf16::tests::in_software::<2> as Multiply, 2),
            (DType::BF16, bf16::kernels::<1>().0, bf16::tests::in_software::<1> as Multiply, 1),
        ] {
            let bytes = encode(dtype, k, &weights).unwrap();
            let rows: Vec<&[u8]> = bytes.chunks_exact(2 * k).collect();
            let layout = Layout::Halves { weights: weight_parts };
            let model = TileKernels { detected, layout, pack, multiply };
            let real = hardware().and_then(|detected| TileKernels::of_floats(dtype, detected));
            for kernels in [Some(model), real].into_iter().flatten() {
                let got = product(&kernels, &rows, &x, k).concat();
                let want: Vec<f32> =
                    x.chunks_exact(k).flat_map(|x| rows.iter().map(|row| dot(dtype, row, x))).collect();
                let d = crate::metrics::distance(&got, &want);
                assert!(d.nmse < 3e-10, "{dtype} k={k} m={m} n={n}: {d:?}");
            }
        }
    }
}

/// Returns a product in f64.
fn dot(dtype: DType, row: &[u8], x: &[f32]) -> f32 {
    let values = row.chunks_exact(2).map(|b| match dtype {
        DType::F16 => half::f16::from_le_bytes([b[0], b[1]]).to_f64(),
        _ => half::bf16::from_le_bytes([b[0], b[1]]).to_f64(),
    });
    values.zip(x).map(|(w, &x)| w * f64::from(x)).sum::<f64>() as f32
}

/// A sum of two BF16 values keeps what is not finite, and the sixteen upper bits of the others.
#[test]
fn values_are_split_into_two() {
    let few =
        [0.0, -0.0, 1.0, -1.0 - f32::EPSILON, 0.1, 65504.0, f32::MAX, f32::MIN, 1e-30, 3.0e38, -7.25, 1e10];
    let values = std::array::from_fn(|i| few[i % few.len()]);
    let [upper, lower] =
        bf16::tests::split_values(&values).map(|part| part.map(|bits| f32::from_bits(u32::from(bits) << 16)));
    for (i, x) in values.into_iter().enumerate() {
        let sum = f64::from(upper[i]) + f64::from(lower[i]);
        assert!((sum - f64::from(x)).abs() <= f64::from(x).abs() * 2.0_f64.powi(-16), "{x}");
    }
    // A NaN whose only bits are among the lower ones.
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7f80_0001)];
    let [upper, lower] = bf16::tests::split_values(&std::array::from_fn(|i| special[i % 4]));
    assert_eq!(lower, [0; 16]);
    assert_eq!([upper[0], upper[1]], [0x7f80, 0xff80]);
    assert!(upper[2..4].iter().all(|bits| f32::from_bits(u32::from(*bits) << 16).is_nan()));
}
