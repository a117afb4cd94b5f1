use super::grammar::{MAGIC, checksum};
use super::write::Packer;
use super::*;

const END: u32 = u32::MAX;

/// Returns an instruction.
fn op(opcode: u32, operands: &[u32]) -> Vec<u32> {
    [&[(operands.len() as u32 + 1) << 16 | opcode], operands].concat()
}

/// Returns a module whose IDs begin at `first`, and whose longest instruction has `longest` operands.
fn module(first: u32, longest: usize) -> Vec<u32> {
    let id = |n: u32| first.wrapping_add(n);
    let instructions = [
        op(17, &[1]),
        op(11, &[id(0), u32::from_le_bytes(*b"set\0")]),
        op(14, &[0, 1]),
        op(15, &[5, id(9), u32::from_le_bytes(*b"main"), 0, id(4)]),
        op(5, &[id(4), u32::from_le_bytes(*b"buf\0")]),
        op(71, &[id(12), 42]),
        op(19, &[id(1)]),
        op(21, &[id(2), 32, 0]),
        // A pointer to a later declaration, and the same declaration twice.
        op(39, &[id(20), 12]),
        op(32, &[id(3), 12, id(2)]),
        op(59, &[id(3), id(4), 12]),
        op(59, &[id(3), id(5), 12]),
        op(43, &[id(2), id(6), END]),
        op(33, &[id(7), id(1)]),
        op(54, &[id(1), id(9), 0, id(7)]),
        op(248, &[id(10)]),
        op(61, &[id(2), id(11), id(4), 2, 4]),
        op(128, &[id(2), id(12), id(11), id(6)]),
        op(251, &[id(12), id(30), 0, id(31), 7, id(32)]),
        op(248, &[id(31)]),
        op(12, &[id(2), id(40), id(0), 9, id(12)]),
        // An unknown instruction, one without operands, and a long one.
        op(60_000, &[0, 1, END, id(40)]),
        op(1, &[]),
        op(6_000, &vec![7; longest]),
        op(56, &[]),
    ];
    [vec![MAGIC, 0x0001_0300, 0, id(50), 0], instructions.concat()].concat()
}

/// Containers with small IDs, large IDs, and IDs that wrap around.
fn containers() -> [Vec<u32>; 4] {
    let two = [&[1, 2, 3], &module(1, 3)[..], &module(1000, 65_534)].concat();
    [two, module(70_000, 3), module(END - 9, 3), vec![4, END]]
}

fn packed(containers: &[Vec<u32>]) -> (Vec<u8>, Vec<Summary>) {
    let mut packer = Packer::default();
    containers.iter().for_each(|words| packer.add(words).unwrap());
    let summary = |words: &Vec<u32>| Summary { stem: "", words: words.len(), checksum: checksum(words) };
    (packer.finish(), containers.iter().map(summary).collect())
}

#[test]
fn every_word_comes_back() {
    let all = containers();
    let (bytes, summaries) = packed(&all);
    assert!(unpack(&bytes, &summaries).unwrap() == all);
    assert_eq!(unpack(&packed(&[]).0, &[]), Ok(Vec::new()));
}

/// Checks that the second of two modules that differ in their IDs adds no declaration, and that its function
/// is encoded as the same bytes.
#[test]
fn alike_code_is_the_same_bytes() {
    let numbers = |modules: &[u32]| {
        let all: Vec<u32> = modules.iter().flat_map(|&first| module(first, 3)).collect();
        let bytes = packed(&[all]).0;
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        bytes[4..4 + length].to_vec()
    };
    let (one, two, three) = (numbers(&[1]), numbers(&[1, 1000]), numbers(&[1, 1000, 2000]));
    assert_eq!(two[..one.len()], one);
    let (second, third) = (&two[one.len()..], &three[two.len()..]);
    assert!(second.len() < one.len());
    let differing = second.iter().zip(third).filter(|(a, b)| a != b).count();
    assert!(second.len() == third.len() && differing <= 6, "bound and entry point's ids");
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let short = [[&[1, 2], &module(1, 3)[..], &module(1000, 3)].concat(), vec![4, END]];
    let (bytes, summaries) = packed(&short);
    for end in 0..bytes.len() {
        assert!(unpack(&bytes[..end], &summaries).is_err(), "cut to {end} bytes");
    }
    for index in 0..bytes.len() {
        for value in (0..=255).filter(|&value| value != bytes[index]) {
            let mut damaged = bytes.clone();
            damaged[index] = value;
            // Some words have two encodings.
            assert!(
                unpack(&damaged, &summaries).map_or(true, |words| words == short),
                "byte {index} is {value}"
            );
        }
    }
    assert!(unpack(&[&bytes[..], &[0]].concat(), &summaries).is_err());
    let mut other = summaries.clone();
    other[0].checksum ^= 1;
    assert!(unpack(&bytes, &other).is_err());
    other = summaries.clone();
    other[0].words -= 1;
    assert!(unpack(&bytes, &other).is_err());
}

#[test]
fn a_container_with_an_instruction_that_has_no_end_is_not_packed() {
    for end in [vec![0], vec![9 << 16], vec![2 << 16 | 249]] {
        assert_eq!(Packer::default().add(&[&module(1, 3)[..], &end].concat()), None);
    }
    assert_eq!(Packer::default().add(&[MAGIC, 1]), None);
}
