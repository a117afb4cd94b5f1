//! Exchange between lanes.

use crate::programs::variants::{Program, everywhere};
use crate::programs::{LANES, numbers};
use crate::support::Arguments;

/// A DPP move: control, rows, banks, and true if lanes from outside are zero.
type Form = (u32, u32, u32, bool);

/// The forms of `lanes.hip` that all targets have.
const EVERYWHERE: [Form; 10] = [
    (0x1b, 0xf, 0xf, false),
    (0xd8, 0x7, 0x5, false),
    (0x101, 0xf, 0xf, true),
    (0x10e, 0xf, 0xf, false),
    (0x111, 0xf, 0xf, false),
    (0x117, 0x5, 0xe, true),
    (0x121, 0xf, 0xf, false),
    (0x12d, 0xa, 0x3, false),
    (0x140, 0xf, 0xf, false),
    (0x141, 0xf, 0xc, false),
];
const GFX9: [Form; 6] = [
    (0x130, 0xf, 0xf, false),
    (0x134, 0xf, 0xf, false),
    (0x138, 0xf, 0xf, true),
    (0x13c, 0x6, 0xf, false),
    (0x142, 0xa, 0xf, false),
    (0x143, 0xc, 0xf, false),
];
const GFX10: [Form; 6] = [
    (0x150, 0xf, 0xf, false),
    (0x15b, 0x3, 0x9, false),
    (0x161, 0xf, 0xf, false),
    (0x16f, 0xf, 0xf, false),
    (0x166, 0xe, 0x6, false),
    (0x153, 0xf, 0xf, true),
];

/// Returns the lane from which a control takes the value of a lane, or none outside of its row or wavefront.
fn source(control: u32, lane: usize, wave: usize) -> Option<usize> {
    let (row, at) = (lane & !15, lane & 15);
    let by = control as usize & 15;
    match control >> 4 {
        0x00..0x10 => Some((lane & !3) + (control as usize >> (2 * (lane & 3)) & 3)),
        0x10 => (at + by < 16).then_some(lane + by),
        0x11 => at.checked_sub(by).map(|at| row + at),
        0x12 => Some(row + (at + 16 - by) % 16),
        0x13 => match by {
            0 => (lane + 1 < wave).then_some(lane + 1),
            4 => Some((lane + 1) % wave),
            8 => lane.checked_sub(1),
            _ => Some((lane + wave - 1) % wave),
        },
        0x14 => match by {
            0 => Some(row + 15 - at),
            1 => Some((lane & !7) + 7 - (lane & 7)),
            2 => row.checked_sub(1),
            _ => Some(31),
        },
        0x15 => Some(row + by),
        0x16 => Some(lane ^ by),
        _ => unreachable!("{control:#x}"),
    }
}

/// Returns the value of a lane after a move.
fn moved(form: Form, values: &[u32], old: u32, lane: usize) -> u32 {
    let (control, rows, banks, zero) = form;
    let enabled = rows >> (lane / 16) & 1 == 1 && banks >> (lane / 4 % 4) & 1 == 1;
    match source(control, lane, values.len()) {
        Some(from) if enabled => values[from],
        None if enabled && zero => 0,
        _ => old,
    }
}

#[test]
fn dpp_forms() {
    let input = numbers(40, 128);
    everywhere(LANES, |p| {
        let (from, to) = (p.upload(&input), p.allocate(32 * 128 * 4));
        p.run("dpp_forms", [1; 3], [128, 1, 1], &Arguments::new().add(from).add(to));
        let out: Vec<u32> = p.download(to, 32 * 128);
        let generation = if p.units.is_gfx9() { GFX9 } else { GFX10 };
        for (k, form) in EVERYWHERE.into_iter().chain(generation).enumerate() {
            for i in 0..128 {
                let wave = &input[i / p.wave * p.wave..][..p.wave];
                let old = (!input[i]).wrapping_mul(3);
                let expected =
                    [moved(form, wave, old, i % p.wave), old.wrapping_add(moved(form, wave, 0, i % p.wave))];
                let got = [out[2 * k * 128 + i], out[(2 * k + 1) * 128 + i]];
                assert_eq!(got, expected, "control {:#x}, item {i}", form.0);
            }
        }
    });
}

fn sum(wave: &[u32]) -> u32 {
    wave.iter().fold(0, |a, &b| a.wrapping_add(b))
}

