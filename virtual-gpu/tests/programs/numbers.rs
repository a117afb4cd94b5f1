//! Small floats, dot products, bits and bytes, elementary functions, 64-bit integers.

use crate::programs::exact::{BFLOAT, Format, HALF};
use crate::programs::variants::{Program, everywhere};
use crate::programs::{NUMBERS, numbers, special_bits};
use crate::support::{Arguments, Random};
use bytemuck::Pod;

/// Launches a kernel of two inputs and `N` results for each item.
fn pairs<T: Pod, R: Pod, const N: usize>(p: &Program, kernel: &str, a: &[T], b: &[T]) -> Vec<[R; N]> {
    assert!(a.len() % 64 == 0 && a.len() == b.len());
    let (left, right, to) = (p.upload(a), p.upload(b), p.allocate(a.len() * N * size_of::<R>()));
    let arguments = Arguments::new().add(left).add(right).add(to);
    p.run(kernel, [a.len() as u32 / 64, 1, 1], [64, 1, 1], &arguments);
    let flat = p.download::<R>(to, a.len() * N);
    flat.chunks_exact(N).map(|c| std::array::from_fn(|i| c[i])).collect()
}

/// Fails if a small float is not the nearest to `expected`, or within `units` in the last place of it.
fn near(format: Format, got: u16, expected: f64, units: u16, what: &str) {
    let want = format.nearest(expected);
    let same = if format.is_nan(want) { format.is_nan(got) } else { got.abs_diff(want) <= units };
    assert!(same, "{what}: {got:#06x} ({}), expected {want:#06x} ({expected})", format.value(got));
}

/// Returns pairs of all kinds of small floats: special ones with each other, then random ones.
fn operands(seed: u64) -> (Vec<u16>, Vec<u16>) {
    let a = special_bits(seed, 576);
    let mut b = special_bits(seed + 1, 576);
    // Every special value meets every other one somewhere.
    b[..256].iter_mut().enumerate().for_each(|(i, b)| *b = a[i * 7 % 16 + i % 3]);
    (a, b)
}

#[test]
fn halves() {
    let (a, b) = operands(70);
    everywhere(NUMBERS, |p| {
        for (i, got) in pairs::<_, u16, 16>(p, "halves", &a, &b).into_iter().enumerate() {
            let (x, y) = (HALF.value(a[i]), HALF.value(b[i]));
            let exact = [
                (0, x + y, 0),
                (1, x - y, 0),
                (2, x * y, 0),
                // The compiler divides to within one unit.
                (3, x / y, 1),
                (4, x.mul_add(y, y), 0),
                (5, x.abs().sqrt(), 1),
                (6, x.floor(), 0),
                (7, x.ceil(), 0),
                (8, y.round_ties_even(), 0),
                (9, y.trunc(), 0),
                (13, x, 0),
            ];
            for (k, expected, units) in exact {
                near(HALF, got[k], expected, units, &format!("formula {k} of {x}, {y}"));
            }
            if !x.is_nan() && !y.is_nan() {
                // Either zero is the minimum of two zeros.
                assert_eq!(HALF.value(got[10]), x.min(y), "minimum of {x}, {y}");
                assert_eq!(HALF.value(got[11]), x.max(y), "maximum of {x}, {y}");
            } else if !x.is_nan() || !y.is_nan() {
                let number = if x.is_nan() { y } else { x };
                assert_eq!(HALF.value(got[10]), number, "minimum of a number and NaN");
            }
            assert_eq!(got[12], a[i] & 0x7fff | b[i] & 0x8000, "sign of {y} on {x}");
            let order = if x < y {
                1.0
            } else if x >= y {
                2.0
            } else {
                3.0
            };
            assert_eq!(HALF.value(got[14]), order, "order of {x}, {y}");
            assert_eq!(got[15], a[i] ^ 0x8000, "negative {x}");
        }
    });
}

#[test]
fn bfloats() {
    let (a, b) = operands(72);
    everywhere(NUMBERS, |p| {
        for (i, got) in pairs::<_, u16, 8>(p, "bfloats", &a, &b).into_iter().enumerate() {
            let (x, y) = (BFLOAT.value(a[i]) as f32, BFLOAT.value(b[i]) as f32);
            // The arithmetic is that of floats, rounded once more.
            let larger = if x > y { x } else { y };
            for (k, expected) in [(0, x + y), (1, x - y), (2, x * y), (3, x / y), (5, larger * 2.0)] {
                near(BFLOAT, got[k], f64::from(expected), 0, &format!("formula {k} of {x}, {y}"));
            }
            let order = if x < y {
                1
            } else if x == y {
                2
            } else if x > y {
                3
            } else {
                4
            };
            assert_eq!(got[4], order, "order of {x}, {y}");
            let product = u32::from(got[6]) << 16 | u32::from(got[7]);
            let same = product == (x * y).to_bits() || (x * y).is_nan() && f32::from_bits(product).is_nan();
            assert!(same, "product of {x}, {y}");
        }
    });
}

