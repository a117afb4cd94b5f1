//! Control flow, calls, and memory accesses of every width and address space.

use crate::programs::CONTROL;
use crate::programs::variants::everywhere;
use crate::support::{Arguments, Random};
use bytemuck::{Pod, Zeroable};

#[test]
fn collatz() {
    let mut random = Random::new(20);
    let input: Vec<u32> =
        (0..500).map(|i| if i < 200 { i + 1 } else { random.below(1_000_000) + 1 }).collect();
    let steps = |&start: &u32| {
        let (mut n, mut taken) = (u64::from(start), 0u32);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            taken += 1;
        }
        taken
    };
    let expected: Vec<u32> = input.iter().map(steps).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&input), session.allocate(2000));
        session.run("collatz", [4, 1, 1], [128, 1, 1], &Arguments::new().add(from).add(to).add(500u32));
        assert_eq!(session.download::<u32>(to, 500), expected);
    });
}

#[test]
fn mandelbrot() {
    let (width, height) = (50u32, 36u32);
    let escape = |x: u32, y: u32| {
        let (cr, ci) = (-2.0f32 + 3.0 * x as f32 / width as f32, -1.0f32 + 2.0 * y as f32 / height as f32);
        let (mut zr, mut zi) = (0.0f32, 0.0f32);
        for n in 0..200u16 {
            let (rr, ii) = (zr * zr, zi * zi);
            if rr + ii > 4.0 {
                return n;
            }
            (zr, zi) = (rr - ii + cr, 2.0 * zr * zi + ci);
        }
        200
    };
    let expected: Vec<u16> = (0..width * height).map(|i| escape(i % width, i / width)).collect();
    everywhere(CONTROL, |session| {
        let to = session.allocate(expected.len() * 2);
        session.run("mandelbrot", [4, 3, 1], [16, 16, 1], &Arguments::new().add(to).add(width).add(height));
        assert_eq!(session.download::<u16>(to, expected.len()), expected);
    });
}

#[test]
fn recursion() {
    fn fibonacci(n: u32) -> u32 {
        if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
    }
    // Closed forms of Ackermann's function for m = 0, 1 and 2.
    let ackermann = |m: u32, n: u32| [n + 1, n + 2, 2 * n + 3][m as usize];
    let value = |i: u32| if i % 2 == 1 { fibonacci(i % 10) } else { ackermann(i % 6 / 2, i % 3) + 1000 };
    let expected: Vec<u32> = (0..96).map(value).collect();
    everywhere(CONTROL, |session| {
        let to = session.allocate(96 * 4);
        session.run("recursion", [1; 3], [96, 1, 1], &Arguments::new().add(to));
        assert_eq!(session.download::<u32>(to, 96), expected);
    });
}

#[test]
fn calls_through_a_table() {
    let mut random = Random::new(21);
    let [which, data] = [(); 2].map(|()| (0..128).map(|_| random.u32()).collect::<Vec<u32>>());
    let call = |(&f, &x): (&u32, &u32)| match f & 3 {
        0 => x.wrapping_mul(2),
        1 => x.wrapping_mul(x),
        2 => x.wrapping_neg(),
        _ => (x ^ (x >> 7)).wrapping_mul(0x9e37_79b1),
    };
    let expected: Vec<u32> = which.iter().zip(&data).map(call).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&which), session.upload(&data));
        session.run("indirect", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(session.download::<u32>(to, 128), expected);
    });
}

#[test]
fn variables_of_the_module() {
    let primes = [2u32, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53];
    everywhere(CONTROL, |session| {
        let to = session.allocate(65 * 4);
        for launch in 1..=2u32 {
            session.run("globals", [1; 3], [64, 1, 1], &Arguments::new().add(to));
            let output: Vec<u32> = session.download(to, 65);
            assert!(output[..64].iter().enumerate().all(|(i, &p)| p == primes[i % 16]), "{output:?}");
            assert_eq!(output[64], 64 * launch, "a variable keeps its value from launch to launch");
        }
    });
}

