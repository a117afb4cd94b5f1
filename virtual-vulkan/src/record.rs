//! RADV's compiled shader as stored in a pipeline cache: registers, interface and machine code.
//!
//! `vkGetPipelineCacheData` returns a container of entries; the entry of a compute shader is a record in
//! RADV's own layout. The layout was determined on Mesa 25.0.7 and applies to 25.0
//! (`radv_shader_binary_legacy` and `radv_shader_info` in Mesa's sources). It contains no layout version, so
//! all redundant values are compared before use.

/// Byte offsets in a record's head.
mod at {
    pub(super) const VGPRS: usize = 0x08;
    pub(super) const LDS_BLOCKS: usize = 0x18;
    pub(super) const RSRC1: usize = 0x2c;
    pub(super) const RSRC2: usize = 0x30;
    pub(super) const INLINED: usize = 0x38;
    /// Two bytes: lanes of a wavefront, of a subgroup.
    pub(super) const LANES: usize = 0x4b;
    pub(super) const SETS: usize = 0x50;
    pub(super) const DATA: usize = 0x90;
    pub(super) const GROUP: usize = 0x45c;
    pub(super) const SIZES: usize = 0x490;
    pub(super) const BODY: usize = 0x4b0;
}

/// Number of descriptor sets, and of kinds of shader data, with an entry in the head.
const SETS: usize = 32;
const DATA: usize = 26;

/// Kinds of shader data.
const RING: usize = 0;
const PUSH_POINTER: usize = 1;
const PUSH_INLINED: usize = 2;
const GRID: usize = 18;

/// Bytes per LDS block on GFX9 and GFX11.
const LDS_BLOCK: u32 = 512;

/// A compute shader as compiled by RADV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// COMPUTE_PGM_RSRC1 and COMPUTE_PGM_RSRC2.
    pub(crate) rsrc1: u32,
    pub(crate) rsrc2: u32,
    pub(crate) lds_bytes: u32,
    /// True for wavefronts of 32 lanes.
    pub(crate) wave32: bool,
    /// Work-items per work-group along x, y and z.
    pub(crate) threads: [u32; 3],
    pub(crate) interface: Interface,
    /// Machine code.
    pub(crate) code: Vec<u32>,
}

/// Assignment of the initial scalar registers of a work-group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Number of user SGPRs.
    pub(crate) count: usize,
    /// Each descriptor set and the register with the low half of its address.
    pub(crate) sets: Vec<(usize, usize)>,
    /// Register with the low half of the push constants' address.
    pub(crate) push_pointer: Option<usize>,
    /// Indices of the push constant words stored in registers, ascending, and the first of these registers.
    pub(crate) inlined: Vec<usize>,
    pub(crate) first_inlined: usize,
    /// First register of the address of the grid's size (GFX9).
    pub(crate) grid_pointer: Option<usize>,
    /// First of three registers with the grid's size itself (GFX11).
    pub(crate) grid_size: Option<usize>,
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns the compute shader in the data of a pipeline cache with one pipeline.
///
/// # Errors Text that describes the deviation from the layout of Mesa 25.0.
pub(crate) fn shader(cache: &[u8]) -> Result<Binary, String> {
    let mut found = entries(cache)?.into_iter().filter(|entry| entry.len() > at::BODY).map(Binary::read);
    let first = found.next().ok_or("its cache holds no shader")??;
    match found.next() {
        None => Ok(first),
        Some(_) => Err("its cache holds several shaders".into()),
    }
}

/// Returns the entries of a pipeline cache. Layout: Vulkan's header, a count, then for each entry its type,
/// the sizes of key and data, the key, padding to 8 bytes, and the data.
fn entries(cache: &[u8]) -> Result<Vec<&[u8]>, String> {
    let short = || "its cache ends too early".to_string();
    let header = word(cache, 0).ok_or_else(short)? as usize;
    let count = word(cache, header).ok_or_else(short)?;
    let mut at = header + 4;
    let mut found = Vec::new();
    for _ in 0..count {
        let size = |i: usize| word(cache, at + 4 * i).map(|n| n as usize).ok_or_else(short);
        let (key, data) = (size(1)?, size(2)?);
        let begin = (at + 12).checked_add(key).and_then(|end| end.checked_next_multiple_of(8));
        let begin = begin.ok_or_else(short)?;
        let end = begin.checked_add(data).filter(|&end| end <= cache.len()).ok_or_else(short)?;
        found.push(&cache[begin..end]);
        at = end.next_multiple_of(4);
    }
    Ok(found)
}

