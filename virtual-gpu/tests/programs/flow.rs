//! Control flow: exits from loops, jumps, switches, calls, barriers in loops, grids of any shape.

use crate::programs::variants::everywhere;
use crate::programs::{FLOW, numbers};
use crate::support::{Arguments, Random};

/// Returns the solutions of the queens' problem with queens in some columns of the first rows.
fn queens(n: usize, placed: &[usize]) -> u32 {
    let attacked =
        |a: usize, b: usize| placed[a] == placed[b] || placed[a].abs_diff(placed[b]) == a.abs_diff(b);
    let last = placed.len() - 1;
    if (0..last).any(|row| attacked(row, last)) {
        return 0;
    }
    if placed.len() == n {
        return 1;
    }
    (0..n).map(|column| queens(n, &[placed, &[column]].concat())).sum()
}

#[test]
fn eight_queens() {
    for n in [4usize, 7] {
        let expected: Vec<u32> =
            (0..n * n).map(|i| if i % n == i / n { 0 } else { queens(n, &[i % n, i / n]) }).collect();
        assert_eq!(expected.iter().sum::<u32>(), if n == 4 { 2 } else { 40 });
        everywhere(FLOW, |p| {
            let to = p.allocate(n * n * 4);
            p.run("queens", [1; 3], [64, 1, 1], &Arguments::new().add(to).add(n as u32));
            assert_eq!(p.download::<u32>(to, n * n), expected);
        });
    }
}

/// A random sum of products, its text and its value.
fn expression(random: &mut Random, depth: u32) -> (String, i32) {
    match random.below(if depth == 0 { 1 } else { 5 }) {
        0 => {
            let number = random.below(1000);
            (number.to_string(), number as i32)
        }
        1 => {
            let (text, value) = expression(random, depth - 1);
            (format!("({text})"), value)
        }
        2 => {
            let (text, value) = expression(random, depth - 1);
            (format!("-({text})"), value.wrapping_neg())
        }
        3 => {
            let ((a, x), (b, y)) = (expression(random, depth - 1), expression(random, depth - 1));
            (format!("(({a})*({b}))"), x.wrapping_mul(y))
        }
        _ => {
            let ((a, x), (b, y)) = (expression(random, depth - 1), expression(random, depth - 1));
            (format!("({a}-({b})+{a})"), x.wrapping_sub(y).wrapping_add(x))
        }
    }
}

#[test]
fn recursive_descent() {
    let mut random = Random::new(120);
    let mut texts: Vec<(String, Option<i32>)> =
        [("2+3*4", 14), ("10-2-3", 5), ("--7", 7), ("2*(3+4)*5", 70), ("-2*3", -6)]
            .map(|(text, value)| (text.to_owned(), Some(value)))
            .into();
    for wrong in ["", "(", "1+", "(1", "1)", "a", "2**3", "12b", "((2)"] {
        texts.push((wrong.to_owned(), None));
    }
    while texts.len() < 64 {
        let (text, value) = expression(&mut random, 3);
        texts.push((text, Some(value)));
    }
    let all: String = texts.iter().map(|(text, _)| text.as_str()).collect();
    let mut offsets = vec![0u32];
    texts.iter().for_each(|(text, _)| offsets.push(offsets[offsets.len() - 1] + text.len() as u32));
    everywhere(FLOW, |p| {
        let (from, starts) = (p.upload(all.as_bytes()), p.upload(&offsets));
        let (values, ends) = (p.allocate(256), p.allocate(256));
        let arguments = Arguments::new().add(from).add(starts).add(values).add(ends);
        p.run("parser", [1; 3], [64, 1, 1], &arguments);
        let (values, ends): (Vec<i32>, Vec<u32>) = (p.download(values, 64), p.download(ends, 64));
        for (i, (text, value)) in texts.iter().enumerate() {
            match value {
                Some(value) => assert_eq!((values[i], ends[i] as usize), (*value, text.len()), "{text}"),
                None => assert_eq!(ends[i] >> 31, 1, "{text} is an error"),
            }
        }
    });
}

/// A label of `jumps`.
enum Label {
    First,
    Second,
    Third,
    Again,
}