/// The interpreter of `control.hip`, reimplemented.
fn interpret(program: &[u8]) -> u32 {
    let mut stack: [u32; 16] = std::array::from_fn(|i| i as u32);
    let (mut top, mut pc) = (4u32, 0);
    while pc < program.len() {
        let (here, below) = ((top & 15) as usize, (top.wrapping_sub(1) & 15) as usize);
        let (a, b) = (stack[here], stack[below]);
        let above = (top.wrapping_add(1) & 15) as usize;
        match program[pc] & 15 {
            0 => (stack[above], top) = (u32::from(program[pc] >> 4), top.wrapping_add(1)),
            1 => (stack[below], top) = (a.wrapping_add(b), top.wrapping_sub(1)),
            2 => (stack[below], top) = (b.wrapping_sub(a), top.wrapping_sub(1)),
            3 => (stack[below], top) = (a.wrapping_mul(b), top.wrapping_sub(1)),
            4 => stack[here] = a.wrapping_neg(),
            5 => stack[here] = a ^ b,
            6 => stack.swap(here, below),
            7 => stack[here] = a << (b & 31),
            8 => stack[here] = ((a as i32) >> (b & 31)) as u32,
            9 if a as i32 > b as i32 => pc += 1,
            9 => {}
            10 if a & 3 == 0 => {}
            10 => (stack[above], top) = (a.wrapping_add(1), top.wrapping_add(1)),
            11 => stack[here] = a & b,
            12 => stack[here] = a | b,
            13 => stack[(a & 15) as usize] = b,
            14 if a == b => break,
            14 => {}
            _ => stack[here] = stack[(b & 15) as usize],
        }
        pc += 1;
    }
    stack.iter().fold(top, |sum, &x| sum.wrapping_mul(31).wrapping_add(x))
}

#[test]
fn an_interpreter_in_every_lane() {
    const LENGTH: usize = 40;
    let mut random = Random::new(22);
    let programs: Vec<u8> = (0..128 * LENGTH).map(|_| random.u32() as u8).collect();
    let expected: Vec<u32> = programs.chunks(LENGTH).map(interpret).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&programs), session.allocate(512));
        let arguments = Arguments::new().add(from).add(LENGTH as u32).add(to);
        // `length` is between two pointers, so the arguments have padding.
        session.run("interpreter", [2, 1, 1], [64, 1, 1], &arguments);
        assert_eq!(session.download::<u32>(to, 128), expected);
    });
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Particle {
    position: [f32; 3],
    charge: i8,
    gap: u8,
    kind: u16,
    mass: f64,
    name: [u8; 11],
    end: [u8; 5],
}

#[test]
fn structures_by_value() {
    let mut random = Random::new(23);
    let mut particle = || Particle {
        position: [(); 3].map(|()| random.unit()),
        charge: random.u32() as i8,
        gap: 0,
        kind: random.u32() as u16,
        mass: f64::from(random.unit()),
        name: [(); 11].map(|()| random.u32() as u8),
        end: [0; 5],
    };
    let extra = particle();
    let input: Vec<Particle> = (0..128).map(|_| particle()).collect();
    let moved = |(i, p): (usize, &Particle)| {
        let mut p = if i % 3 == 0 { extra } else { *p };
        (0..3).for_each(|k| p.position[k] += 0.25 * (k + 1) as f32);
        p.charge = p.charge.wrapping_neg();
        p.kind ^= 0x8001;
        p.mass *= 0.5;
        p.name.reverse();
        p
    };
    let expected: Vec<Particle> = input.iter().enumerate().map(moved).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&input), session.upload(&input));
        let arguments = Arguments::new().add(from).add(to).add(extra).add(0.25f32);
        session.run("structures", [2, 1, 1], [64, 1, 1], &arguments);
        for (i, p) in session.download::<Particle>(to, 128).into_iter().enumerate() {
            // The padding between the fields is undefined.
            assert_eq!(Particle { gap: 0, end: [0; 5], ..p }, expected[i], "particle {i}");
        }
    });
}

