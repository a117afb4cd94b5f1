//! Code objects with random damage and programs of random words must give a result or a fault. A panic or a
//! hang fails these tests; every case is reproducible from its number.

use crate::support;

use support::{Arguments, AsmKernel, CDNA, Random, TARGETS, asm, compile};
use virtual_gpu::{FaultKind, Gpu, Launch, Options, Target, disassemble};

/// Returns an object with a kernel that has room for random words between its register setup and its end.
fn object(target: Target) -> Vec<u8> {
    // gfx942 has no scalar registers for scratch.
    let arguments = if target == Target::Gfx942 { "s[0:1]" } else { "s[4:5]" };
    let body = "s_load_dwordx4 s[4:7], {arguments}, 0x0\nv_lshlrev_b32_e32 v1, 2, v0\nv_mov_b32_e32 v2, 0\n\
                v_mov_b32_e32 v3, 0\ns_waitcnt lgkmcnt(0)\nroom:\n.fill 64, 4, 0xbf800000";
    let kernel = AsmKernel {
        lds: 1024,
        scratch: 64,
        ..AsmKernel::new("random", &body.replace("{arguments}", arguments))
    };
    compile::assemble(target, &asm::file("", &[kernel]))
}

/// Returns the offset of the room in the file: the only run of 64 no-ops.
fn room(object: &[u8]) -> usize {
    let nothing: Vec<u8> = 0xbf80_0000u32.to_le_bytes().repeat(64);
    object.windows(nothing.len()).position(|w| w == nothing).expect("the room is in the object")
}

/// Loads and launches; returns the outcome in one word.
fn outcome(target: Target, image: &[u8]) -> String {
    let gpu = Gpu::new(target, Options { max_instructions: 2000, ..Options::default() });
    let module = match gpu.load(image) {
        Ok(module) => module,
        Err(fault) => return word(&fault.kind),
    };
    let Some(kernel) = module.kernel("random") else { return "no kernel".to_owned() };
    let buffer = gpu.allocate(4096).expect("there is memory");
    gpu.write(buffer, &[0; 4096]).expect("the memory is there");
    let arguments = Arguments::new().add(buffer).add(buffer);
    let (groups, arguments) = ([2, 1, 1], &arguments.0);
    let launch = Launch { groups, threads: [100, 1, 1], dynamic_lds: 0, arguments, windows: None };
    gpu.launch(&kernel, &launch).map_or_else(|fault| word(&fault.kind), |_| "ok".to_owned())
}

fn word(kind: &FaultKind) -> String {
    let text = format!("{kind:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

fn tally(outcomes: impl Iterator<Item = String>) -> std::collections::BTreeMap<String, usize> {
    let mut counts = std::collections::BTreeMap::new();
    outcomes.for_each(|outcome| *counts.entry(outcome).or_insert(0) += 1);
    println!("{counts:?}");
    counts
}

/// Encodings of the formats: fixed bits and a mask of the random bits.
const PREFIXES: [(u32, u32); 12] = [
    (0x7e00_0000, 0x01ff_ffff),
    (0x0000_0000, 0x7fff_ffff),
    (0x7c00_0000, 0x01ff_ffff),
    (0xd000_0000, 0x03ff_ffff),
    (0xd380_0000, 0x007f_ffff),
    (0x8000_0000, 0x3fff_ffff),
    (0xbe80_0000, 0x007f_ffff),
    (0xbf00_0000, 0x00ff_ffff),
    (0xd800_0000, 0x03ff_ffff),
    (0xdc00_0000, 0x03ff_ffff),
    (0xe000_0000, 0x03ff_ffff),
    (0xc000_0000, 0x03ff_ffff),
];

#[test]
fn random_instructions() {
    for target in TARGETS.into_iter().chain(CDNA) {
        let object = object(target);
        let at = room(&object);
        let counts = tally((0..1500).map(|seed| {
            let mut random = Random::new(seed);
            let mut image = object.clone();
            for word in image[at..at + 256].chunks_mut(4) {
                let (prefix, mask) = PREFIXES[random.below(12) as usize];
                let value = if random.below(4) == 0 { random.u32() } else { prefix | random.u32() & mask };
                // The first instruction matters most: later ones are rarely reached.
                word.copy_from_slice(&value.to_le_bytes());
            }
            outcome(target, &image)
        }));
        assert!(counts.contains_key("IllegalInstruction"), "{counts:?}");
        assert!(counts.len() > 3, "the programs end with few outcomes: {counts:?}");
    }
}

/// Runs one instruction at a time, so that many kinds execute with random operands.
#[test]
fn single_random_instructions() {
    for target in TARGETS.into_iter().chain(CDNA) {
        let object = object(target);
        let at = room(&object);
        let counts = tally((0..4000).map(|seed| {
            let mut random = Random::new(seed + 1_000_000);
            let mut image = object.clone();
            let (prefix, mask) = PREFIXES[random.below(12) as usize];
            let words = [prefix | random.u32() & mask, random.u32()];
            for (bytes, value) in image[at..at + 8].chunks_mut(4).zip(words) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
            outcome(target, &image)
        }));
        assert!(counts.contains_key("ok"), "{counts:?}");
    }
}

#[test]
fn damaged_objects() {
    for target in TARGETS.into_iter().chain(CDNA) {
        let object = object(target);
        let counts = tally((0..3000).map(|seed| {
            let mut random = Random::new(seed + 2_000_000);
            let mut image = object.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(image.len() as u32) as usize;
                image[at] = match random.below(3) {
                    0 => random.u32() as u8,
                    1 => image[at] ^ (1 << random.below(8)),
                    _ => 0xff,
                };
            }
            if random.below(10) == 0 {
                image.truncate(random.below(image.len() as u32) as usize);
            }
            outcome(target, &image)
        }));
        assert!(counts.contains_key("ok") && counts.contains_key("InvalidCodeObject"), "{counts:?}");
    }
}

#[test]
fn random_words_disassemble_or_do_not() {
    for target in TARGETS.into_iter().chain(CDNA) {
        let object = object(target);
        let at = room(&object);
        let address = {
            use object::{Object as _, ObjectSymbol as _};
            let file = object::File::parse(&*object).expect("the linker wrote an ELF file");
            let symbol = file.symbols().find(|s| s.name() == Ok("room")).expect("the room has a name");
            symbol.address()
        };
        let addresses: Vec<u64> = (0..64).map(|k| address + 4 * k).collect();
        let mut known = 0;
        for seed in 0..500 {
            let mut random = Random::new(seed + 3_000_000);
            let mut image = object.clone();
            for word in image[at..at + 256].chunks_mut(4) {
                let (prefix, mask) = PREFIXES[random.below(12) as usize];
                word.copy_from_slice(&(prefix | random.u32() & mask).to_le_bytes());
            }
            let lines = disassemble(&image, target, &addresses).expect("the object is whole");
            known += lines.iter().filter(|line| line.text.is_some()).count();
        }
        assert!((1000..32_000).contains(&known), "{known} of 32000 are instructions");
    }
}
