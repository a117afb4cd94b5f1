//! Arithmetic that takes several instructions.

use crate::programs::ARITHMETIC;
use crate::programs::variants::everywhere;
use crate::support::{Arguments, Random, Session};
use half::f16;

/// Uploads operands, launches one work-item per pair, and downloads the records.
fn pairs<T: bytemuck::Pod, const N: usize>(
    session: &Session,
    kernel: &str,
    a: &[T],
    b: &[T],
) -> Vec<[u64; N]> {
    let (left, right, to) = (session.upload(a), session.upload(b), session.allocate(a.len() * N * 8));
    let arguments = Arguments::new().add(left).add(right).add(to).add(a.len() as u32);
    session.run(kernel, [(a.len() as u32).div_ceil(64), 1, 1], [64, 1, 1], &arguments);
    session.download::<u64>(to, a.len() * N).chunks_exact(N).map(|c| c.try_into().unwrap()).collect()
}

/// Returns every pair of some special values, then random values of all magnitudes.
fn operands(seed: u64, special: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for &x in special {
        for &y in special {
            a.push(x);
            b.push(y);
        }
    }
    let mut random = Random::new(seed);
    for _ in 0..300 {
        a.push(random.u64() >> random.below(64));
        b.push(random.u64() >> random.below(64));
        if random.below(3) == 0 {
            *a.last_mut().unwrap() = 0u64.wrapping_sub(a[a.len() - 1]);
        }
    }
    (a, b)
}

fn wide(a: u64, b: u64) -> [u64; 20] {
    let (sa, sb) = (a as i64, b as i64);
    let odd = sb == 0 || (sa == i64::MIN && sb == -1);
    let shift = (b & 63) as u32;
    [
        a.wrapping_add(b),
        a.wrapping_sub(b),
        a.wrapping_mul(b),
        a.checked_div(b).unwrap_or(u64::MAX),
        a.checked_rem(b).unwrap_or(a),
        if odd { 0 } else { (sa / sb) as u64 },
        if odd { 0 } else { (sa % sb) as u64 },
        a << shift,
        a >> shift,
        (sa >> shift) as u64,
        ((u128::from(a) * u128::from(b)) >> 64) as u64,
        ((i128::from(sa) * i128::from(sb)) >> 64) as u64,
        u64::from(a.leading_zeros()),
        u64::from(a.trailing_zeros()),
        u64::from(a.count_ones()),
        a.reverse_bits(),
        a.swap_bytes(),
        a.rotate_left(shift),
        sa.min(sb) as u64,
        u64::from(a.checked_add(b).is_none()) | u64::from(sa.checked_sub(sb).is_none()) << 1,
    ]
}

#[test]
fn integers_of_64_bits() {
    let special = [0, 1, 2, 3, 63, 64, 10, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 32, u64::from(u32::MAX)];
    let (a, b) = operands(10, &special);
    everywhere(ARITHMETIC, |session| {
        for (i, record) in pairs::<_, 20>(session, "integers64", &a, &b).iter().enumerate() {
            assert_eq!(*record, wide(a[i], b[i]), "{:#x}, {:#x}", a[i], b[i]);
        }
    });
}

