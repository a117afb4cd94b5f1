//! Atomic operations, and locks, tables and scans over work-groups made of them.

use crate::programs::variants::{Program, everywhere};
use crate::programs::{ATOMICS, numbers};
use crate::support::{Arguments, Random};
use half::f16;
use std::collections::{BTreeMap, BTreeSet};

/// Integers of one type as the 64-bit words that operations are defined on.
trait Integer: bytemuck::Pod + Ord + std::fmt::Debug {
    const BITS: u32;
    const WRAPS: bool;
    fn cut(word: u64) -> Self;
    fn word(self) -> u64;
}

macro_rules! integer {
    ($($type:ty, $wraps:literal;)*) => {$(
        impl Integer for $type {
            const BITS: u32 = <$type>::BITS;
            const WRAPS: bool = $wraps;
            fn cut(word: u64) -> Self {
                word as Self
            }
            fn word(self) -> u64 {
                self as u64
            }
        }
    )*};
}

integer! { u32, true; i32, false; u64, true; i64, false; }

/// Returns the value of a cell after operation `kind` of `each` and `wrapping` in `atomics.hip`.
fn after<T: Integer>(kind: usize, cell: T, operand: T, compare: T) -> T {
    let (x, y) = (cell.word(), operand.word());
    match kind {
        0 => T::cut(x.wrapping_add(y)),
        1 => T::cut(x.wrapping_sub(y)),
        2 => T::cut(x & y),
        3 => T::cut(x | y),
        4 => T::cut(x ^ y),
        5 => cell.min(operand),
        6 => cell.max(operand),
        7 => operand,
        8 if cell == compare => operand,
        9 if T::WRAPS => T::cut(if x >= y { 0 } else { x + 1 }),
        10 if T::WRAPS => T::cut(if x == 0 || x > y { y } else { x - 1 }),
        _ => cell,
    }
}

fn every_kind<T: Integer>(p: &Program, kernel: &str) {
    const KINDS: usize = 11;
    let mut random = Random::new(50);
    let mut value = || {
        let word = random.u64();
        let edges = [0, 1, u64::MAX, 1 << (T::BITS - 1), (1 << (T::BITS - 1)) - 1];
        T::cut(if word % 3 == 0 { edges[random.below(5) as usize] } else { word >> random.below(T::BITS) })
    };
    let operands: Vec<T> = (0..128).map(|_| value()).collect();
    let mut cells: Vec<T> = (0..2 * 64 * 3 * KINDS).map(|_| value()).collect();
    for (i, cell) in cells.iter_mut().enumerate() {
        // Half of the compare-and-swaps succeed.
        if i % KINDS == 8 && i % 2 == 0 {
            *cell = operands[i / (3 * KINDS) % 64 * 2 + 1];
        }
    }
    let (there, operands_there) = (p.upload(&cells), p.upload(&operands));
    let before = p.upload(&vec![T::zeroed(); cells.len()]);
    let arguments = Arguments::new().add(there).add(before).add(operands_there);
    p.run(kernel, [2, 1, 1], [64, 1, 1], &arguments);
    let (got, before): (Vec<T>, Vec<T>) = (p.download(there, cells.len()), p.download(before, cells.len()));
    for (i, &cell) in cells.iter().enumerate() {
        let (kind, item) = (i % KINDS, i / (3 * KINDS));
        let (operand, compare) = (operands[item % 64 * 2], operands[item % 64 * 2 + 1]);
        let what = format!("{kernel}: operation {kind} of {cell:?}, {operand:?}, {compare:?}, cell {i}");
        assert_eq!(got[i], after(kind, cell, operand, compare), "{what}");
        let returned = item < 64 && (kind < 9 || T::WRAPS);
        assert_eq!(before[i], if returned { cell } else { T::zeroed() }, "{what}: returned");
    }
}

#[test]
fn every_kind_and_size() {
    everywhere(ATOMICS, |p| {
        every_kind::<u32>(p, "atomics_u32");
        every_kind::<i32>(p, "atomics_i32");
        every_kind::<u64>(p, "atomics_u64");
        every_kind::<i64>(p, "atomics_i64");
    });
}

