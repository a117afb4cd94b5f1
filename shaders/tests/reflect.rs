//! Tests of reflection on committed modules and on handwritten modules.

use shaders::reflect::{Dimension, ReflectError, Scalar, check_conventions, reflect};
use shaders::{SPIRV_MAGIC, ShaderId};

fn lane_probe(variant: &str) -> &'static [u32] {
    ShaderId::find("lane_probe", variant).unwrap().words().unwrap()
}

#[test]
fn the_lane_probe_is_what_its_source_says() {
    let interface = reflect(lane_probe("full")).unwrap();
    assert_eq!(interface.version, (1, 5));
    assert_eq!(interface.entry_point, "main");
    assert_eq!(interface.local_size[0], Dimension { default: 64, spec_id: Some(0) });
    assert_eq!(interface.local_size[1], Dimension { default: 1, spec_id: None });
    assert_eq!(interface.local_size(&[(0, 256)]), [256, 1, 1]);

    let block = interface.push_constants.as_ref().unwrap();
    assert_eq!((block.name.as_str(), block.size), ("Parameters", 4));
    let member = &block.members[0];
    assert_eq!(
        (member.name.as_str(), member.offset, member.size, member.scalar),
        ("seed", 0, 4, Some(Scalar::Uint(32)))
    );

    let buffer = &interface.buffers[..];
    assert_eq!(buffer.len(), 1);
    assert_eq!((buffer[0].set, buffer[0].binding, buffer[0].name.as_str()), (0, 0, "Dst"));
    assert!(buffer[0].write_only && !buffer[0].read_only && buffer[0].aliased);

    assert_eq!(interface.spec_constants[&0].default, 64);
    assert_eq!(interface.shared_bytes(&[]), Ok(4 * 64));
    assert_eq!(interface.shared_bytes(&[(0, 100)]), Ok(4 * 100));
    assert!(interface.has_capability("GroupNonUniformArithmetic"));
    assert!(!interface.has_capability("Float16"));
    assert!(check_conventions(&interface).is_empty());
}

#[test]
fn the_basic_lane_probe_needs_no_subgroup_operations() {
    let interface = reflect(lane_probe("basic")).unwrap();
    assert!(interface.has_capability("GroupNonUniform"));
    for name in ["GroupNonUniformArithmetic", "GroupNonUniformBallot", "GroupNonUniformShuffle"] {
        assert!(!interface.has_capability(name), "{name}");
    }
}

/// Assembles a module from instructions: opcode and operands.
fn assemble(instructions: &[&[u32]]) -> Vec<u32> {
    let mut words = vec![SPIRV_MAGIC, 0x0001_0600, 0, 100, 0];
    for instruction in instructions {
        words.push((instruction.len() as u32) << 16 | instruction[0]);
        words.extend(&instruction[1..]);
    }
    words
}

const MAIN: [u32; 2] = [u32::from_le_bytes(*b"main"), 0];
const ENTRY: &[u32] = &[15, 5, 1, MAIN[0], MAIN[1]];
const UINT: &[u32] = &[21, 10, 32, 0];
const INT: &[u32] = &[21, 11, 32, 1];
const FLOAT16: &[u32] = &[22, 12, 16];

#[test]
fn local_size_by_id_is_followed() {
    let words = assemble(&[
        ENTRY,
        &[331, 1, 38, 20, 21, 21],
        &[71, 20, 1, 0],
        UINT,
        &[50, 10, 20, 128],
        &[43, 10, 21, 2],
    ]);
    let interface = reflect(&words).unwrap();
    assert_eq!(interface.version, (1, 6));
    assert_eq!(interface.local_size(&[]), [128, 2, 2]);
    assert_eq!(interface.local_size(&[(0, 64)]), [64, 2, 2]);
}

