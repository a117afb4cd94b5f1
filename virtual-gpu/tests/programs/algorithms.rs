//! Sorting, transforms, solvers, dynamic programming, sparse products, random numbers.

use crate::programs::variants::everywhere;
use crate::programs::{ALGORITHMS, numbers};
use crate::support::{Arguments, Random};

#[test]
fn radix_sort() {
    let mut input = numbers(130, 1024);
    input[512..].iter_mut().for_each(|v| *v &= 0x00f0_00ff);
    let mut expected = input.clone();
    expected.chunks_mut(512).for_each(<[u32]>::sort_unstable);
    everywhere(ALGORITHMS, |p| {
        let data = p.upload(&input);
        p.run("radix_sort", [2, 1, 1], [128, 1, 1], &Arguments::new().add(data));
        assert_eq!(p.download::<u32>(data, 1024), expected);
    });
}

#[test]
fn merging_of_lists() {
    let mut random = Random::new(131);
    for (count_a, count_b) in [(300usize, 211usize), (0, 17), (500, 3)] {
        let mut list = |count| {
            let mut list: Vec<i32> = (0..count).map(|_| random.below(400) as i32 - 200).collect();
            list.sort_unstable();
            list
        };
        let (a, b) = (list(count_a.max(1)), list(count_b));
        let mut expected = [&a[..count_a], &b].concat();
        expected.sort_unstable();
        everywhere(ALGORITHMS, |p| {
            let (left, right, to) = (p.upload(&a), p.upload(&b), p.allocate(expected.len() * 4));
            let arguments =
                Arguments::new().add(left).add(count_a as u32).add(right).add(count_b as u32).add(to);
            p.run("merge", [3, 1, 1], [64, 1, 1], &arguments);
            assert_eq!(p.download::<i32>(to, expected.len()), expected, "{count_a} and {count_b}");
        });
    }
}

#[test]
fn fourier_transform() {
    let mut random = Random::new(132);
    let input: Vec<[f32; 2]> = (0..512).map(|_| [random.unit(), random.unit()]).collect();
    let angle = |k: usize| -std::f64::consts::TAU * (k % 256) as f64 / 256.0;
    let roots: Vec<[f32; 2]> = (0..128).map(|k| [angle(k).cos() as f32, angle(k).sin() as f32]).collect();
    everywhere(ALGORITHMS, |p| {
        let (from, table, to) = (p.upload(&input), p.upload(&roots), p.allocate(4096));
        p.run("fourier", [2, 1, 1], [128, 1, 1], &Arguments::new().add(from).add(table).add(to));
        for (i, got) in p.download::<[f32; 2]>(to, 512).into_iter().enumerate() {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for (k, [a, b]) in input[i & 256..][..256].iter().map(|v| v.map(f64::from)).enumerate() {
                let (sin, cos) = angle(k * i).sin_cos();
                real += a * cos - b * sin;
                imaginary += a * sin + b * cos;
            }
            let error = (f64::from(got[0]) - real).hypot(f64::from(got[1]) - imaginary);
            assert!(error < 1e-4, "frequency {i}: {got:?}, expected {real}, {imaginary}");
        }
    });
}

#[test]
fn system_of_equations_of_doubles() {
    const N: usize = 16;
    let mut random = Random::new(133);
    let (mut matrices, mut rights, mut solutions) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        // L * L^T + 1 is positive definite.
        let l: Vec<f64> = (0..N * N).map(|_| f64::from(random.unit())).collect();
        let x: Vec<f64> = (0..N).map(|_| f64::from(random.unit())).collect();
        let m: Vec<f64> = (0..N * N)
            .map(|i| {
                let products = (0..N).map(|k| l[i / N * N + k] * l[i % N * N + k]);
                products.sum::<f64>() + f64::from(u8::from(i / N == i % N))
            })
            .collect();
        rights.extend((0..N).map(|r| (0..N).map(|c| m[r * N + c] * x[c]).sum::<f64>()));
        matrices.extend(m);
        solutions.extend(x);
    }
    everywhere(ALGORITHMS, |p| {
        let (from, right, to) = (p.upload(&matrices), p.upload(&rights), p.allocate(3 * N * 8));
        p.run("cholesky", [3, 1, 1], [256, 1, 1], &Arguments::new().add(from).add(right).add(to));
        for (i, got) in p.download::<f64>(to, 3 * N).into_iter().enumerate() {
            assert!((got - solutions[i]).abs() < 1e-12, "{i}: {got}, expected {}", solutions[i]);
        }
    });
}

