//! Random words and programs: they are refused or end with a fault, and the emulator does not crash.

use super::*;
use crate::isa::{Isa, Target, decode};

/// Returns the next value of a small generator (G. Marsaglia's xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns a word that is more often a valid instruction than a random one: a format's prefix with random
/// fields.
fn word(state: &mut u64) -> u32 {
    const PREFIXES: [u32; 16] = [
        0x7e00_0000,
        0x7c00_0000,
        0xd000_0000,
        0xd380_0000,
        0xd800_0000,
        0xdc00_0000,
        0xe000_0000,
        0xc000_0000,
        0xbe80_0000,
        0x8000_0000,
        0xb000_0000,
        0xbf80_0000,
        // Of GFX11 alone.
        0xd400_0000,
        0xcc00_0000,
        0xc800_0000,
        0xf400_0000,
    ];
    let bits = random(state) as u32;
    match random(state) % 20 {
        n @ 0..=15 => PREFIXES[n as usize] | bits & 0x01ff_ffff,
        _ => bits,
    }
}

/// Returns the instructions of a processor, for wavefronts of each size that it has.
fn isas(target: Target) -> Vec<Isa> {
    let narrow = target.traits().wave32.then_some(Isa::wave32(target));
    std::iter::once(Isa::wave64(target)).chain(narrow).collect()
}

#[test]
fn any_words_are_decoded_printed_or_refused() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut known = 0;
    for _ in 0..400_000 {
        let words = [word(&mut state), random(&mut state) as u32, random(&mut state) as u32];
        for target in Target::ALL {
            for isa in isas(target) {
                if let Some(inst) = decode(&words, isa) {
                    known += 1;
                    assert!(!text::print(&inst).is_empty());
                }
                let _ = decode(&words[..1], isa);
            }
        }
    }
    assert!(known > 100_000, "{known}");
}

/// Any program ends normally or with a fault; the emulator does not crash.
#[test]
fn any_program_ends() {
    let mut state = 0x2545_f491_4f6c_dd1d;
    let memory = Memory::new(1 << 20);
    let buffer = memory.allocate(4096).expect("memory");
    let (mut machine, mut executed) = (Machine::new(), 0);
    let isas: Vec<Isa> = Target::ALL.into_iter().flat_map(isas).collect();
    let noise = Noise::new(&crate::options::Options::default());
    for round in 0..8000 {
        let isa = isas[round % isas.len()];
        let words: Vec<u32> = (0..64).map(|_| word(&mut state)).collect();
        let text = Text::new(0, words, isa);
        let descriptor = Descriptor {
            lds_bytes: 256,
            scratch_bytes: 64,
            argument_bytes: 16,
            entry: 0,
            vgprs: 64,
            accumulators: 0,
            mode: random(&mut state) as u32 & 0x3ff,
            user_sgprs: 16,
            rsrc2: 0x1fff,
            properties: 0x7f,
            preload: crate::code::Preload::default(),
        };
        let context = Context {
            kernel: "random",
            descriptor,
            text: &text,
            code_base: 0,
            memory: &memory,
            view: memory.view(),
            sizes: Sizes::uniform([100, 1, 1]),
            lds_bytes: 256,
            scratch_bytes: 64,
            user_sgprs: &descriptor.user_sgprs(buffer, buffer, buffer, 64),
            checks: if round % 3 == 0 { Checks::ALL } else { Checks::NONE },
            max_instructions: 1000,
            interrupt: None,
            footprint: None,
            noise: &noise,
            lines: None,
        };
        let ledger = Ledger::new(true, false);
        executed += match machine.run(&context, Some(&ledger), 0, [0; 3]) {
            Ok(counters) => counters.instructions,
            Err(fault) => u64::from(fault.address > 0),
        };
    }
    assert!(executed > 1000, "{executed}");
}
