//! Commands of the copy engine.

use crate::thunk::{Memory, PAGE, SDMA, Thunk, VRAM, until};

const NOP: u32 = 0;

fn halves(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// Fills memory with bytes that differ from their neighbours.
fn pattern(memory: &Memory) {
    (0..memory.bytes / 8).for_each(|i| memory.set(8 * i, i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
}

fn linear(to: u64, from: u64, bytes: u32) -> [u32; 7] {
    let (from, to) = (halves(from), halves(to));
    [1, bytes - 1, 0, from[0], from[1], to[0], to[1]]
}

#[test]
fn ranges_of_any_size_and_place() {
    let thunk = Thunk::new(&[]);
    let (queue, from, to) = (thunk.queue(0, SDMA), thunk.gtt(4 * PAGE), thunk.memory(4 * PAGE, 0, VRAM));
    pattern(&from);
    for (target, source, bytes) in [(0, 0, 16384), (5, 3, 1001), (4095, 1, 2), (8, 16, 1)] {
        (0..to.bytes / 8).for_each(|i| to.set(8 * i, 0));
        queue.command(&linear(to.at + target, from.at + source, bytes));
        queue.drain();
        let bytes = u64::from(bytes);
        assert_eq!(to.bytes(target, bytes), from.bytes(source, bytes));
        let rest = to
            .bytes(0, to.bytes)
            .iter()
            .enumerate()
            .all(|(i, &b)| b == 0 || (target..target + bytes).contains(&(i as u64)));
        assert!(rest, "only they were written");
    }
}

/// Rows and slices with pitches, in elements of 1 to 16 bytes.
#[test]
fn rectangles() {
    let thunk = Thunk::new(&[]);
    let (queue, from, to) = (thunk.queue(0, SDMA), thunk.gtt(16 * PAGE), thunk.gtt(16 * PAGE));
    pattern(&from);
    for element in 0..5u32 {
        (0..to.bytes / 8).for_each(|i| to.set(8 * i, 0));
        let (x, y, z, width, rows, slices) = (3u32, 2u32, 1u32, 7u32, 5u32, 3u32);
        let (pitch, slice) = ([16u32, 24], [160u32, 240]);
        let side = |of: &Memory, x: u32, y: u32, z: u32, i: usize| {
            let [low, high] = halves(of.at);
            [low, high, x | y << 16, z | (pitch[i] - 1) << 13, slice[i] - 1]
        };
        let mut words = vec![1 | 4 << 8 | element << 29];
        words.extend(side(&from, x, y, z, 0));
        words.extend(side(&to, 1, 0, 0, 1));
        words.extend([(width - 1) | (rows - 1) << 16, slices - 1]);
        queue.command(&words);
        queue.drain();
        let mut copied = 0;
        for (k, j) in (0..slices).flat_map(|k| (0..rows).map(move |j| (k, j))) {
            let source = u64::from(x + (y + j) * pitch[0] + (z + k) * slice[0]) << element;
            let target = u64::from(1 + j * pitch[1] + k * slice[1]) << element;
            let bytes = u64::from(width) << element;
            assert_eq!(to.bytes(target, bytes), from.bytes(source, bytes), "{element} {k} {j}");
            copied += to.bytes(target, bytes).iter().filter(|&&b| b != 0).count();
        }
        let written = to.bytes(0, to.bytes).iter().filter(|&&b| b != 0).count();
        assert_eq!(written, copied, "no other byte was written");
    }
}

/// Runtimes put a command for caches before and after each copy from SDMA 5 on.
#[test]
fn commands_for_caches() {
    let thunk = Thunk::new(&[("CARDS", "rx7900xtx")]);
    let (queue, data) = (thunk.queue(0, SDMA), thunk.gtt(PAGE));
    let at = halves(data.at);
    // GL2, GL1, GLV and GLK: write back and invalidate.
    let caches = [17 | 1 << 8, 0, 0xc3c0_0000, 0, 0];
    queue.command(&caches);
    queue.command(&[11 | 2 << 30, at[0], at[1], 0xabcd_1234, 8 - 1]);
    queue.command(&caches);
    queue.drain();
    assert_eq!((data.get(0), data.get(8)), (0xabcd_1234_abcd_1234, 0));
}

#[test]
fn fills_writes_fences_atomics_and_times() {
    let thunk = Thunk::new(&[]);
    let (queue, data) = (thunk.queue(0, SDMA), thunk.gtt(PAGE));
    let event = thunk.event(0, true);
    let at = |offset: u64| halves(data.at + offset);
    queue.command(&[11 | 2 << 30, at(0)[0], at(0)[1], 0xabcd_1234, 12 - 1]);
    queue.command(&[2, at(64)[0], at(64)[1], 2, 1, 2, 3]);
    queue.command(&[5, at(128)[0], at(128)[1], 77]);
    data.set(192, u64::MAX);
    queue.command(&[10 | 47 << 25, at(192)[0], at(192)[1], 3, 0, 0, 0, 0]);
    queue.command(&[13 | 2 << 8, at(256)[0], at(256)[1]]);
    queue.command(&[NOP | 3 << 16, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff]);
    queue.command(&[8, 0, 0, 0, 0, 0]);
    queue.command(&[6, event]);
    assert_eq!(thunk.wait(&[(event, 0)], true, 30_000).1, 0);
    queue.drain();
    let filled: Vec<u8> = 0xabcd_1234_u32.to_le_bytes().repeat(3);
    assert_eq!((data.bytes(0, 12), data.bytes(12, 4)), (filled, vec![0; 4]));
    let written: Vec<u8> = [1u32, 2, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!((data.bytes(64, 12), data.bytes(76, 4)), (written, vec![0; 4]));
    assert_eq!((data.get(128), data.get(192)), (77, 2));
    assert!(data.get(256) > 0);
}

/// All comparisons of a command that waits for a word: what meets them, and what does not yet.
#[test]
fn waits_for_values() {
    let thunk = Thunk::new(&[]);
    let (queue, data) = (thunk.queue(0, SDMA), thunk.gtt(PAGE));
    for (function, not_yet, met) in [(1, 7, 6), (2, 8, 7), (3, 6, 7), (4, 7, 5), (5, 6, 7), (6, 7, 8)] {
        data.set(0, 0xff00 | not_yet);
        data.set(64, 0);
        let at = [halves(data.at), halves(data.at + 64)];
        queue.command(&[8 | function << 28 | 1 << 31, at[0][0], at[0][1], 7, 0xff, 0xfff << 16]);
        queue.command(&[5, at[1][0], at[1][1], 1]);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(data.get(64), 0, "{function}");
        data.set(0, met);
        until("the fence", || data.get(64) == 1);
    }
}

/// Commands that cross the end of the ring, and many of them.
#[test]
fn the_ring_wraps() {
    let thunk = Thunk::new(&[]);
    let (queue, from, to) = (thunk.queue(0, SDMA), thunk.gtt(PAGE), thunk.gtt(PAGE));
    pattern(&from);
    for i in 0..1000u64 {
        queue.command(&linear(to.at + i % 4096, from.at + i % 4096, 1));
    }
    queue.drain();
    assert_eq!(to.bytes(0, 1000), from.bytes(0, 1000));
}