fn jumps(v: u32) -> u32 {
    let (mut steps, mut state) = (0u32, v & 3);
    let mut label = if v & 4 != 0 { Label::Second } else { Label::First };
    loop {
        label = match label {
            Label::First => {
                steps += 3;
                state = state.wrapping_mul(5).wrapping_add(1);
                if steps > 200 {
                    break;
                }
                if state & 8 != 0 { Label::Third } else { Label::Second }
            }
            Label::Second => {
                steps += 7;
                state ^= v >> (steps & 15);
                let mut next = Label::Third;
                let mut k = 0;
                while k < state & 7 {
                    match v >> k & 3 {
                        3 => {
                            next = Label::First;
                            break;
                        }
                        1 => {}
                        _ => {
                            steps += 1;
                            if state >> k & 1 == 1 {
                                break;
                            }
                        }
                    }
                    k += 1;
                }
                next
            }
            Label::Third => {
                state = state.wrapping_add(v >> 28 | 1);
                steps += 11;
                if steps > 220 {
                    break;
                }
                match state % 7 {
                    0 => Label::First,
                    1 => Label::Second,
                    5 | 6 => Label::Again,
                    kind => {
                        match kind {
                            2 => {}
                            3 => (state, steps) = (state.wrapping_add(2) ^ 5, steps + 1),
                            _ => (state, steps) = (state ^ 5, steps + 1),
                        }
                        if state % 3 != 0 { Label::Third } else { Label::Again }
                    }
                }
            }
            Label::Again => {
                if state % 5 != 0 {
                    Label::First
                } else {
                    Label::Second
                }
            }
        };
    }
    state ^ steps << 24
}