#[test]
fn reduction_by_dpp() {
    let input = numbers(1, 1024);
    everywhere(LANES, |p| {
        let expected = input.chunks(p.wave).flat_map(|wave| vec![sum(wave); p.wave]);
        let (from, to) = (p.upload(&input), p.allocate(4096));
        p.run("reduce_dpp", [4, 1, 1], [256, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(p.download::<u32>(to, 1024), expected.collect::<Vec<u32>>());
    });
}

#[test]
fn scan_by_dpp() {
    let input = numbers(41, 512);
    everywhere(LANES, |p| {
        let (from, inclusive, exclusive) = (p.upload(&input), p.allocate(2048), p.allocate(2048));
        let arguments = Arguments::new().add(from).add(inclusive).add(exclusive);
        p.run("scan_dpp", [2, 1, 1], [256, 1, 1], &arguments);
        let (inclusive, exclusive): (Vec<u32>, Vec<u32>) =
            (p.download(inclusive, 512), p.download(exclusive, 512));
        for i in 0..512 {
            assert_eq!(exclusive[i], sum(&input[i & !255..i]), "before item {i}");
            assert_eq!(inclusive[i], sum(&input[i & !255..=i]), "to item {i}");
        }
    });
}

#[test]
fn permutations_of_rows() {
    let input = numbers(42, 128);
    let (low, high) = (0x3fa5_0c61u32, 0x92d8_7eb4u32);
    everywhere(LANES, |p| {
        if p.units.is_gfx9() {
            assert!(p.module.kernel("permlane_forms").is_none());
            return;
        }
        let (from, to) = (p.upload(&input), p.allocate(6 * 512));
        let arguments = Arguments::new().add(from).add(to).add(low).add(high);
        p.run("permlane_forms", [1; 3], [128, 1, 1], &arguments);
        let out: Vec<u32> = p.download(to, 6 * 128);
        let chosen = |low: u32, high: u32, at: usize| {
            (u64::from(low) | u64::from(high) << 32) as usize >> (4 * at) & 15
        };
        for i in 0..128 {
            let (row, at, eight) = (i & !15, i & 15, i & !7);
            let octal = [4, 7, 2, 3, 1, 6, 5, 0][i & 7];
            let expected = [
                input[row + chosen(low, high, at)],
                input[(row ^ 16) + chosen(low, high, at)],
                input[row + chosen(high, low, at)],
                input[eight + octal],
                input[eight].wrapping_add(input[i]),
                if p.wave == 64 { input[i ^ 32] } else { input[i] },
            ];
            for (k, expected) in expected.into_iter().enumerate() {
                assert_eq!(out[k * 128 + i], expected, "form {k} of item {i}");
            }
        }
    });
}

#[test]
fn shuffles_through_lds() {
    let input = numbers(2, 256);
    everywhere(LANES, |p| {
        let from = p.upload(&input);
        let [sums, pushed, swizzled, widest] = [1024, 1024, 1024, 2048].map(|bytes| p.allocate(bytes));
        let arguments = Arguments::new().add(from).add(sums).add(pushed).add(swizzled).add(widest);
        p.run("shuffles", [2, 1, 1], [128, 1, 1], &arguments);
        let words = |at| p.download::<u32>(at, 256);
        let (sums, pushed, swizzled) = (words(sums), words(pushed), words(swizzled));
        let widest: Vec<f64> = p.download(widest, 256);
        for i in 0..256 {
            let wave = &input[i / p.wave * p.wave..][..p.wave];
            assert_eq!(sums[i], sum(wave), "sum of item {i}");
            let highest = wave.iter().map(|&v| v as i32).max().unwrap();
            assert_eq!(widest[i], f64::from(highest) * 0.5, "maximum of item {i}");
            // 13 is the inverse of 5 modulo 32.
            let (half, at) = (i & !31, i & 31);
            assert_eq!(pushed[i], input[half + (at + 29) * 13 % 32], "sent to item {i}");
            let quad = [0, 2, 1, 3][i & 3] + (i & !3);
            let moves = [(i ^ 1, 1u32), (quad, 3), ((i & !7) | 5, 5), (i ^ 16, 7)];
            let expected = moves.iter().fold(0u32, |s, &(j, by)| s.wrapping_add(input[j].wrapping_mul(by)));
            assert_eq!(swizzled[i], expected, "swizzles of item {i}");
        }
    });
}

fn mask(wave: &[u32], of: impl Fn(u32) -> bool) -> u64 {
    wave.iter().enumerate().fold(0, |mask, (lane, &v)| mask | u64::from(of(v)) << lane)
}

#[test]
fn masks_of_lanes() {
    let mut input = numbers(43, 256);
    // One wavefront without large and one without small numbers.
    input[..64].iter_mut().for_each(|v| *v &= 0x0fff_ffff);
    everywhere(LANES, |p| {
        let from = p.upload(&input);
        let [ballots, ranks, peers, firsts] = [2048, 1024, 2048, 1024].map(|bytes| p.allocate(bytes));
        let arguments = Arguments::new().add(from).add(ballots).add(ranks).add(peers).add(firsts);
        p.run("masks", [2, 1, 1], [128, 1, 1], &arguments);
        let (ballots, peers): (Vec<u64>, Vec<u64>) = (p.download(ballots, 256), p.download(peers, 256));
        let (ranks, firsts): (Vec<u32>, Vec<u32>) = (p.download(ranks, 256), p.download(firsts, 256));
        for i in 0..256 {
            let (wave, lane, v) = (&input[i / p.wave * p.wave..][..p.wave], i % p.wave, input[i]);
            let odd = mask(wave, |v| v & 1 == 1);
            assert_eq!(ballots[i], odd, "ballot of item {i}");
            let any = u32::from(wave.iter().any(|&v| v > 0x1000_0000)) * 0x100;
            let all = u32::from(wave.iter().all(|&v| v < 0xf000_0000)) * 0x200;
            assert_eq!(ranks[i], (odd & ((1 << lane) - 1)).count_ones() | any | all, "rank of item {i}");
            assert_eq!(peers[i], mask(wave, |w| w >> 4 & 7 == v >> 4 & 7), "lanes like item {i}");
            let first = |of: &dyn Fn(u32) -> bool| *wave.iter().find(|&&v| of(v)).unwrap();
            let expected = match v & 3 {
                0 | 2 => first(&|v| v & 1 == 0).wrapping_mul(3).wrapping_add(1),
                1 => first(&|v| v & 1 == 1),
                _ => first(&|v| v & 1 == 1) ^ !first(&|v| v & 3 == 3),
            };
            let chosen = wave[input[0] as usize % p.wave];
            assert_eq!(firsts[i], expected.wrapping_add(chosen), "first lane of item {i}");
        }
    });
}

#[test]
fn segmented_scan_and_compaction() {
    let input = numbers(44, 256);
    everywhere(LANES, |p| {
        let from = p.upload(&input);
        let [scanned, kept, counts] = [(); 3].map(|()| p.upload(&[0u32; 256]));
        let arguments = Arguments::new().add(from).add(scanned).add(kept).add(counts);
        p.run("segments", [2, 1, 1], [128, 1, 1], &arguments);
        let words = |at| p.download::<u32>(at, 256);
        let (scanned, kept, counts) = (words(scanned), words(kept), words(counts));
        for (number, wave) in input.chunks(p.wave).enumerate() {
            let mut sum = 0;
            for (lane, &v) in wave.iter().enumerate() {
                sum = if v % 5 == 0 { 0 } else { sum } + (v & 0xffff);
                assert_eq!(scanned[number * p.wave + lane], sum, "wavefront {number}, lane {lane}");
            }
            let mut expected: Vec<u32> = wave.iter().copied().filter(|v| v % 3 == 0).collect();
            assert_eq!(counts[number], expected.len() as u32, "wavefront {number}");
            expected.resize(p.wave, 0);
            assert_eq!(kept[number * p.wave..][..p.wave], expected, "wavefront {number}");
        }
    });
}

#[test]
fn sorting_in_registers() {
    let input: Vec<i32> = numbers(45, 256).iter().map(|&x| x as i32).collect();
    let mut expected = input.clone();
    expected.chunks_mut(32).for_each(<[i32]>::sort_unstable);
    everywhere(LANES, |p: &Program| {
        let (from, to) = (p.upload(&input), p.allocate(1024));
        p.run("sort_lanes", [2, 1, 1], [128, 1, 1], &Arguments::new().add(from).add(to));
        assert_eq!(p.download::<i32>(to, 256), expected);
    });
}
