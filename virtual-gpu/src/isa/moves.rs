//! Lanes that read other lanes (DPP, `ds_swizzle_b32`), found once, when an instruction is decoded.

use super::op::lanes::LANES;

/// Lane selection of DPP: lanes of the first source come from other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dpp {
    pub(crate) control: u16,
    pub(crate) bound: bool,
    pub(crate) banks: u8,
    pub(crate) rows: u8,
    /// Reads inactive lanes too.
    pub(crate) inactive: bool,
    /// Instead of `control`: the lane in each group of eight that each of them reads, 3 bits each.
    pub(crate) eight: Option<u32>,
}

/// The lane that each lane reads.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// 0 for lanes that read none.
    pub(crate) from: [u8; LANES],
    /// Lanes that read one: as bits, and as words of ones.
    pub(crate) there: u64,
    pub(crate) words: [u32; LANES],
    /// True if no lane reads one of the other half.
    pub(crate) in_halves: bool,
    /// Lanes that DPP may write.
    pub(crate) chosen: u64,
    pub(crate) groups: Option<Box<Groups>>,
}

/// Where each eight lanes read only from two other eight: how vectors of eight lanes move.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// The two that each eight lanes read.
    pub(crate) from: [[u8; 2]; GROUPS],
    /// The lane of eight that each lane reads.
    pub(crate) index: [u32; LANES],
    /// Words of ones for lanes that read from the first, and from the second.
    pub(crate) masks: [[u32; LANES]; 2],
}

/// Number of groups of eight lanes.
pub(crate) const GROUPS: usize = LANES / 8;

impl Moves {
    /// Returns those of `ds_swizzle_b32` with an offset.
    pub(super) fn of_swizzle(offset: u32) -> Moves {
        Moves::new(|lane| Some(swizzle(offset, lane)))
    }

    /// Returns those of DPP.
    pub(super) fn of_dpp(dpp: Dpp) -> Moves {
        if let Some(eight) = dpp.eight {
            return Moves::new(|lane| Some(lane & !7 | (eight >> (3 * (lane & 7)) & 7) as usize));
        }
        // Of each row of 16 lanes, the chosen banks of 4 lanes.
        let bank = |i: usize| if dpp.banks >> i & 1 != 0 { 15 << (4 * i) } else { 0 };
        let row = |i: usize| if dpp.rows >> i & 1 != 0 { 0xffff << (16 * i) } else { 0 };
        let banks = (0..4).fold(0, |mask, i| mask | bank(i)) * 0x0001_0001_0001_0001;
        let chosen = (0..4).fold(0u64, |mask, i| mask | row(i)) & banks;
        Moves { chosen, ..Moves::new(|lane| dpp_lane(dpp.control, lane)) }
    }

    fn new(from: impl Fn(usize) -> Option<usize>) -> Moves {
        let (mut all, mut there, mut words) = ([0; LANES], 0, [0; LANES]);
        for lane in 0..LANES {
            if let Some(other) = from(lane) {
                all[lane] = (other % LANES) as u8;
                there |= 1 << lane;
                words[lane] = u32::MAX;
            }
        }
        let in_halves = (0..LANES).all(|lane| from(lane).is_none_or(|other| other / 32 == lane / 32));
        let groups = Groups::of(from).map(Box::new);
        Moves { from: all, there, words, in_halves, chosen: u64::MAX, groups }
    }
}

impl Groups {
    fn of(from: impl Fn(usize) -> Option<usize>) -> Option<Groups> {
        let mut groups = Groups { from: [[0; 2]; GROUPS], index: [0; LANES], masks: [[0; LANES]; 2] };
        for group in 0..GROUPS {
            let mut known = Vec::new();
            for lane in 8 * group..8 * group + 8 {
                let Some(other) = from(lane) else { continue };
                let which = known.iter().position(|group| *group == other / 8).unwrap_or(known.len());
                if which == known.len() {
                    known.push(other / 8);
                }
                groups.index[lane] = other as u32 % 8;
                groups.masks.get_mut(which)?[lane] = u32::MAX;
            }
            groups.from[group].iter_mut().zip(known).for_each(|(to, group)| *to = group as u8);
        }
        Some(groups)
    }
}

/// Returns the lane that a lane reads with DPP; `None` if it is outside the row or wavefront.
#[inline(always)]
fn dpp_lane(control: u16, lane: usize) -> Option<usize> {
    let (row, in_row) = (lane & !15, lane & 15);
    let n = usize::from(control & 15);
    match control {
        0..=0xff => Some(lane & !3 | usize::from(control >> (2 * (lane & 3)) & 3)),
        0x101..=0x10f => (in_row + n < 16).then_some(lane + n),
        0x111..=0x11f => in_row.checked_sub(n).map(|l| row + l),
        0x121..=0x12f => Some(row + (in_row + 16 - n) % 16),
        0x130 => (lane + 1 < LANES).then_some(lane + 1),
        0x134 => Some((lane + 1) % LANES),
        0x138 => lane.checked_sub(1),
        0x13c => Some((lane + LANES - 1) % LANES),
        0x140 => Some(row + 15 - in_row),
        0x141 => Some((lane & !7) + 7 - (lane & 7)),
        0x142 => row.checked_sub(1),
        0x143 => (lane >= 32).then_some(31),
        0x150..=0x15f => Some(row + n),
        0x160..=0x16f => Some(row + (in_row ^ n)),
        _ => None,
    }
}

/// Returns the source lane of `ds_swizzle_b32`: a permutation of four lanes; and, or, xor with the lane index
/// among 32; or a rotation.
fn swizzle(offset: u32, lane: usize) -> usize {
    let n = lane as u32;
    let other = if offset & 0xe000 == 0xc000 {
        // Rotation of 32 lanes within the groups that the mask preserves.
        let (mask, count) = (offset & 31, offset >> 5 & 31);
        let moved = if offset & 0x400 == 0 { n + count } else { n.wrapping_sub(count) };
        n & 32 | n & mask | moved & 31 & !mask
    } else if offset & 0x8000 != 0 {
        n & !3 | offset >> (2 * (n & 3)) & 3
    } else {
        let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
        n & 32 | ((n & 31 & and | or) ^ xor)
    };
    other as usize
}
