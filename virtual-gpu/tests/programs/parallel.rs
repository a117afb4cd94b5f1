//! Programs with cooperating work-items.

use crate::programs::variants::{Program, everywhere, everywhere_with};
use crate::programs::{LANES, PARALLEL, numbers};
use crate::support::{Arguments, Random};
use virtual_gpu::FaultKind;

#[test]
fn transposition_through_lds() {
    let (width, height) = (75u32, 50u32);
    let input: Vec<f32> = numbers(3, (width * height) as usize).iter().map(|&x| x as f32).collect();
    everywhere(PARALLEL, |session| {
        let (from, to) = (session.upload(&input), session.allocate(input.len() * 4));
        let arguments = Arguments::new().add(from).add(to).add(width).add(height);
        session.run("transpose", [3, 2, 1], [32, 8, 1], &arguments);
        let output: Vec<f32> = session.download(to, input.len());
        for y in 0..height {
            for x in 0..width {
                assert_eq!(output[(x * height + y) as usize], input[(y * width + x) as usize], "{x}, {y}");
            }
        }
    });
}

#[test]
fn histogram_by_atomics() {
    let mut random = Random::new(4);
    let input: Vec<u8> = (0..5000).map(|_| (random.below(256) * random.below(256) / 256) as u8).collect();
    let mut expected = vec![0u32; 256];
    input.iter().for_each(|&b| expected[usize::from(b)] += 1);
    everywhere(PARALLEL, |session| {
        let (from, bins) = (session.upload(&input), session.upload(&[0u32; 256]));
        session.run("histogram", [5, 1, 1], [256, 1, 1], &Arguments::new().add(from).add(5000u32).add(bins));
        assert_eq!(session.download::<u32>(bins, 256), expected);
    });
}

#[test]
fn bitonic_sort_in_lds() {
    let input: Vec<i32> = numbers(5, 1024).iter().map(|&x| x as i32).collect();
    let mut expected = input.clone();
    expected.chunks_mut(512).for_each(<[i32]>::sort_unstable);
    everywhere(PARALLEL, |session| {
        let data = session.upload(&input);
        session.run("bitonic_sort", [2, 1, 1], [256, 1, 1], &Arguments::new().add(data));
        assert_eq!(session.download::<i32>(data, 1024), expected);
    });
}

#[test]
fn matrix_product_of_doubles() {
    const N: usize = 48;
    let mut random = Random::new(6);
    let [a, b] = [(); 2].map(|()| (0..N * N).map(|_| f64::from(random.unit())).collect::<Vec<f64>>());
    everywhere(PARALLEL, |session| {
        let (left, right, to) = (session.upload(&a), session.upload(&b), session.allocate(N * N * 8));
        let arguments = Arguments::new().add(left).add(right).add(to).add(N as u32);
        session.run("matmul_f64", [3, 3, 1], [16, 16, 1], &arguments);
        let output: Vec<f64> = session.download(to, N * N);
        for (i, c) in output.iter().enumerate() {
            let (row, column) = (i / N, i % N);
            let expected = (0..N).fold(0.0, |sum, k| a[row * N + k].mul_add(b[k * N + column], sum));
            assert_eq!(c.to_bits(), expected.to_bits(), "row {row}, column {column}");
        }
    });
}

#[test]
fn prefix_sum_over_groups() {
    let input = numbers(7, 256 * 9);
    let expected: Vec<u32> = input
        .iter()
        .scan(0u32, |sum, &x| {
            *sum = sum.wrapping_add(x);
            Some(*sum)
        })
        .collect();
    everywhere(PARALLEL, |session| {
        let (from, to) = (session.upload(&input), session.allocate(input.len() * 4));
        let (ticket, chain) = (session.upload(&[0u32]), session.upload(&[0u64; 9]));
        let arguments = Arguments::new().add(from).add(to).add(ticket).add(chain);
        session.run("prefix_sum", [9, 1, 1], [256, 1, 1], &arguments);
        assert_eq!(session.download::<u32>(to, input.len()), expected);
    });
}

#[test]
fn dynamic_lds_and_hidden_sizes() {
    for size in [64u32, 100, 256] {
        let input = numbers(8, size as usize * 3);
        let mut expected = input.clone();
        expected.chunks_mut(size as usize).for_each(<[u32]>::reverse);
        everywhere(PARALLEL, |session| {
            let data = session.upload(&input);
            let arguments = Arguments::new().add(data);
            let result = session.attempt("reverse_dynamic", [3, 1, 1], [size, 1, 1], size * 4, &arguments);
            result.unwrap_or_else(|fault| panic!("{size}: {fault}"));
            assert_eq!(session.download::<u32>(data, input.len()), expected, "{size} work items");
        });
    }
}