#[test]
fn packed_pairs() {
    let halves = |seed| {
        let finite = special_bits(seed, 1024).into_iter().filter(|&h| !HALF.is_nan(h)).collect::<Vec<u16>>();
        finite
            .chunks_exact(2)
            .take(256)
            .map(|h| u32::from(h[0]) | u32::from(h[1]) << 16)
            .collect::<Vec<u32>>()
    };
    let (a, b) = (halves(74), halves(75));
    let parts = |x: u32| [x as u16, (x >> 16) as u16];
    everywhere(NUMBERS, |p| {
        for (i, got) in pairs::<_, u32, 16>(p, "pairs", &a, &b).into_iter().enumerate() {
            let (s, t) = (parts(a[i]), parts(b[i]));
            let (x, y) = (s.map(|h| HALF.value(h)), t.map(|h| HALF.value(h)));
            for k in 0..2 {
                let what = format!("half {k} of {x:?}, {y:?}");
                near(HALF, parts(got[0])[k], x[k].mul_add(y[k], x[k]), 0, &what);
                near(HALF, parts(got[1])[k], x[1 - k] * y[0], 0, &what);
                near(HALF, parts(got[2])[k], y[1] - x[k], 0, &what);
                let (u, v) = (s[k] as i16, t[k] as i16);
                let expected = [
                    u.wrapping_add(v),
                    u.wrapping_sub(t[1 - k] as i16),
                    u.wrapping_mul(v),
                    u << (v & 15),
                    u >> (v & 15),
                    u.max(v),
                    s[k].min(t[k]) as i16,
                    u.saturating_add(v),
                    s[k].saturating_sub(t[k]) as i16,
                ];
                assert_eq!(
                    got[3..12].iter().map(|&w| parts(w)[k] as i16).collect::<Vec<_>>(),
                    expected,
                    "{what}"
                );
            }
            let f = s.map(|u| f32::from(u as i16));
            let g = [f32::from(t[0] as i16) * 0.5, f32::from(t[1] as i16) * 0.25];
            for k in 0..2 {
                let expected = f[k].mul_add(g[k], f[1 - k]) + g[1 - k] * f[k];
                assert_eq!(f32::from_bits(got[12 + k]), expected, "float {k} of {f:?}, {g:?}");
            }
            let (x, y) = (x.map(|v| v as f32), y.map(|v| v as f32));
            let mixed = x[0] * y[1] + f[0];
            let same = got[14] == mixed.to_bits() || mixed.is_nan() && f32::from_bits(got[14]).is_nan();
            assert!(same, "mixed precision of {x:?}, {y:?}: {}, expected {mixed}", f32::from_bits(got[14]));
            let what = format!("rounded to halves: {x:?}, {y:?}");
            near(HALF, parts(got[15])[0], f64::from(x[0].mul_add(y[0], 0.5)), 0, &what);
            // The compiler makes an addition of zero of a product, which has no negative zero then.
            let product = f64::from(x[1] * 3.0);
            if product != 0.0 || HALF.value(parts(got[15])[1]) != 0.0 {
                near(HALF, parts(got[15])[1], product, 0, &what);
            }
        }
    });
}

/// Returns the sum of products of the parts of two words, `bits` each; true makes them signed.
fn dot(a: (u32, bool), b: (u32, bool), bits: u32) -> i32 {
    let part = |(word, signed): (u32, bool), k: u32| {
        let unsigned = i64::from(word >> (bits * k)) & ((1 << bits) - 1);
        if signed && unsigned >> (bits - 1) == 1 { unsigned - (1 << bits) } else { unsigned }
    };
    (0..32 / bits).map(|k| part(a, k) * part(b, k)).sum::<i64>() as i32
}

