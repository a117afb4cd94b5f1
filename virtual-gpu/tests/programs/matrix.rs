//! Products of matrices with the matrix units of CDNA, compared with plain ones.

use crate::programs::{MATRIX, on_targets};
use crate::support::{Arguments, CDNA, Random, Session};
use bytemuck::Pod;

/// Rows of a, rows of b, and their columns.
const SIZES: [usize; 3] = [64, 128, 96];

/// Small integers: sums are exact in every type.
fn numbers(seed: u64, count: usize) -> Vec<i32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.below(17) as i32 - 8).collect()
}

/// Returns a (m x k) times the transposed b (n x k).
fn product(a: &[i32], b: &[i32]) -> Vec<i32> {
    let [m, n, k] = SIZES;
    let dot = |i: usize, j: usize| (0..k).map(|x| a[i * k + x] * b[j * k + x]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| dot(i, j))).collect()
}

/// Runs a kernel on matrices of a type; `tile` is the size of a group's tile.
fn check<T: Pod, R: Pod>(kernel: &str, tile: usize, from: fn(i32) -> T, to: fn(R) -> f64) {
    let [m, n, k] = SIZES;
    let (a, b) = (numbers(1, m * k), numbers(2, n * k));
    let want = product(&a, &b);
    let typed = |x: &[i32]| x.iter().map(|&x| from(x)).collect::<Vec<T>>();
    on_targets(&CDNA, MATRIX, |session: &Session| {
        let (a, b) = (session.upload(&typed(&a)), session.upload(&typed(&b)));
        let c = session.allocate(m * n * size_of::<R>());
        let groups = [(n / tile) as u32, (m / tile) as u32, 1];
        let arguments = Arguments::new().add(a).add(b).add(c).add(n as u32).add(k as u32);
        let counters = session.run(kernel, groups, [64, 1, 1], &arguments);
        assert!(counters.matrix > 0);
        let got: Vec<f64> = session.download::<R>(c, m * n).into_iter().map(to).collect();
        assert!(got.iter().zip(&want).all(|(&got, &want)| got == f64::from(want)), "{kernel}");
    });
}

#[test]
fn tiles_of_halves() {
    let half = |x: i32| half::f16::from_f32(x as f32).to_bits();
    check::<u16, f32>("half_16", 16, half, f64::from);
    check::<u16, f32>("half_32", 64, half, f64::from);
}

#[test]
fn tiles_of_other_types() {
    check::<u16, f32>("bf16_16", 16, |x| half::bf16::from_f32(x as f32).to_bits(), f64::from);
    check::<i8, i32>("int8_16", 16, |x| x as i8, f64::from);
    check::<f32, f32>("float_16", 16, |x| x as f32, f64::from);
    check::<f64, f64>("double_16", 16, f64::from, |x| x);
}

#[test]
fn work_items_and_sums_of_doubles() {
    on_targets(&CDNA, MATRIX, |session| {
        let (out, sum) = (session.allocate(256 * 4), session.upload(&[0f64; 2]));
        session.run("ids", [1; 3], [4, 8, 8], &Arguments::new().add(out).add(sum));
        let ids: Vec<u32> = session.download(out, 256);
        for (flat, id) in (0..256).zip(ids) {
            assert_eq!(id, (flat % 4) | ((flat / 4 % 8) << 8) | ((flat / 32) << 16), "work-item {flat}");
        }
        let sums: Vec<f64> = session.download(sum, 2);
        assert_eq!(sums, [f64::from(255 * 256 / 4), f64::from(255 * 256 / 2)]);
    });
}