#[test]
fn floats() {
    let mut random = Random::new(51);
    // Sums of an eighth of them are exact in a half, in any order.
    let input: Vec<f32> = (0..256).map(|_| random.below(200) as f32 - 100.0).collect();
    let lowest = |v: &[f32]| v.iter().copied().fold(f32::INFINITY, f32::min).min(0.0);
    let highest = |v: &[f32]| v.iter().copied().fold(f32::NEG_INFINITY, f32::max).max(0.0);
    let mut halves = [[0.0f32; 2]; 7];
    for (i, v) in input.iter().enumerate() {
        halves[i % 7][0] += v * 0.125;
        halves[i % 7][1] += 1.0;
    }
    everywhere(ATOMICS, |p| {
        let (from, singles) = (p.upload(&input), p.upload(&[0f32; 40 + 512]));
        let (doubles, pairs) = (p.upload(&[0f64; 40 + 512]), p.upload(&[0u32; 7]));
        let arguments = Arguments::new().add(from).add(singles).add(doubles).add(pairs);
        p.run("float_atomics", [2, 1, 1], [128, 1, 1], &arguments);
        let singles: Vec<f32> = p.download(singles, 40 + 512);
        let doubles: Vec<f64> = p.download(doubles, 40 + 512);
        let sum: f32 = input.iter().sum();
        assert_eq!(singles[..3], [sum, lowest(&input), highest(&input)]);
        assert_eq!(doubles[..3], [sum * 0.25, lowest(&input), highest(&input)].map(f64::from));
        let three = |values: &[f32]| [values.iter().sum(), lowest(values), highest(values)];
        for (wave, values) in input.chunks(p.wave).enumerate() {
            let expected = three(values);
            assert_eq!(singles[4 + 3 * wave..][..3], expected, "LDS of wavefront {wave}");
            assert_eq!(doubles[4 + 3 * wave..][..3], expected.map(f64::from), "LDS of wavefront {wave}");
        }
        for (group, values) in input.chunks(128).enumerate() {
            assert_eq!(singles[32 + 3 * group..][..3], three(values), "LDS of group {group}");
        }
        for (i, &v) in input.iter().enumerate() {
            assert_eq!(singles[40 + 2 * i..][..2], [0.0, v], "returned to item {i}");
            assert_eq!(doubles[40 + 2 * i..][..2], [0.0, f64::from(v)], "returned to item {i}");
        }
        for (cell, expected) in p.download::<[u16; 2]>(pairs, 7).into_iter().zip(halves) {
            assert_eq!(cell.map(|h| f16::from_bits(h).to_f32()), expected);
        }
    });
}

#[test]
fn many_at_one_counter() {
    const ITEMS: u32 = 512;
    let words = (0..u64::from(ITEMS)).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let low = words.clone().map(|w| w as i64).min().unwrap();
    let high = words.clone().map(|w| w as i64).max().unwrap();
    let expected = [
        words.clone().fold(0, |x, w| x ^ w),
        (1 << 61) - 1,
        u64::MAX << 59,
        words.fold(0, u64::wrapping_add),
    ];
    everywhere(ATOMICS, |p| {
        let counters = p.upload(&[5u32, 30, 30, 1, 0]);
        let [tickets, chain] = [(); 2].map(|()| p.allocate(4 * ITEMS as usize));
        let (mixed, extremes) = (p.upload(&[0, 0, u64::MAX, 0]), p.upload(&[0i64; 2]));
        let arguments = Arguments::new().add(counters).add(tickets).add(chain).add(mixed).add(extremes);
        p.run("contended", [4, 1, 1], [128, 1, 1], &arguments);
        let counters: Vec<u32> = p.download(counters, 5);
        // Counting up wraps after 99, counting down to 99.
        let power = (0..ITEMS).fold(1u32, |x, _| (u64::from(x) * 3 % 1_000_003) as u32);
        assert_eq!(counters[..4], [5 + ITEMS, (30 + ITEMS) % 100, (30 + 600 - ITEMS) % 100, power]);
        let mut tickets: Vec<u32> = p.download(tickets, ITEMS as usize);
        tickets.sort_unstable();
        assert_eq!(tickets, (5..5 + ITEMS).collect::<Vec<u32>>(), "each number is returned once");
        // Every item's number is returned to another one, except for the last, which is in the cell.
        let mut seen: Vec<u32> = p.download(chain, ITEMS as usize);
        seen.push(counters[4]);
        seen.sort_unstable();
        assert_eq!(seen, (0..=ITEMS).collect::<Vec<u32>>());
        assert_eq!(p.download::<u64>(mixed, 4), expected);
        assert_eq!(p.download::<i64>(extremes, 2), [low, high]);
    });
}