fn widths(from: &[u8]) -> Vec<u8> {
    let u16_at = |at: usize| u16::from_le_bytes(from[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(from[at..at + 4].try_into().unwrap());
    let i64_at = |at: usize| i64::from_le_bytes(from[at..at + 8].try_into().unwrap());
    let mut to = Vec::new();
    to.extend((i32::from(from[0] as i8) + i32::from(u16_at(2) as i16)).to_le_bytes());
    to.extend((u32::from(from[1]) * 256 + u32::from(u16_at(4))).to_le_bytes());
    to.extend((i64_at(8).wrapping_sub(i64::from(u32_at(16) as i32))).to_le_bytes());
    to.extend([from[17].wrapping_add(1), from[16] >> 1]);
    to.extend(u16_at(18).wrapping_mul(3).to_le_bytes());
    to.extend((u32_at(20) ^ 0x8000_0001).to_le_bytes());
    (0..3).for_each(|k| to.extend(u32_at(24 + 4 * (2 - k)).to_le_bytes()));
    to.extend(&from[36..47]);
    to.push(0);
    (0..4).for_each(|k| to.extend(u32_at(48 + 4 * k).wrapping_add(1).to_le_bytes()));
    to
}

#[test]
fn memory_of_every_width() {
    let mut random = Random::new(24);
    let input: Vec<u8> = (0..64 * 64).map(|_| random.u32() as u8).collect();
    let expected: Vec<u8> = input.chunks(64).flat_map(widths).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&input), session.allocate(64 * 64));
        session.run("widths", [1; 3], [64, 1, 1], &Arguments::new().add(from).add(to));
        let output: Vec<u8> = session.download(to, 64 * 64);
        for (lane, (got, want)) in output.chunks(64).zip(expected.chunks(64)).enumerate() {
            assert_eq!(got, want, "lane {lane}");
        }
    });
}

#[test]
fn pointers_to_any_memory() {
    let mut random = Random::new(25);
    let data: Vec<u32> = (0..256).map(|_| random.u32()).collect();
    let (mut memory, mut shared) = (data.clone(), (1000..1064).collect::<Vec<u32>>());
    let mut seen = vec![0u32; 64];
    for (i, seen) in seen.iter_mut().enumerate() {
        *seen = match i % 3 {
            0 => data[4 * i + i % 4],
            1 => (i * 10 + i % 4) as u32,
            _ => 1000 + i as u32,
        };
        let next = (i + 1) % 4;
        match i % 3 {
            0 => memory[4 * i + next] = seen.wrapping_add(7),
            1 => *seen = (*seen + 7) * 2 + *seen,
            _ => shared[(i & !3) + next] = *seen + 7,
        }
    }
    everywhere(CONTROL, |session| {
        let (there, to) = (session.upload(&data), session.allocate(512));
        session.run("generic", [1; 3], [64, 1, 1], &Arguments::new().add(there).add(to));
        let output: Vec<u32> = session.download(to, 128);
        assert_eq!(output[..64], seen, "what the lanes saw");
        assert_eq!(output[64..], shared, "LDS");
        assert_eq!(session.download::<u32>(there, 256), memory, "global memory");
    });
}

fn diverge(v: u32) -> u32 {
    let mut sum = 0u32;
    'out: for a in 0..v & 15 {
        if (v >> (a & 15)) & 1 == 1 {
            continue;
        }
        for b in a..12 {
            if (v >> 4) & 15 == b {
                break;
            }
            if a ^ b == (v >> 8) & 15 {
                sum += 1000;
                break 'out;
            }
            sum += a * b + 1;
        }
        if sum > 300 {
            return sum;
        }
    }
    sum ^ v
}

#[test]
fn nested_divergence() {
    let mut random = Random::new(26);
    let input: Vec<u32> = (0..1024).map(|_| random.u32()).collect();
    let expected: Vec<u32> = input.iter().copied().map(diverge).collect();
    everywhere(CONTROL, |session| {
        let (from, to) = (session.upload(&input), session.allocate(4096));
        session.run("divergence", [16, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(session.download::<u32>(to, 1024), expected);
    });
}