#[test]
fn dot_products() {
    let (mut a, mut b) = (numbers(76, 128), numbers(77, 128));
    for (i, word) in [0, u32::MAX, 0x8080_8080, 0x7f7f_7f7f, 0x8888_8888, 0x8000_8000].into_iter().enumerate()
    {
        (a[i], b[i], b[i + 6]) = (word, word, !word);
        a[i + 6] = word;
    }
    let c: Vec<i32> = numbers(78, 128).iter().map(|&x| x as i32).collect();
    everywhere(NUMBERS, |p| {
        let (left, right, sums, to) = (p.upload(&a), p.upload(&b), p.upload(&c), p.allocate(128 * 32));
        let arguments = Arguments::new().add(left).add(right).add(sums).add(to);
        p.run("dot_products", [2, 1, 1], [64, 1, 1], &arguments);
        for (i, got) in p.download::<[u32; 8]>(to, 128).into_iter().enumerate() {
            let all = |left: bool, right: bool, bits| {
                c[i].wrapping_add(dot((a[i], left), (b[i], right), bits)) as u32
            };
            let (low, high) = (|x: u32| (x & 63) as f32, |x: u32| (x >> 26) as f32);
            let halves = low(a[i]) * low(b[i]) - high(a[i]) * high(b[i]) + (c[i] >> 16) as f32;
            let expected = [
                all(true, true, 8),
                all(true, true, 4),
                all(true, true, 16),
                all(true, false, 8),
                all(false, false, 8),
                all(false, false, 4),
                all(false, false, 16),
                halves.to_bits(),
            ];
            assert_eq!(got, expected, "{:#x}, {:#x}, {:#x}", a[i], b[i], c[i]);
        }
    });
}

/// Returns the sum of absolute differences of four bytes; with `masked` those of `b` that are zero do not count.
fn sad(a: u32, b: u32, masked: bool) -> u32 {
    let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
    pairs.filter(|&(_, y)| !masked || y != 0).map(|(x, y)| u32::from(x.abs_diff(y))).sum()
}

#[test]
fn bytes_and_bits() {
    let (mut a, mut b) = (numbers(79, 192), numbers(80, 192));
    for i in 0..64 {
        b[i] &= 0x00ff_00ff << (i % 3 * 4);
        a[i] >>= i % 32;
    }
    everywhere(NUMBERS, |p| {
        for (i, got) in pairs::<_, u32, 16>(p, "bytes_and_bits", &a, &b).into_iter().enumerate() {
            let (a, b) = (a[i], b[i]);
            let c = a.wrapping_mul(5).wrapping_add(b);
            let wide = u64::from(a) << 32 | u64::from(b);
            let halves = (a as u16).abs_diff(b as u16).into();
            let bytes = |of: &dyn Fn(usize) -> u8| u32::from_le_bytes(std::array::from_fn(of));
            let (ab, bb, cb) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
            let low = ((1u64 << (c & 31)) - 1) as u32;
            let field = a >> (b & 31) & low;
            let shift = 32 - (c & 31);
            // A field that reaches beyond bit 31 continues with the sign.
            let signed_field = if c & 31 == 0 {
                0
            } else {
                let window = (i64::from(a as i32) >> (b & 31)) as u32;
                ((window << shift) as i32 >> shift) as u32
            };
            let sums = (u64::from(b) << 32 | u64::from(a)) & 0x0fff_0fff_0fff_0fff;
            let quads = (0..4).fold(0u64, |all, k| {
                let sum = (sums >> (16 * k) & 0xffff) + u64::from(sad((wide >> (8 * k)) as u32, c, false));
                all | sum << (16 * k)
            });
            let sorted = {
                let mut three = [a as i32, b as i32, c as i32];
                three.sort_unstable();
                three[1] as u32
            };
            let expected = [
                sad(a, b, false).wrapping_add(c),
                (sad(a, b, false) << 16).wrapping_add(c),
                u32::from((a >> 16) as u16).abs_diff(b >> 16).wrapping_add(halves).wrapping_add(c),
                sad(a, b, true).wrapping_add(c),
                bytes(&|k| ((u32::from(ab[k]) + u32::from(bb[k]) + u32::from(cb[k] & 1)) >> 1) as u8),
                bytes(&|k| wide.to_le_bytes()[usize::from(cb[k] & 7)]),
                (wide >> (c & 31)) as u32,
                (wide >> (8 * (c & 3))) as u32,
                field,
                signed_field,
                quads as u32,
                (quads >> 32) as u32,
                a & b | !a & c,
                a ^ b.wrapping_add(c) ^ a.wrapping_add(b).rotate_left(7),
                (a << 3).wrapping_add(b) ^ ((a << 5) | c) ^ (a & b | c),
                sorted,
            ];
            for (k, (got, expected)) in got.into_iter().zip(expected).enumerate() {
                assert_eq!(got, expected, "formula {k} of {a:#x}, {b:#x}, {c:#x}");
            }
        }
    });
}