#[test]
fn shared_memory_follows_constant_expressions() {
    // shared f16vec3 tile[BM * (BK + 1) / 2]; shared uint flag[BM > BK ? 4 : 8], with BM = 1, BK = 2 (ids 1
    // and 2).
    let words = assemble(&[
        ENTRY,
        &[71, 20, 1, 1],
        &[71, 21, 1, 2],
        UINT,
        &[20, 13],
        FLOAT16,
        &[50, 10, 20, 64],
        &[50, 10, 21, 15],
        &[43, 10, 22, 1],
        &[43, 10, 23, 2],
        &[43, 10, 24, 4],
        &[43, 10, 25, 8],
        &[52, 10, 30, 128, 21, 22],
        &[52, 10, 31, 132, 20, 30],
        &[52, 10, 32, 134, 31, 23],
        &[52, 13, 33, 172, 20, 21],
        &[52, 10, 34, 169, 33, 24, 25],
        &[23, 40, 12, 3],
        &[28, 41, 40, 32],
        &[28, 42, 10, 34],
        &[32, 43, 4, 41],
        &[32, 44, 4, 42],
        &[59, 43, 50, 4],
        &[59, 44, 51, 4],
    ]);
    let interface = reflect(&words).unwrap();
    assert_eq!(interface.shared_bytes(&[]), Ok(64 * 16 / 2 * 8 + 16));
    assert_eq!(interface.shared_bytes(&[(1, 8), (2, 9)]), Ok(8 * 10 / 2 * 8 + 32));
    assert_eq!(interface.spec_constants.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn broken_conventions_are_named() {
    // A uniform buffer, a storage buffer at binding 3, and push constants with a gap.
    let words = assemble(&[
        ENTRY,
        &[16, 1, 17, 64, 1, 1],
        &[71, 60, 34, 0],
        &[71, 60, 33, 3],
        &[72, 30, 0, 35, 0],
        &[72, 30, 1, 35, 8],
        &[72, 31, 0, 35, 0],
        UINT,
        INT,
        &[30, 30, 10, 11],
        &[29, 32, 10],
        &[30, 31, 32],
        &[32, 40, 9, 30],
        &[32, 41, 12, 31],
        &[32, 42, 2, 31],
        &[59, 40, 61, 9],
        &[59, 41, 60, 12],
        &[59, 42, 62, 2],
    ]);
    let broken = check_conventions(&reflect(&words).unwrap()).join("\n");
    for part in ["local_size_x", "binding 3", "alias", "%62", "at byte 8"] {
        assert!(broken.contains(part), "{part} in:\n{broken}");
    }
}

#[test]
fn an_array_of_buffers_is_one_binding() {
    let buffers = |array: &[u32]| {
        let words = assemble(&[
            ENTRY,
            &[71, 60, 34, 0],
            &[71, 60, 33, 0],
            UINT,
            &[43, 10, 20, 3],
            &[29, 32, 10],
            &[30, 31, 32],
            array,
            &[32, 41, 12, 33],
            &[59, 41, 60, 12],
        ]);
        let interface = reflect(&words).unwrap();
        let counts: Vec<u32> = interface.buffers.iter().map(|buffer| buffer.count).collect();
        (counts, check_conventions(&interface).join("\n").contains("no constant"))
    };
    assert_eq!(buffers(&[28, 33, 31, 20]), (vec![3], false));
    assert_eq!(buffers(&[29, 33, 31]), (vec![0], true));

    let words = ShaderId::find("mul_mat_vec", "q8_0_lds").unwrap().words().unwrap();
    let counts: Vec<u32> = reflect(words).unwrap().buffers.iter().map(|buffer| buffer.count).collect();
    assert_eq!(counts, [3, 1, 1, 3, 1, 3]);
}

#[test]
fn reads_of_the_number_of_work_groups_are_found() {
    let built_in: &[u32] = &[71, 9, 11, 24];
    let two: &[u32] = &[43, 10, 30, 2];
    let function: &[u32] = &[54, 2, 4, 0, 3];
    let reads = |module: &[&[u32]]| {
        let all: Vec<&[u32]> = [&[ENTRY, UINT], module].concat();
        reflect(&assemble(&all)).unwrap().reads_group_counts
    };
    assert_eq!(reads(&[]), [false; 3]);
    assert_eq!(reads(&[built_in, function]), [false; 3]);
    let chain: &[u32] = &[65, 1, 20, 9, 30];
    assert_eq!(reads(&[built_in, two, function, chain]), [false, false, true]);
    assert_eq!(reads(&[built_in, function, chain]), [true; 3], "an index that is no constant");
    assert_eq!(
        reads(&[built_in, &[71, 30, 1, 5], two, function, chain]),
        [true; 3],
        "one that can be specialised"
    );
    let load: &[u32] = &[61, 1, 40, 9];
    assert_eq!(reads(&[built_in, function, load, &[81, 2, 41, 40, 0]]), [true, false, false]);
    assert_eq!(reads(&[built_in, function, load, &[128, 1, 42, 40, 40]]), [true; 3]);
}

#[test]
fn products_can_be_cut_by_rows_and_columns() {
    let words = ShaderId::find("mul_mat_tile", "f32_tile32").unwrap().words().unwrap();
    let [rows, columns, _] = reflect(words).unwrap().reads_group_counts;
    assert!(!rows && !columns);
}

#[test]
fn damaged_modules_are_errors_and_never_panics() {
    assert_eq!(reflect(&[]).unwrap_err(), ReflectError::Header);
    assert_eq!(reflect(&assemble(&[])).unwrap_err(), ReflectError::EntryPoints(0));
    let cut = ReflectError::Instruction { opcode: 15, word: 5 };
    assert_eq!(reflect(&[SPIRV_MAGIC, 0x0001_0500, 0, 1, 0, 15 | 9 << 16]).unwrap_err(), cut);

    let words = lane_probe("full");
    let mut state = 1u32;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    for _ in 0..20_000 {
        let mut damaged = words[..1 + random() as usize % words.len()].to_vec();
        for _ in 0..1 + random() % 4 {
            let index = random() as usize % damaged.len();
            damaged[index] = if random() % 2 == 0 { random() } else { random() % 400 };
        }
        if damaged.len() > 2 {
            damaged[0] = SPIRV_MAGIC;
        }
        if let Ok(interface) = reflect(&damaged) {
            let _ = interface.shared_bytes(&[(0, u32::MAX)]);
            let _ = check_conventions(&interface);
        }
    }
}
