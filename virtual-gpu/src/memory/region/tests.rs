//! Words and spans of a region.

use super::*;

#[test]
fn words_at_any_address() {
    let region = Region::new(0x1000, 64, Block::new(64).unwrap());
    region.write(0, &(0..64).collect::<Vec<u8>>());
    for at in 0..40u64 {
        let want = |i: u64| u32::from_le_bytes([0, 1, 2, 3].map(|b| (at + 4 * i + b) as u8));
        assert_eq!(region.load(at, 16), [want(0), want(1), want(2), want(3)]);
        assert_eq!(region.load(at, 2)[0], want(0) & 0xffff);
        assert_eq!(region.load(at, 1)[0], want(0) & 0xff);
    }
    region.store(33, 8, &[0x0403_0201, 0x0807_0605, 0, 0]);
    assert_eq!(region.load(32, 8)[..2], [0x0302_0120, 0x0706_0504]);
}

/// A flag in the upper half and a value in the lower half arrive together, for every kind of load and
/// store.
#[test]
fn words_of_64_bits_are_never_half_written() {
    let region = Region::new(0x1000, 64, Block::new(64).unwrap());
    let span = || region.span(8, u64::MAX, &[0; LANES], 1, 8).unwrap();
    let write = |i: u32| match i % 2 {
        0 => region.store(8, 8, &[i, i, 0, 0]),
        _ => span().store(&[[i; LANES]; 2]),
    };
    let read = |i: u32| match i % 2 {
        0 => region.load(8, 8),
        _ => {
            let mut first = [[0; LANES]; 2];
            span().load(&mut first);
            [first[0][0], first[1][0], 0, 0]
        }
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..=300_000).for_each(write));
        let mut i = 0;
        while !writer.is_finished() {
            let [low, high, ..] = read(i);
            assert_eq!(low, high);
            i = i.wrapping_add(1);
        }
    });
    assert_eq!(region.load(8, 8)[..2], [300_000; 2]);
}

/// Creates a region whose bytes all differ from their neighbours.
fn pattern(bytes: usize) -> Region {
    let region = Region::new(0x1000, bytes as u64, Block::new(bytes).unwrap());
    region.write(0, &(0..bytes).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>());
    region
}

/// A span loads and stores the same as its lanes one by one, at any alignment, with some or all lanes
/// active.
#[test]
fn spans_are_what_their_lanes_are() {
    let region = pattern(4096);
    for bytes in [1, 2, 4, 8, 12, 16] {
        for (start, stride) in [(0, 16), (32, 4), (5, 16), (2, 6), (100, 0)] {
            for on in [u64::MAX, 0x8000_0000_0000_0001, 0xff00_ff00_1234_5678] {
                let add: [u32; LANES] = std::array::from_fn(|lane| lane as u32 * stride);
                let span = region.span(start, u64::MAX, &add, on, bytes).unwrap();
                let low = add.map(|add| 0x1000 + start as u32 + add + 8);
                let same =
                    region.span_of_addresses(&low, &[0; LANES], 8u64.wrapping_neg(), on, bytes).unwrap();
                let (mut first, mut second) = ([[9; LANES]; 4], [[9; LANES]; 4]);
                span.load(&mut first);
                same.load(&mut second);
                assert_eq!(first, second);
                let copy = pattern(4096);
                copy.fill(0, 0, 4096);
                copy.span(start, u64::MAX, &add, on, bytes).unwrap().store(&first);
                for lane in 0..LANES {
                    let (at, words) = (start + u64::from(add[lane]), bytes.div_ceil(4) as usize);
                    let want = if on >> lane & 1 != 0 { region.load(at, bytes.into()) } else { [9; 4] };
                    let lanes_got: Vec<u32> = first[..words].iter().map(|register| register[lane]).collect();
                    assert_eq!(lanes_got, want[..words], "{bytes} bytes from {start}, lane {lane}");
                    if on >> lane & 1 != 0 {
                        assert_eq!(
                            copy.load(at, bytes.into()),
                            want,
                            "{bytes} bytes to {start}, lane {lane}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn spans_end_where_the_region_or_the_buffer_ends() {
    let region = pattern(1024);
    let mut add = [0; LANES];
    let fits = |start, limit, add: &[u32; LANES], on| region.span(start, limit, add, on, 16).is_some();
    for (last, inside) in [(908, true), (909, false), (u32::MAX, false)] {
        add[63] = last;
        assert_eq!(fits(100, u64::MAX, &add, u64::MAX), inside, "{last}");
        assert_eq!(fits(100, u64::MAX, &add, 1 << 63), inside, "{last}");
        assert!(fits(100, u64::MAX, &add, u64::MAX >> 1), "a lane that is off");
    }
    add[63] = 40;
    assert!(fits(100, 40, &add, u64::MAX) && !fits(100, 39, &add, u64::MAX));
    assert!(!fits(1009, 40, &[0; LANES], 1) && !fits(5000, 40, &[0; LANES], 1));
    for (address, inside) in [(0x1000u32, true), (0xfff, false), (0x13f0, true), (0x13f1, false)] {
        let span = |on| region.span_of_addresses(&[address; LANES], &[0; LANES], 0, on, 16).is_some();
        assert_eq!((span(u64::MAX), span(1 << 7), span(0)), (inside, inside, true), "{address:#x}");
        assert!(region.span_of_addresses(&[address; LANES], &[1; LANES], 0, 1, 16).is_none());
    }
}