impl Binary {
    /// Parses a record and compares its redundant values.
    fn read(record: &[u8]) -> Result<Binary, String> {
        let get = |offset: usize| word(record, offset).unwrap_or_default();
        let (total, code_size) = (get(at::SIZES) as usize, get(at::SIZES + 8) as usize);
        let statistics = get(at::SIZES + 24) as usize;
        let (rsrc1, rsrc2) = (get(at::RSRC1), get(at::RSRC2));
        let lds_bytes = get(at::LDS_BLOCKS).saturating_mul(LDS_BLOCK);
        let threads = [0, 1, 2].map(|i| get(at::GROUP + 4 * i));
        let begin = at::BODY + statistics;
        let code = begin.checked_add(code_size).and_then(|end| record.get(begin..end)).unwrap_or_default();
        let [wavefront, subgroup] = [0, 1].map(|i| usize::from(record[at::LANES + i]));
        // The register counts groups of 4, for wavefronts of 32 lanes of 8.
        let counted = ((rsrc1 & 63) as usize + 1) * if wavefront == 32 { 8 } else { 4 };
        let interface = Interface::read(record, rsrc2 >> 1 & 31)?;
        let checks = [
            ("its size", total, record.len()),
            ("the size of its code", code.len(), code_size),
            ("the remainder of the code by words", code.len() % 4, 0),
            ("its LDS", (rsrc2 >> 15 & 0x1ff) as usize, get(at::LDS_BLOCKS) as usize),
            ("its scratch", (rsrc2 & 1) as usize, 0),
            ("the lanes of a wavefront", wavefront, subgroup),
            ("its vector registers", counted, get(at::VGPRS) as usize),
        ];
        for (what, one, other) in checks {
            if one != other {
                return Err(format!("conflicting values of {what}: {one} and {other}"));
            }
        }
        if code.is_empty() || threads.contains(&0) || ![32, 64].contains(&wavefront) {
            return Err(format!(
                "it has {} bytes of code, work-groups of {threads:?} and wavefronts of {wavefront}",
                code.len()
            ));
        }
        Ok(Binary {
            rsrc1,
            rsrc2,
            lds_bytes,
            wave32: wavefront == 32,
            threads,
            interface,
            code: code.chunks_exact(4).filter_map(|w| word(w, 0)).collect(),
        })
    }
}

impl Interface {
    fn read(record: &[u8], user_registers: u32) -> Result<Interface, String> {
        // Returns the first register and the number of registers; `None` if the register is negative.
        let location = |base: usize, index: usize| {
            let pair = record.get(base + 2 * index..base + 2 * index + 2)?;
            let first = i8::from_le_bytes([pair[0]]);
            (first >= 0 && pair[1] > 0).then_some((first as usize, usize::from(pair[1])))
        };
        let data = |kind: usize| location(at::DATA, kind);
        let known = [RING, PUSH_POINTER, PUSH_INLINED, GRID];
        if let Some(other) = (0..DATA).find(|k| !known.contains(k) && data(*k).is_some()) {
            return Err(format!("it wants shader data {other}, which is not known"));
        }
        let mask = u64::from(word(record, at::INLINED).unwrap_or(0))
            | u64::from(word(record, at::INLINED + 4).unwrap_or(0)) << 32;
        let inlined: Vec<usize> = (0..64).filter(|i| mask >> i & 1 != 0).collect();
        let sets: Vec<(usize, usize)> =
            (0..SETS).filter_map(|set| location(at::SETS, set).map(|(first, _)| (set, first))).collect();
        let mapped: usize = (0..SETS).filter_map(|set| location(at::SETS, set)).map(|l| l.1).sum::<usize>()
            + known.iter().filter_map(|&k| data(k)).map(|l| l.1).sum::<usize>();
        if mapped != user_registers as usize {
            return Err(format!("it maps {mapped} registers and starts with {user_registers}"));
        }
        let in_registers = data(PUSH_INLINED).map_or(0, |l| l.1);
        if in_registers != inlined.len() {
            return Err(format!("{} of its push constants are in {in_registers} registers", inlined.len()));
        }
        let grid = |words: usize| data(GRID).filter(|l| l.1 == words).map(|l| l.0);
        let (grid_pointer, grid_size) = (grid(2), grid(3));
        if data(GRID).is_some() && grid_pointer.or(grid_size).is_none() {
            return Err("it wants the grid's size in an unknown form".into());
        }
        Ok(Interface {
            count: mapped,
            sets,
            push_pointer: data(PUSH_POINTER).map(|l| l.0),
            first_inlined: data(PUSH_INLINED).map_or(0, |l| l.0),
            inlined,
            grid_pointer,
            grid_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: &mut [u8], offset: usize, word: u32) {
        bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Returns a record of a shader with one set, three push constant words in registers and two
    /// instructions.
    fn record() -> Vec<u8> {
        let code = [0xbf80_0000u32, 0xbf81_0000];
        let mut bytes = vec![0; at::BODY + 8];
        bytes[at::SETS..at::GROUP].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0xff, 0]));
        for (base, index, first, count) in [
            (at::SETS, 0, 2, 1),
            (at::DATA, RING, 0, 2),
            (at::DATA, PUSH_POINTER, 3, 1),
            (at::DATA, PUSH_INLINED, 4, 3),
        ] {
            bytes[base + 2 * index..base + 2 * index + 2].copy_from_slice(&[first, count]);
        }
        set(&mut bytes, at::LDS_BLOCKS, 2);
        set(&mut bytes, at::RSRC1, 0x2c_0002);
        set(&mut bytes, at::RSRC2, 7 << 1 | 2 << 15);
        set(&mut bytes, at::VGPRS, 12);
        bytes[at::LANES..at::LANES + 2].fill(64);
        set(&mut bytes, at::INLINED, 0b1101);
        (0..3).for_each(|i| set(&mut bytes, at::GROUP + 4 * i, [64, 2, 1][i]));
        let size = bytes.len() as u32;
        set(&mut bytes, at::SIZES, size);
        set(&mut bytes, at::SIZES + 8, 8);
        code.iter().enumerate().for_each(|(i, word)| set(&mut bytes, at::BODY + 4 * i, *word));
        bytes
    }