fn puzzles(x: u32) -> [u64; 8] {
    let y = x.wrapping_mul(0x85eb_ca6b) ^ x >> 13;
    let bit = |word: u32, k: u32| u64::from(word >> k & 1);
    let ones = (0..32).filter(|&k| bit(x, k) == 1);
    let next = (x != 0).then(|| u64::from(x)).and_then(|x| {
        // The smallest larger number with as many ones, by its definition: move the lowest run's top up by one.
        let low = x.trailing_zeros();
        let run = (x >> low).trailing_ones();
        let moved = (x + (1 << low)) | ((1 << (run - 1)) - 1);
        (moved < 1 << 32).then_some(moved)
    });
    [
        (0..32).fold(0, |m, k| m | bit(x, k) << (2 * k) | bit(y, k) << (2 * k + 1)),
        u64::from(x ^ x >> 1) << 32 | u64::from(x),
        (0..32).fold(0, |p, k| p ^ (u64::from(x) * bit(y, k)) << k),
        next.unwrap_or(0),
        u64::from(x.checked_ilog10().unwrap_or(0)) << 32
            | u64::from(x.checked_ilog2().unwrap_or(99)) << 8
            | u64::from(x.count_ones() & 1),
        u64::from((x as i32 / 16) as u32) << 32 | u64::from((x as i32 % 16) as u32),
        u64::from(x.isqrt()),
        ones.enumerate().fold(0, |s, (at, k)| s | bit(y, k) << at),
    ]
}

#[test]
fn puzzles_with_bits() {
    let mut input = numbers(81, 128);
    input[..8].copy_from_slice(&[0, 1, 9, 10, u32::MAX, 1 << 31, 0x7fff_ffff, 0xffff_0000]);
    input[8..40].iter_mut().enumerate().for_each(|(k, x)| *x >>= k);
    everywhere(NUMBERS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(128 * 64));
        p.run("bit_tricks", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        for (i, got) in p.download::<[u64; 8]>(to, 128).into_iter().enumerate() {
            assert_eq!(got, puzzles(input[i]), "{:#x}", input[i]);
        }
    });
}

#[test]
fn number_theory() {
    let mut random = Random::new(82);
    // Primes, pseudoprimes to base 2, squares of primes, then anything.
    let mut input: Vec<u64> =
        vec![0, 1, 2, 3, 4, 9, 25, 341, 561, 2047, 3277, 65537, 4_294_836_225, 2_147_483_647];
    input.extend([3_215_031_749, 1_000_000_007, 25_326_001, u64::MAX]);
    while input.len() < 64 {
        let wide = input.len() % 4 == 0;
        input.push(if wide { random.u64() } else { u64::from(random.below(3_000_000_000)) });
    }
    let prime = |n: u64| (2..3_215_031_751).contains(&n) && (2..=n.isqrt()).all(|d| n % d != 0);
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    everywhere(NUMBERS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(64 * 24));
        p.run("number_theory", [1; 3], [64, 1, 1], &Arguments::new().add(from).add(to));
        for (i, got) in p.download::<[u64; 3]>(to, 64).into_iter().enumerate() {
            let n = input[i];
            assert_eq!(got[0], u64::from(prime(n)), "{n} is prime");
            assert_eq!(got[1], gcd(n, 1_081_080 + i as u64), "common divisor of {n}");
            assert_eq!(got[2].wrapping_mul(n | 1), 1, "inverse of {}", n | 1);
        }
    });
}