fn narrow(a: u32, b: u32) -> [u32; 20] {
    let (sa, sb) = (a as i32, b as i32);
    let odd = sb == 0 || (sa == i32::MIN && sb == -1);
    let bytes = |x: u32| x & 0xff;
    let (i8a, i8b) = (a as i8, b as i8 | 1);
    let (u16a, u16b) = (a as u16, b as u16 | 1);
    [
        a.checked_div(b).unwrap_or(u32::MAX),
        a.checked_rem(b).unwrap_or(a),
        if odd { 0 } else { (sa / sb) as u32 },
        if odd { 0 } else { (sa % sb) as u32 },
        a.wrapping_mul(b),
        ((u64::from(a) * u64::from(b)) >> 32) as u32,
        ((i64::from(sa) * i64::from(sb)) >> 32) as u32,
        a / 7,
        (sa / -10) as u32,
        a.count_ones() + a.leading_zeros() * 64,
        a.reverse_bits(),
        a.rotate_right(b & 31),
        (i32::from(a as i8) as u32).wrapping_add(i32::from(b as i16) as u32),
        bytes(a) * bytes(b) + bytes(a >> 8) * bytes(b >> 8),
        u32::from(a.wrapping_add(b) as u16) | u32::from((a as u16).wrapping_mul(b as u16)) << 16,
        u32::from(a as u8 / (b as u8 | 1))
            | u32::from((i32::from(i8a) / i32::from(i8b)) as u8) << 8
            | u32::from(u16a / u16b) << 16,
        a.saturating_add(b),
        sa.saturating_sub(sb) as u32,
        sa.abs_diff(sb),
        a.swap_bytes() ^ (u32::from(a > b) + 2 * u32::from(sa >= sb) + 4 * u32::from(a == b)),
    ]
}

#[test]
fn integers_of_32_bits() {
    let special = [0, 1, 2, 7, 31, 32, 0xffff_ffff, 0x8000_0000, 0x7fff_ffff, 0x80, 0x8000, 0xffff, 0xff];
    let (a, b) = operands(11, &special);
    let [a, b] = [a, b].map(|list| list.iter().map(|&x| x as u32).collect::<Vec<u32>>());
    everywhere(ARITHMETIC, |session| {
        for (i, record) in pairs::<_, 10>(session, "integers32", &a, &b).iter().enumerate() {
            let record: &[u32] = bytemuck::cast_slice(record);
            assert_eq!(record, narrow(a[i], b[i]), "{:#x}, {:#x}", a[i], b[i]);
        }
    });
}

/// Returns the kernel's doubles: all magnitudes, no NaN.
fn doubles() -> (Vec<f64>, Vec<f64>) {
    let special: [f64; 18] = [
        0.0,
        1.0,
        -1.0,
        3.0,
        -2.5,
        0.5,
        1e-310,
        -5e-324,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        3.4e38,
        1.2e-38,
        1e-42,
        4_503_599_627_370_497.5,
        -0.1,
        1e300,
    ];
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in special {
        for y in special {
            a.push(x);
            b.push(y);
        }
    }
    let mut random = Random::new(12);
    for i in 0..700 {
        let mut next = || {
            // A third is near one, a third in the range of floats, a third has any exponent.
            let mantissa = random.u64() & ((1 << 52) - 1);
            let exponent = match i % 3 {
                0 => 1023 - 4 + random.below(8),
                1 => 1023 - 149 + random.below(277),
                _ => random.below(2047),
            };
            f64::from_bits(mantissa | u64::from(exponent) << 52 | u64::from(random.below(2)) << 63)
        };
        a.push(next());
        b.push(next());
    }
    (a, b)
}

fn floats(a: f64, b: f64) -> [u64; 16] {
    let (fa, fb) = (a as f32, b as f32);
    let single = |x: f32| u64::from(x.to_bits());
    let signed = if a > -1e18 && a < 1e18 { a as i64 } else { 0 };
    let unsigned = if a > 0.0 && a < 1.8e19 { a as u64 } else { 0 };
    let compared = u64::from(a < b)
        | u64::from(a <= b) << 1
        | u64::from(a == b) << 2
        | u64::from(fa > fb) << 3
        | u64::from(fa != fb) << 4;
    [
        (a / b).to_bits(),
        a.abs().sqrt().to_bits(),
        a.mul_add(b, a).to_bits(),
        (a * b - b).to_bits(),
        single(fa / fb),
        single(fa.abs().sqrt()),
        single(fa.mul_add(fb, fa)),
        single(fa * fb + fb),
        a.floor().to_bits() ^ b.ceil().to_bits(),
        a.round_ties_even().to_bits() ^ b.trunc().to_bits(),
        single(fa.round_ties_even()) ^ single(fb.trunc()) << 32,
        signed as u64,
        unsigned,
        single(signed as f32) | single(unsigned as f32) << 32,
        (signed.wrapping_mul(3) as f64).to_bits() ^ (unsigned as f64).to_bits(),
        compared | single(fa.min(fb)) << 32,
    ]
}