#[test]
fn jumps_into_and_out_of_loops() {
    let input = numbers(121, 256);
    let expected: Vec<u32> = input.iter().copied().map(jumps).collect();
    everywhere(FLOW, |p| {
        let (from, to) = (p.upload(&input), p.allocate(1024));
        p.run("jumps", [4, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(p.download::<u32>(to, 256), expected);
    });
}

fn switches(v: u32) -> u32 {
    let r = match v & 0xfff {
        3 => 1,
        17 => v >> 12,
        0x100 => !v,
        0x7ff..=0x801 => v.wrapping_mul(3),
        0xfff => 7,
        _ => v & 0xf,
    };
    let r = match v >> 27 {
        0 => r.wrapping_add(11),
        1 => r ^ 0x55,
        2 => r.wrapping_mul(3),
        3 => r.wrapping_sub(923),
        4 => r.wrapping_add(77),
        5 => r.reverse_bits(),
        6 => r.count_ones(),
        7 => r << 3,
        8 => r >> 2,
        9 => r | 0x8001,
        10 => r % 1009,
        11 => r / 13,
        12 => r.leading_zeros(),
        _ => r ^ v,
    };
    r.wrapping_add(match (v % 5, v % 3) {
        (0, 0) => 1,
        (1, 0) => 2,
        (3, 2) => 3,
        (4, 1) => 4,
        _ => 0,
    })
}

#[test]
fn jump_tables() {
    let mut input = numbers(122, 256);
    let low = [3, 17, 0x100, 0x7ff, 0x800, 0x801, 0xfff, 4];
    input[..128].iter_mut().enumerate().for_each(|(i, v)| *v = *v & !0xfff | low[i % 8]);
    let expected: Vec<u32> = input.iter().copied().map(switches).collect();
    everywhere(FLOW, |p| {
        let (from, to) = (p.upload(&input), p.allocate(1024));
        p.run("switches", [4, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(p.download::<u32>(to, 256), expected);
    });
}

#[test]
fn calls_by_tables_and_pointers() {
    let mut random = Random::new(123);
    let shapes: Vec<[f32; 2]> = (0..128).map(|_| [random.unit(), random.unit()].map(|x| x * 8.0)).collect();
    for first in [0u8, 1] {
        let mut kinds: Vec<u8> = (0..128).map(|_| random.u32() as u8).collect();
        kinds[0] = first;
        let measure = |kind: u8, [a, b]: [f32; 2], k: f32| match kind & 3 {
            0 => a * b * k,
            1 => a * b * 0.5 * k,
            2 => (a * a - b * b) * 3.0 * k,
            _ => -1.0,
        };
        let call = |(&[a, b], &kind): (&[f32; 2], &u8)| {
            let (mut sum, mut a) = (0.0, a);
            for k in 0..3u8 {
                sum += measure(kind.wrapping_add(k), [a, b], f32::from(k + 1));
                a += 1.0;
            }
            sum += measure(if first == 1 { 0 } else { 2 }, [a, b], 2.0);
            let line = |x: f32| x * b + sum;
            sum + line(line(0.5))
        };
        let expected: Vec<f32> = shapes.iter().zip(&kinds).map(call).collect();
        everywhere(FLOW, |p| {
            let (from, kinds, to) = (p.upload(&shapes), p.upload(&kinds), p.allocate(512));
            p.run("calls", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(kinds).add(to));
            assert_eq!(p.download::<f32>(to, 128), expected);
        });
    }
}

#[test]
fn game_of_life() {
    let mut random = Random::new(124);
    let mut input: Vec<u8> = (0..2048).map(|_| u8::from(random.below(3) == 0)).collect();
    // The second board has a glider, which is one cell further down and right after four generations.
    input[1024..].fill(0);
    let glider = [1usize, 34, 64, 65, 66];
    glider.iter().for_each(|at| input[1024 + at] = 1);
    for generations in [1u32, 12] {
        let mut boards = input.clone();
        for _ in 0..generations {
            let old = boards.clone();
            for (i, cell) in boards.iter_mut().enumerate() {
                let (base, x, y) = (i & !1023, i % 32, i % 1024 / 32);
                let at = |dx: usize, dy: usize| old[base + (y + dy) % 32 * 32 + (x + dx) % 32];
                let around: u8 = (0..9).filter(|k| *k != 4).map(|k| at(31 + k % 3, 31 + k / 3)).sum();
                *cell = u8::from(around == 3 || around == 2 && old[i] == 1);
            }
        }
        if generations == 12 {
            let moved: Vec<usize> = glider.iter().map(|at| at + 3 * 33).collect();
            assert!(moved.iter().all(|at| boards[1024 + at] == 1), "the formula moves a glider");
        }
        everywhere(FLOW, |p| {
            let (from, to) = (p.upload(&input), p.allocate(2048));
            let arguments = Arguments::new().add(from).add(to).add(generations);
            p.run("life", [2, 1, 1], [256, 1, 1], &arguments);
            assert_eq!(p.download::<u8>(to, 2048), boards, "{generations} generations");
        });
    }
}

#[test]
fn loop_over_the_grid() {
    let mut random = Random::new(125);
    let (x, y): (Vec<f32>, Vec<f32>) = (0..1000).map(|_| (random.unit(), random.unit())).unzip();
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 0.75 * x + y).collect();
    // The last wavefront of 100 and of 33 items is not full.
    for (groups, size) in [(3u32, 100u32), (7, 33), (1, 256)] {
        let mut visits = vec![0u32; groups as usize];
        for item in 0..groups * size {
            let mine = (item..1000).step_by((groups * size) as usize).count() as u32;
            visits[(item / size) as usize] += if mine > 2 { mine } else { 0 };
        }
        everywhere(FLOW, |p| {
            let (from, to, counts) = (p.upload(&x), p.upload(&y), p.allocate(4 * groups as usize));
            let arguments = Arguments::new().add(from).add(to).add(1000u32).add(0.75f32).add(counts);
            p.run("grid_stride", [groups, 1, 1], [size, 1, 1], &arguments);
            assert_eq!(p.download::<f32>(to, 1000), expected, "{groups} groups of {size}");
            assert_eq!(p.download::<u32>(counts, groups as usize), visits, "{groups} groups of {size}");
        });
    }
}

#[test]
fn stencil_in_three_dimensions() {
    let size = [13usize, 7, 5];
    let mut random = Random::new(126);
    let input: Vec<f32> = (0..size.iter().product()).map(|_| random.unit()).collect();
    let at = |x: usize, y: usize, z: usize| (z * size[1] + y) * size[0] + x;
    let mut expected = vec![0.0f32; input.len()];
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                let mut sum = input[at(x, y, z)] * -6.0;
                let mut add = |inside: bool, x: usize, y: usize, z: usize| {
                    sum += if inside { input[at(x, y, z)] } else { 0.0 };
                };
                add(x > 0, x.wrapping_sub(1), y, z);
                add(x + 1 < size[0], x + 1, y, z);
                add(y > 0, x, y.wrapping_sub(1), z);
                add(y + 1 < size[1], x, y + 1, z);
                add(z > 0, x, y, z.wrapping_sub(1));
                add(z + 1 < size[2], x, y, z + 1);
                expected[at(x, y, z)] = sum;
            }
        }
    }
    everywhere(FLOW, |p| {
        let (from, to) = (p.upload(&input), p.allocate(input.len() * 4));
        let [nx, ny, nz] = size.map(|s| s as u32);
        let arguments = Arguments::new().add(from).add(to).add(nx).add(ny).add(nz);
        p.run("stencil", [3, 3, 2], [5, 3, 4], &arguments);
        assert_eq!(p.download::<f32>(to, input.len()), expected);
    });
}