#[test]
fn elementary_functions() {
    let mut random = Random::new(83);
    let mut input: Vec<f32> = vec![1.0, -1.0, 0.5, -0.25, 2.0, 10.0, -8.0, 0.1, 64.0, -0.75];
    while input.len() < 128 {
        input.push(random.unit() * [0.01, 1.0, 30.0][random.below(3) as usize] + 1e-4);
    }
    let turn = std::f64::consts::TAU;
    everywhere(NUMBERS, |p| {
        let (from, to, to64) = (p.upload(&input), p.allocate(128 * 64), p.allocate(128 * 64));
        p.run("functions", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to).add(to64));
        let mantissa = |y: f64| {
            let exponent = y.abs().log2().floor() + 1.0;
            (y / exponent.exp2(), exponent)
        };
        for (i, got) in p.download::<[f32; 16]>(to, 128).into_iter().enumerate() {
            let x = f64::from(input[i]);
            // A function, and its error: relative to the result, or of the result itself.
            let expected = [
                (x.exp(), 3e-7, 0.0),
                (x.exp2(), 3e-7, 0.0),
                (x.abs().ln(), 3e-7, 1e-7),
                (x.abs().log2(), 3e-7, 1e-7),
                (x.abs().log10(), 3e-7, 1e-7),
                (f64::from(input[i].abs().sqrt()), 0.0, 0.0),
                ((turn * x).sin(), 0.0, 1e-6),
                ((turn * x).cos(), 0.0, 1e-6),
                (1.0 / x, 1.3e-7, 0.0),
                (1.0 / x.abs().sqrt(), 1.3e-7, 0.0),
                (f64::from(input[i] - input[i].floor()), 0.0, 6e-8),
                (mantissa(x).0, 0.0, 0.0),
                (mantissa(x).1, 0.0, 0.0),
                (x * f64::from(i as i32 % 40 - 20).exp2(), 0.0, 0.0),
                (x.clamp(-2.0, 1.0), 0.0, 0.0),
                (f64::from(1.0 / input[i]), 0.0, 0.0),
            ];
            for (k, (got, (want, relative, absolute))) in got.into_iter().zip(expected).enumerate() {
                let error = (f64::from(got) - want).abs();
                assert!(
                    error <= want.abs() * relative + absolute,
                    "function {k} of {x}: {got}, expected {want}"
                );
            }
        }
        for (i, got) in p.download::<[f64; 8]>(to64, 128).into_iter().enumerate() {
            let y = f64::from(input[i]) * 1.25;
            let scaled = y * f64::from(i as i32 % 900 - 450).exp2();
            let mantissa = mantissa(y).0 * mantissa(y).1;
            let exact = [y.abs().sqrt(), 1.0 / y, y - y.floor(), mantissa, scaled];
            assert_eq!(got[..5], exact, "{y}");
            assert!((got[5] - 1.0).abs() < 1e-6 && (got[6] - 1.0).abs() < 1e-6, "{y}: {got:?}");
            assert_eq!(got[7], y.max(-0.5) - y.min(0.5), "{y}");
        }
    });
}

/// Returns the class of a number as an instruction numbers them. `negative`, its exponent field and fraction.
fn class(negative: bool, exponent: u64, most: u64, fraction: u64, quiet: u64) -> u32 {
    match (exponent, fraction) {
        (e, f) if e == most && f & quiet != 0 => 2,
        (e, f) if e == most && f != 0 => 1,
        (e, 0) if e == most => {
            if negative {
                1 << 2
            } else {
                1 << 9
            }
        }
        (0, 0) => {
            if negative {
                1 << 5
            } else {
                1 << 6
            }
        }
        (0, _) => {
            if negative {
                1 << 4
            } else {
                1 << 7
            }
        }
        _ => {
            if negative {
                1 << 3
            } else {
                1 << 8
            }
        }
    }
}

#[test]
fn classes_of_numbers() {
    let halves = special_bits(84, 128);
    let mut input: Vec<u32> = halves.iter().map(|&h| u32::from(h) << 16).collect();
    // Of floats and doubles, too: their fields are narrower or wider.
    for (i, word) in
        [0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x7fc0_0000, 1, 0x8000_0001, 0x7ff0_0000, 0x7ff0_0001]
            .into_iter()
            .enumerate()
    {
        input[100 + i] = word;
    }
    everywhere(NUMBERS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(128 * 16));
        p.run("classes", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        for (i, got) in p.download::<[u32; 4]>(to, 128).into_iter().enumerate() {
            let (w, negative) = (u64::from(input[i]), input[i] >> 31 == 1);
            let single = class(negative, w >> 23 & 0xff, 0xff, w & 0x7f_ffff, 1 << 22);
            let half = class(negative, w >> 26 & 0x1f, 0x1f, w >> 16 & 0x3ff, 1 << 9);
            let double = class(negative, w >> 20 & 0x7ff, 0x7ff, w & 0xf_ffff, 1 << 19);
            assert_eq!(got[..3], [single, half, double], "{w:#x}");
            let kinds = u32::from(single & 3 != 0)
                | u32::from(single & 0x204 != 0) << 1
                | u32::from(half & 0x207 == 0) << 2
                | u32::from(double & 0x108 != 0) << 3;
            assert_eq!(got[3], kinds, "{w:#x}");
        }
    });
}