#[test]
fn coordinates_in_three_dimensions() {
    let (groups, threads) = ([2u32, 3, 2], [5u32, 4, 3]);
    let count = (0..3).map(|d| groups[d] * threads[d]).product::<u32>();
    let packed = |v: [u32; 3]| v[0] | v[1] << 8 | v[2] << 16;
    everywhere(PARALLEL, |session: &Program| {
        let to = session.allocate(count as usize * 32);
        session.run("coordinates", groups, threads, &Arguments::new().add(to));
        let grid = [0, 1, 2].map(|d| groups[d] * threads[d]);
        for (i, record) in session.download::<[u32; 8]>(to, count as usize).iter().enumerate() {
            let i = i as u32;
            let group = [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]];
            assert_eq!(record[..3], group, "item {i}");
            assert_eq!(record[3], packed(threads), "size of a group");
            assert_eq!(record[4], packed(groups), "number of groups");
            assert_eq!(record[5], packed(grid), "size of the grid");
            assert_eq!(record[6], 0, "remainders");
            assert_eq!(record[7] & 0xffff, 3, "dimensions");
        }
    });
}

#[test]
fn atomics_under_contention() {
    let mut random = Random::new(9);
    let input: Vec<f32> = (0..384).map(|_| random.below(2000) as f32 - 1000.0).collect();
    let sum: f32 = input.iter().sum();
    let low = input.iter().copied().fold(f32::MAX, f32::min) as i32;
    let high = (input.iter().copied().fold(f32::MIN, f32::max) + 1000.0) as u32;
    let wide = (0..384u64).fold(0, |x, i| x ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    everywhere(PARALLEL, |session| {
        let from = session.upload(&input);
        let (sum32, sum64) = (session.upload(&[0u32]), session.upload(&[0u64]));
        let (lowest, highest, mixed) =
            (session.upload(&[0i32]), session.upload(&[0u32]), session.upload(&[0u64]));
        let arguments = Arguments::new().add(from).add(sum32).add(sum64).add(lowest).add(highest).add(mixed);
        session.run("contention", [3, 1, 1], [128, 1, 1], &arguments);
        assert_eq!(session.download::<f32>(sum32, 1), [sum]);
        assert_eq!(session.download::<f64>(sum64, 1), [f64::from(sum)]);
        assert_eq!(session.download::<i32>(lowest, 1), [low]);
        assert_eq!(session.download::<u32>(highest, 1), [high]);
        assert_eq!(session.download::<u64>(mixed, 1), [wide]);
    });
}

/// The same programs with every barrier removed: each has a race or reads uninitialised data.
#[test]
fn programs_without_barriers_are_found() {
    everywhere_with(PARALLEL, "-DWITHOUT_BARRIERS", |p| {
        let [a, b, c] = [(); 3].map(|()| p.upload(&[0u8; 65536]));
        let three = Arguments::new().add(a).add(b).add(c);
        let cases: [(&str, [u32; 3], u32, Arguments); 5] = [
            ("transpose", [32, 8, 1], 0, Arguments::new().add(a).add(b).add(64u32).add(64u32)),
            ("histogram", [256, 1, 1], 0, Arguments::new().add(a).add(1000u32).add(b)),
            ("bitonic_sort", [256, 1, 1], 0, Arguments::new().add(a)),
            ("matmul_f64", [16, 16, 1], 0, three.add(16u32)),
            ("reverse_dynamic", [256, 1, 1], 1024, Arguments::new().add(a)),
        ];
        for (kernel, threads, lds, arguments) in cases {
            let result = p.attempt(kernel, [1; 3], threads, lds, &arguments);
            let fault = result.err().unwrap_or_else(|| panic!("{kernel}: not found"));
            let found = matches!(fault.kind, FaultKind::Race(..) | FaultKind::Uninitialised(_));
            assert!(found && fault.kernel == kernel, "{kernel}: {fault}");
        }
    });
}

/// Several threads use one device at the same time.
#[test]
fn launches_from_several_threads() {
    everywhere(LANES, |session| {
        std::thread::scope(|scope| {
            for seed in 30..34 {
                scope.spawn(move || {
                    let input = numbers(seed, 1024);
                    let sum = |wave: &[u32]| wave.iter().fold(0u32, |a, &b| a.wrapping_add(b));
                    let expected = input.chunks(session.wave).flat_map(|wave| vec![sum(wave); session.wave]);
                    let (from, to) = (session.upload(&input), session.allocate(4096));
                    session.run("reduce_dpp", [4, 1, 1], [256, 1, 1], &Arguments::new().add(from).add(to));
                    let got: Vec<u32> = session.download(to, 1024);
                    assert_eq!(got, expected.collect::<Vec<u32>>(), "thread {seed}");
                });
            }
        });
    });
}