/// Returns true if two results of formula `slot` are equal; all NaNs are equal.
fn same_float(slot: usize, got: u64, expected: u64) -> bool {
    let nan32 = |x: u64| f32::from_bits(x as u32).is_nan();
    match slot {
        0..=3 => got == expected || (f64::from_bits(got).is_nan() && f64::from_bits(expected).is_nan()),
        4..=7 => got == expected || (nan32(got) && nan32(expected)),
        15 => got as u32 == expected as u32 && f32_at(got) == f32_at(expected),
        _ => got == expected,
    }
}

fn f32_at(bits: u64) -> f32 {
    f32::from_bits((bits >> 32) as u32)
}

#[test]
fn division_roots_and_conversions() {
    let (a, b) = doubles();
    everywhere(ARITHMETIC, |session| {
        for (i, record) in pairs::<_, 16>(session, "floats", &a, &b).iter().enumerate() {
            for (slot, (&got, want)) in record.iter().zip(floats(a[i], b[i])).enumerate() {
                let same = same_float(slot, got, want);
                assert!(same, "slot {slot} of {:e}, {:e}: {got:#018x}, expected {want:#018x}", a[i], b[i]);
            }
        }
    });
}

fn packed(a: [f16; 2], b: [f16; 2]) -> [[f16; 2]; 8] {
    let integer = |x: f16| if x.to_f32().abs() > 100.0 { 0.0 } else { x.to_f32() as i32 as f32 };
    let short = |i: usize| {
        let (x, y) = (a[i].to_bits(), b[i].to_bits());
        f16::from_bits(x.wrapping_add(y).wrapping_mul(y))
    };
    let each = |f: &dyn Fn(f32, f32) -> f32| [0, 1].map(|i| f16::from_f32(f(a[i].to_f32(), b[i].to_f32())));
    [
        each(&|x, y| x + y),
        each(&|x, y| x * y),
        [0, 1].map(|i| f16::from_f32(a[i].to_f32() - b[1 - i].to_f32())),
        each(&f32::max),
        each(&f32::min),
        [f16::from_f32(a[0].to_f32() * 3.0), f16::from_f32(integer(a[1]))],
        [-a[0], -a[1]],
        [short(0), short(1)],
    ]
}

#[test]
fn packed_halves() {
    let special = [0x0000, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x0001, 0x83ff, 0x0400, 0x7c00, 0x3555u16];
    let mut random = Random::new(13);
    let mut list = Vec::new();
    for x in special {
        list.extend(special.map(|y| [f16::from_bits(x), f16::from_bits(y)]));
    }
    while list.len() < 512 {
        let half = [(); 2].map(|()| f16::from_bits(random.u32() as u16));
        list.extend(half.iter().all(|h| !h.is_nan()).then_some(half));
    }
    let other: Vec<[f16; 2]> = list.iter().rev().map(|&[x, y]| [y, x]).collect();
    let raw = |v: &[[f16; 2]]| v.iter().map(|h| [h[0].to_bits(), h[1].to_bits()]).collect::<Vec<[u16; 2]>>();
    let (a, b) = (raw(&list), raw(&other));
    everywhere(ARITHMETIC, |session| {
        for (i, record) in pairs::<_, 4>(session, "packed_half", &a, &b).iter().enumerate() {
            let got: &[u16] = bytemuck::cast_slice(record);
            for (k, want) in packed(list[i], other[i]).concat().into_iter().enumerate() {
                let have = f16::from_bits(got[k]);
                // Slots 3 and 4: the sign of a minimum of two zeros is undefined; slot 7 is an integer.
                let loose =
                    (have.is_nan() && want.is_nan() && k < 14) || (matches!(k, 6..10) && have == want);
                assert!(
                    loose || have.to_bits() == want.to_bits(),
                    "{k}: {:?} {:?}: {have}, not {want}",
                    list[i],
                    other[i]
                );
            }
        }
    });
}