    /// Returns a cache with a small entry before the record; that entry's key size is no multiple of eight.
    fn cache(record: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        set(&mut bytes, 0, 32);
        bytes.extend(2u32.to_le_bytes());
        for (key, data) in [(20, &[7; 40][..]), (32, record)] {
            bytes.extend([u32::MAX, key, data.len() as u32].iter().flat_map(|w| w.to_le_bytes()));
            bytes.resize((bytes.len() + key as usize).next_multiple_of(8), 0);
            bytes.extend_from_slice(data);
        }
        bytes
    }

    #[test]
    fn a_record_is_read() {
        let binary = shader(&cache(&record())).unwrap();
        assert_eq!((binary.lds_bytes, binary.threads), (1024, [64, 2, 1]));
        assert_eq!(binary.code, [0xbf80_0000, 0xbf81_0000]);
        let interface = Interface {
            count: 7,
            sets: vec![(0, 2)],
            push_pointer: Some(3),
            inlined: vec![0, 2, 3],
            first_inlined: 4,
            grid_pointer: None,
            grid_size: None,
        };
        assert_eq!(binary.interface, interface);
    }

    /// The grid's size is in memory or in registers.
    #[test]
    fn the_form_of_the_size_of_the_grid_is_read() {
        for (words, forms) in [(2, Ok((Some(7), None))), (3, Ok((None, Some(7)))), (1, Err("unknown form"))] {
            let mut record = record();
            record[at::DATA + 2 * GRID..at::DATA + 2 * GRID + 2].copy_from_slice(&[7, words]);
            set(&mut record, at::RSRC2, u32::from(7 + words) << 1 | 2 << 15);
            match (shader(&cache(&record)), forms) {
                (Ok(found), Ok(forms)) => {
                    assert_eq!((found.interface.grid_pointer, found.interface.grid_size), forms);
                }
                (Err(error), Err(text)) => assert!(error.contains(text), "{error}"),
                (found, _) => panic!("{words}: {found:?}"),
            }
        }
    }

    /// The same code for wavefronts of 32 lanes: its vector registers are counted in groups of 8.
    #[test]
    fn wavefronts_of_32_lanes_are_read() {
        let mut record = record();
        assert!(!shader(&cache(&record)).unwrap().wave32);
        record[at::LANES..at::LANES + 2].fill(32);
        set(&mut record, at::VGPRS, 24);
        assert!(shader(&cache(&record)).unwrap().wave32);
        record[at::LANES..at::LANES + 2].fill(16);
        set(&mut record, at::VGPRS, 12);
        assert!(shader(&cache(&record)).unwrap_err().contains("wavefronts of 16"));
    }

    /// Redundant values must match.
    #[test]
    fn a_record_of_another_layout_is_refused() {
        let wrong: [(usize, u32, &str); 10] = [
            (at::SIZES, 5, "its size"),
            (at::SIZES + 8, 4096, "the size of its code"),
            (at::SIZES + 8, 6, "the remainder of the code"),
            (at::LDS_BLOCKS, 3, "its LDS"),
            (at::RSRC2, 7 << 1 | 2 << 15 | 1, "its scratch"),
            (at::RSRC2, 9 << 1 | 2 << 15, "registers"),
            (at::INLINED, 0b1111, "push constants"),
            (at::VGPRS, 24, "vector registers"),
            (at::LANES, 0x2040, "lanes of a wavefront"),
            (at::GROUP, 0, "work-groups"),
        ];
        for (offset, word, what) in wrong {
            let mut record = record();
            set(&mut record, offset, word);
            let error = shader(&cache(&record)).unwrap_err();
            assert!(error.contains(what), "{what}: {error}");
        }
        let mut unknown = record();
        unknown[at::DATA + 2 * 5..at::DATA + 2 * 5 + 2].copy_from_slice(&[7, 1]);
        assert!(shader(&cache(&unknown)).unwrap_err().contains("shader data 5"));
    }

    /// Any bytes give a shader or an error.
    #[test]
    fn broken_caches_are_errors() {
        let good = cache(&record());
        for len in 0..good.len() {
            assert!(shader(&good[..len]).is_err(), "{len}");
        }
        let mut state = 1;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..3 {
                let at = crate::order::next_random(&mut state) as usize % bytes.len();
                bytes[at] = crate::order::next_random(&mut state) as u8;
            }
            let _ = shader(&bytes);
        }
    }
}