/// Returns the number of insertions, deletions and changes from one text to another, by its definition.
fn distance(a: &[u8], b: &[u8]) -> u32 {
    let mut row: Vec<u32> = (0..=b.len() as u32).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i as u32 + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + u32::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j + 1] + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[test]
fn distance_of_texts() {
    assert_eq!(distance(b"kitten", b"sitting"), 3);
    let mut random = Random::new(134);
    let mut texts: Vec<[Vec<u8>; 2]> = vec![
        [b"kitten".to_vec(), b"sitting".to_vec()],
        [b"".to_vec(), b"abc".to_vec()],
        [b"flaw".to_vec(), b"lawn".to_vec()],
        [vec![b'x'; 64], vec![b'x'; 64]],
    ];
    while texts.len() < 10 {
        let mut text = || {
            let length = random.below(65);
            (0..length).map(|_| b'a' + random.below(3) as u8).collect::<Vec<u8>>()
        };
        texts.push([text(), text()]);
    }
    let (mut bytes, mut lengths, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for [a, b] in &texts {
        for text in [a, b] {
            let begin = bytes.len();
            bytes.extend(text);
            bytes.resize(begin + 64, 0u8);
            lengths.push(text.len() as u32);
        }
        expected.push(distance(a, b));
    }
    everywhere(ALGORITHMS, |p| {
        let (from, sizes, to) = (p.upload(&bytes), p.upload(&lengths), p.allocate(40));
        p.run("edit_distance", [10, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(sizes).add(to));
        assert_eq!(p.download::<u32>(to, 10), expected);
    });
}

#[test]
fn sparse_product() {
    const ROWS: usize = 23;
    let mut random = Random::new(135);
    let (mut starts, mut columns, mut values) = (vec![0u32], Vec::new(), Vec::new());
    for row in 0..ROWS {
        for _ in 0..[0, 1, 5, 64, 150][row % 5] {
            columns.push(random.below(200));
            values.push(f64::from(random.unit()));
        }
        starts.push(columns.len() as u32);
    }
    let x: Vec<f64> = (0..200).map(|_| f64::from(random.unit())).collect();
    everywhere(ALGORITHMS, |p| {
        let (begin, at, v) = (p.upload(&starts), p.upload(&columns), p.upload(&values));
        let (vector, to) = (p.upload(&x), p.allocate(ROWS * 8));
        let arguments = Arguments::new().add(begin).add(at).add(v).add(vector).add(to).add(ROWS as u32);
        p.run("sparse", [(ROWS * p.wave).div_ceil(128) as u32, 1, 1], [128, 1, 1], &arguments);
        for (row, got) in p.download::<f64>(to, ROWS).into_iter().enumerate() {
            let range = starts[row] as usize..starts[row + 1] as usize;
            let expected: f64 = range.map(|k| values[k] * x[columns[k] as usize]).sum();
            assert!((got - expected).abs() < 1e-12, "row {row}: {got}, expected {expected}");
        }
    });
}

#[test]
fn shortest_paths() {
    let mut random = Random::new(136);
    let far = 1 << 20;
    let input: Vec<u32> = (0..2048)
        .map(|i| match random.below(8) {
            _ if i % 1024 % 33 == 0 => 0,
            0 => random.below(100) + 1,
            _ => far,
        })
        .collect();
    // Bellman and Ford, from every node.
    let mut expected = Vec::new();
    for (base, start) in (0..2).flat_map(|g| (0..32).map(move |s| (g * 1024, s))) {
        let mut length = vec![far; 32];
        length[start] = 0;
        for _ in 0..32 {
            for (i, &edge) in input[base..][..1024].iter().enumerate() {
                length[i % 32] = length[i % 32].min(length[i / 32] + edge);
            }
        }
        expected.extend(length);
    }
    everywhere(ALGORITHMS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(8192));
        p.run("all_paths", [2, 1, 1], [256, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(p.download::<u32>(to, 2048), expected);
    });
}

#[test]
fn convolution_with_a_margin() {
    let (width, height) = (37usize, 21usize);
    let mut random = Random::new(137);
    let input: Vec<f32> = (0..width * height).map(|_| random.unit()).collect();
    let weights: Vec<f32> = (0..25).map(|_| random.unit()).collect();
    everywhere(ALGORITHMS, |p| {
        let (from, w, to) = (p.upload(&input), p.upload(&weights), p.allocate(input.len() * 4));
        let arguments = Arguments::new().add(from).add(w).add(to).add(width as u32).add(height as u32);
        p.run("convolution", [3, 3, 1], [16, 8, 1], &arguments);
        for (at, got) in p.download::<f32>(to, input.len()).into_iter().enumerate() {
            let mut expected = 0.0f32;
            for (k, weight) in weights.iter().enumerate() {
                let (x, y) = ((at % width + k % 5).wrapping_sub(2), (at / width + k / 5).wrapping_sub(2));
                let inside = x < width && y < height;
                expected = weight.mul_add(if inside { input[y * width + x] } else { 0.0 }, expected);
            }
            assert_eq!(got, expected, "pixel {at}");
        }
    });
}

/// Known answers of Random123 for philox4x32 with ten rounds.
#[test]
fn random_numbers() {
    let known: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    let (counters, keys): (Vec<_>, Vec<_>) = (0..256).map(|i| (known[i % 3].0, known[i % 3].1)).unzip();
    everywhere(ALGORITHMS, |p| {
        let (from, with, to, inside) =
            (p.upload(&counters), p.upload(&keys), p.allocate(4096), p.upload(&[0u32]));
        let arguments = Arguments::new().add(from).add(with).add(to).add(inside);
        p.run("random_points", [2, 1, 1], [128, 1, 1], &arguments);
        for (i, got) in p.download::<[u32; 4]>(to, 256).into_iter().enumerate() {
            assert_eq!(got, known[i % 3].2, "item {i}");
        }
        // A quarter of a circle in a square, of 5120 points: four standard deviations.
        let share = f64::from(p.download::<u32>(inside, 1)[0]) / 5120.0;
        assert!((share - std::f64::consts::FRAC_PI_4).abs() < 0.023, "{share}");
    });
}

#[test]
fn lengths_of_runs() {
    let mut random = Random::new(138);
    let input: Vec<u8> = (0..256)
        .scan(0u8, |last, _| {
            *last = if random.below(3) == 0 { random.u32() as u8 } else { *last };
            Some(*last)
        })
        .collect();
    let mut expected: Vec<(u8, u32)> = Vec::new();
    for (i, &v) in input.iter().enumerate() {
        if expected.last().is_none_or(|last| last.0 != v) {
            expected.push((v, i as u32));
        }
    }
    everywhere(ALGORITHMS, |p| {
        let (from, values) = (p.upload(&input), p.allocate(256));
        let (starts, count) = (p.allocate(1024), p.allocate(4));
        let arguments = Arguments::new().add(from).add(values).add(starts).add(count);
        p.run("run_lengths", [1; 3], [256, 1, 1], &arguments);
        let count = p.download::<u32>(count, 1)[0] as usize;
        let got = p.download::<u8>(values, count).into_iter().zip(p.download::<u32>(starts, count));
        assert_eq!(got.collect::<Vec<(u8, u32)>>(), expected);
    });
}

#[test]
fn place_of_the_largest() {
    let mut random = Random::new(139);
    for count in [1usize, 127, 1000] {
        // Few different values: the first one of the largest counts.
        let input: Vec<f32> = (0..count).map(|_| -(random.below(50) as f32) - 0.5).collect();
        let largest = input.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let at = input.iter().position(|&v| v == largest).unwrap() as u32;
        everywhere(ALGORITHMS, |p| {
            let (from, to) = (p.upload(&input), p.allocate(8));
            let arguments = Arguments::new().add(from).add(count as u32).add(to);
            p.run("largest", [1; 3], [128, 1, 1], &arguments);
            let got = p.download::<u64>(to, 1)[0];
            assert_eq!(
                (!(got as u32), f32::from_bits(!((got >> 32) as u32))),
                (at, largest),
                "{count} values"
            );
        });
    }
}