#[test]
fn lock_of_wavefronts() {
    everywhere(ATOMICS, |p| {
        let (lock, log) = (p.upload(&[0u32]), p.upload(&[0u32; 33]));
        p.run("spin_lock", [8, 1, 1], [128, 1, 1], &Arguments::new().add(lock).add(log));
        let waves = 8 * 128 / p.wave;
        let mut log: Vec<u32> = p.download(log, 1 + waves);
        assert_eq!(log.remove(0) as usize, waves);
        log.sort_unstable();
        assert_eq!(log, (0..waves).map(|w| (w * p.wave) as u32).collect::<Vec<u32>>());
    });
}

#[test]
fn last_group_sums() {
    let input: Vec<u32> = numbers(52, 128 * 11).iter().map(|v| v >> 12).collect();
    let expected: u64 = input.iter().map(|&v| u64::from(v)).sum();
    everywhere(ATOMICS, |p| {
        let (from, partial, done, total) =
            (p.upload(&input), p.allocate(44), p.upload(&[0u32]), p.upload(&[0u64]));
        let arguments = Arguments::new().add(from).add(partial).add(done).add(total);
        p.run("last_group", [11, 1, 1], [128, 1, 1], &arguments);
        assert_eq!(p.download::<u64>(total, 1), [expected]);
    });
}

#[test]
fn scan_that_looks_back() {
    let input = numbers(53, 128 * 13 - 50);
    let expected: Vec<u32> =
        input.iter().scan(0u32, |sum, &x| Some(std::mem::replace(sum, sum.wrapping_add(x)))).collect();
    everywhere(ATOMICS, |p| {
        let (from, to) = (p.upload(&input), p.allocate(input.len() * 4));
        let (ticket, states) = (p.upload(&[0u32]), p.upload(&[0u64; 13]));
        let arguments = Arguments::new().add(from).add(to).add(ticket).add(states).add(input.len() as u32);
        p.run("look_back", [13, 1, 1], [128, 1, 1], &arguments);
        assert_eq!(p.download::<u32>(to, input.len()), expected);
    });
}

#[test]
fn hash_table_of_keys() {
    const SIZE: usize = 331;
    let mut random = Random::new(54);
    let pool: Vec<u32> = (0..300).map(|_| random.u32() | 1).collect();
    let keys: Vec<u32> = (0..700).map(|_| pool[random.below(300) as usize]).collect();
    let mut expected = BTreeMap::new();
    keys.iter().for_each(|&key| *expected.entry(key).or_insert(0u32) += 1);
    everywhere(ATOMICS, |p| {
        let (from, slots, counts) = (p.upload(&keys), p.upload(&[0u32; SIZE]), p.upload(&[0u32; SIZE]));
        let arguments =
            Arguments::new().add(from).add(keys.len() as u32).add(slots).add(counts).add(SIZE as u32);
        p.run("hash_table", [6, 1, 1], [128, 1, 1], &arguments);
        let (slots, counts): (Vec<u32>, Vec<u32>) = (p.download(slots, SIZE), p.download(counts, SIZE));
        let filled = slots.into_iter().zip(counts).filter(|&(key, _)| key != 0);
        assert_eq!(filled.collect::<BTreeMap<u32, u32>>(), expected);
    });
}

#[test]
fn connected_components() {
    const NODES: u32 = 500;
    let mut random = Random::new(55);
    let edges: Vec<[u32; 2]> = (0..420).map(|_| [random.below(NODES), random.below(NODES)]).collect();
    // The smallest node that each one reaches.
    let mut expected: Vec<u32> = (0..NODES).collect();
    for _ in 0..NODES {
        for &[a, b] in &edges {
            let low = expected[a as usize].min(expected[b as usize]);
            (expected[a as usize], expected[b as usize]) = (low, low);
        }
    }
    assert!(expected.iter().collect::<BTreeSet<_>>().len() > 50, "several components");
    everywhere(ATOMICS, |p| {
        let (from, parents) = (p.upload(&edges), p.upload(&(0..NODES).collect::<Vec<u32>>()));
        let arguments = Arguments::new().add(from).add(edges.len() as u32).add(parents);
        p.run("components", [3, 1, 1], [128, 1, 1], &arguments);
        let parents: Vec<u32> = p.download(parents, NODES as usize);
        for node in 0..NODES {
            let mut root = node;
            while parents[root as usize] != root {
                root = parents[root as usize];
            }
            assert_eq!(root, expected[node as usize], "node {node}");
        }
    });
}
