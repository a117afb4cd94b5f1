//! Conversions of all pairs of types: rounding, saturation, NaN.

use crate::programs::exact::{BFLOAT, HALF};
use crate::programs::variants::{Program, everywhere};
use crate::programs::{CONVERSIONS, special_bits};
use crate::support::{Arguments, Random};
use bytemuck::Pod;

/// Runs the kernel of a source type and compares its results with formulas.
fn check<T: Pod + std::fmt::Debug>(
    p: &Program,
    kernel: &str,
    values: &[T],
    integers: impl Fn(T) -> [u64; 8],
    // The value as a double and as a float, each rounded once.
    floats: impl Fn(T) -> (f64, f32),
) {
    assert!(values.len() % 64 == 0);
    let (from, to) = (p.upload(values), p.allocate(values.len() * 96));
    p.run(kernel, [values.len() as u32 / 64, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
    let got = p.download::<[u64; 12]>(to, values.len());
    for (&value, got) in values.iter().zip(got) {
        assert_eq!(got[..8], integers(value), "{kernel} {value:?}: integers");
        let (double, single) = floats(value);
        let same16 = |format: super::exact::Format, got: u64, expected: u16| {
            got == u64::from(expected) || format.is_nan(got as u16) && format.is_nan(expected)
        };
        // What needs more digits than a double has is beyond the largest half.
        let half = HALF.nearest(double);
        assert!(same16(HALF, got[8], half), "{kernel} {value:?}: {:#06x}, expected {half:#06x}", got[8]);
        let bfloat = BFLOAT.nearest(f64::from(single));
        assert!(
            same16(BFLOAT, got[9], bfloat),
            "{kernel} {value:?}: {:#06x}, expected {bfloat:#06x}",
            got[9]
        );
        let float = f32::from_bits(got[10] as u32);
        let same = float.to_bits() == single.to_bits() || float.is_nan() && single.is_nan();
        assert!(same, "{kernel} {value:?}: {float:?}, expected {single:?}");
        let wide = f64::from_bits(got[11]);
        let same = wide.to_bits() == double.to_bits() || wide.is_nan() && double.is_nan();
        assert!(same, "{kernel} {value:?}: {wide:?}, expected {double:?}");
    }
}

/// Returns the eight integers that a value becomes by `as`, as the bits of their types. Rust's `as` between
/// integers wraps; from floats it saturates, and NaN becomes 0.
macro_rules! integers {
    ($value:expr) => {{
        let v = $value;
        [
            u64::from(v as i8 as u8),
            u64::from(v as u8),
            u64::from(v as i16 as u16),
            u64::from(v as u16),
            u64::from(v as i32 as u32),
            u64::from(v as u32),
            v as i64 as u64,
            v as u64,
        ]
    }};
}

fn words() -> Vec<u64> {
    let mut random = Random::new(60);
    let mut words: Vec<u64> = vec![0, 1, u64::MAX, 255, 256, 65519, 65520, 32767, 1 << 24, (1 << 24) + 1];
    words.extend([
        (1 << 53) + 1,
        (1 << 63) - 1,
        1 << 63,
        (1 << 63) + 1024,
        (1 << 63) + 1025,
        u64::MAX - 1023,
    ]);
    while words.len() < 192 {
        // Ones at both ends: ties, and what is next to them.
        let (width, bits) = (random.below(64), random.u64());
        words.push(match random.below(4) {
            0 => (bits >> width) | 1,
            1 => 0u64.wrapping_sub(bits >> width),
            2 => (1 << width) + (1u64 << random.below(64)).wrapping_sub(u64::from(random.below(3))),
            _ => bits >> width,
        });
    }
    words
}

#[test]
fn integers_to_all_types() {
    let words = words();
    everywhere(CONVERSIONS, |p| {
        macro_rules! of {
            ($($type:ty, $kernel:literal;)*) => {$(
                let values: Vec<$type> = words.iter().map(|&w| w as $type).collect();
                check(p, $kernel, &values, |v| integers!(v), |v| (v as f64, v as f32));
            )*};
        }
        of! {
            i8, "from_i8"; u8, "from_u8"; i16, "from_i16"; u16, "from_u16";
            i32, "from_i32"; u32, "from_u32"; i64, "from_i64"; u64, "from_u64";
        }
    });
}

#[test]
fn floats_to_all_types() {
    let limits =
        [127.0, 128.0, 255.0, 256.0, 32768.0, 65536.0, 2147483648.0, 4294967296.0, 9.223372036854776e18];
    let mut doubles: Vec<f64> = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324];
    doubles.extend([0.49999999999999994, 0.5, 1.5, -0.99, 65519.99, 65520.0, 3.4028235677973366e38, 1e-45]);
    for limit in limits {
        let step = 1.0 - f64::EPSILON / 2.0;
        doubles.extend([
            limit,
            -limit,
            limit * step,
            -limit * step,
            limit * (1.0 + f64::EPSILON),
            -limit - 1.0,
        ]);
        doubles.extend([limit - 0.5, 0.5 - limit, -0.5 - limit, 2.0 * limit]);
    }
    let mut random = Random::new(61);
    while doubles.len() < 320 {
        let magnitude =
            if random.below(3) == 0 { random.below(300) as i32 - 150 } else { random.below(66) as i32 - 2 };
        let mantissa = match random.below(3) {
            // Ties of floats, bfloats and halves, and their neighbours.
            0 => (random.u64() << 29 | 1 << 28) & ((1 << 52) - 1) | u64::from(random.below(2)),
            1 => (random.u64() << 42 | 1 << 41) & ((1 << 52) - 1),
            _ => random.u64() >> 12,
        };
        let bits = ((1023 + magnitude) as u64) << 52 | mantissa | u64::from(random.below(2)) << 63;
        doubles.push(f64::from_bits(bits));
    }
    let singles: Vec<f32> = doubles.iter().map(|&x| x as f32).collect();
    let halves: Vec<u16> = special_bits(62, 320);
    everywhere(CONVERSIONS, |p| {
        check(p, "from_double", &doubles, |v| integers!(v), |v| (v, v as f32));
        check(p, "from_float", &singles, |v| integers!(v), |v| (f64::from(v), v));
        let value = |bits: u16| HALF.value(bits);
        check(p, "from_f16", &halves, |v| integers!(value(v)), |v| (value(v), value(v) as f32));
        let value = |bits: u16| BFLOAT.value(bits);
        check(p, "from_bf16", &halves, |v| integers!(value(v)), |v| (value(v), value(v) as f32));
    });
}

#[test]
fn directions_of_rounding() {
    let mut random = Random::new(63);
    let input: Vec<f32> =
        (0..256).map(|i| if i < 80 { i as f32 * 0.5 - 20.0 } else { random.unit() * 60000.0 }).collect();
    let wide: Vec<f64> = (0..256)
        .map(|i| if i < 64 { f64::from(i) * 0.5 - 16.0 } else { f64::from(random.unit()) * 4e15 + 0.5 })
        .collect();
    everywhere(CONVERSIONS, |p| {
        let (from, from64) = (p.upload(&input), p.upload(&wide));
        let (to, to64) = (p.allocate(256 * 32), p.allocate(256 * 48));
        let arguments = Arguments::new().add(from).add(from64).add(to).add(to64);
        p.run("roundings", [4, 1, 1], [64, 1, 1], &arguments);
        for (i, got) in p.download::<[i32; 8]>(to, 256).into_iter().enumerate() {
            let x = input[i];
            let half = HALF.value(HALF.nearest(f64::from(x)));
            let even = x.round_ties_even();
            let expected = [x.floor(), x.ceil(), x.trunc(), even, x.round(), even, half as f32];
            assert_eq!(got[..7], expected.map(|x| x as i32), "{x}");
            assert_eq!(got[7], half.round_ties_even() as i32, "{x}");
        }
        for (i, got) in p.download::<[f64; 6]>(to64, 256).into_iter().enumerate() {
            let y = wide[i];
            let expected = [
                y.floor(),
                y.ceil(),
                y.trunc(),
                y.round_ties_even(),
                y.round(),
                y.copysign(f64::from(input[i])),
            ];
            assert_eq!(got.map(f64::to_bits), expected.map(f64::to_bits), "{y}");
        }
    });
}

#[test]
fn packed_conversions() {
    let mut random = Random::new(64);
    let mut input: Vec<[f32; 2]> =
        vec![[0.0, -0.0], [1.0, -1.0], [1.5, -1.5], [0.1, 100.0], [-70000.0, 70000.0]];
    while input.len() < 128 {
        input.push([random.unit() * 1.2, random.unit() * 1.2]);
    }
    let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    everywhere(CONVERSIONS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(128 * 24));
        p.run("packed_conversions", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        for (i, got) in p.download::<[u32; 6]>(to, 128).into_iter().enumerate() {
            let v = input[i];
            let each = |of: &dyn Fn(f32) -> u16| pair(of(v[0]), of(v[1]));
            assert_eq!(got[0], each(&|x| HALF.toward_zero(f64::from(x))), "{v:?}: toward zero");
            let signed = |x: f32| (f64::from(x).clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u16;
            assert_eq!(got[1], each(&signed), "{v:?}: signed parts of one");
            let unsigned = |x: f32| (f64::from(x).clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16;
            assert_eq!(got[2], each(&unsigned), "{v:?}: unsigned parts of one");
            let clamped = |x: f32| ((x * 100000.0) as i32).clamp(-32768, 32767) as u16;
            assert_eq!(got[3], each(&clamped), "{v:?}: i16");
            let clamped = |x: f32| ((x * x * 100000.0) as u32).min(65535) as u16;
            assert_eq!(got[4], each(&clamped), "{v:?}: u16");
            let byte = u32::from((v[0] * 300.0).trunc() as u8);
            assert_eq!(got[5], v[1].to_bits() & !0xff_0000 | byte << 16, "{v:?}: a byte");
        }
    });
}
