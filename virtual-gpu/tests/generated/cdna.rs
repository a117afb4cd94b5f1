//! Generated instructions are disassembled as llvm-objdump prints them.
//!
//! Random words in all formats. Those count that LLVM's assembler makes of the text again: others have bits that mean
//! nothing, which LLVM prints in some way or refuses.

use crate::support;

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use support::kept::{first_program, kept};
use support::{CDNA, Random, compile, objdump};
use virtual_gpu::{Target, disassemble};

/// Instructions that are not decoded, as beginnings of names, and the reason.
const UNKNOWN: &[(&str, &str)] = &[
    ("buffer_load_format", "typed buffers belong to graphics"),
    ("buffer_store_format", "typed buffers belong to graphics"),
    ("tbuffer_", "typed buffers belong to graphics"),
    ("s_atomic_", "no compiler emits scalar atomics"),
    ("s_buffer_atomic_", "no compiler emits scalar atomics"),
    ("s_atc_probe", "no compiler emits it"),
    ("s_dcache_discard", "no compiler emits it"),
    ("s_cbranch_cdbg", "for debuggers"),
    ("s_cbranch_i_fork", "no compiler emits it"),
    ("s_cbranch_join", "no compiler emits it"),
    ("s_rfe_restore_b64", "for trap handlers"),
    ("s_setvskip", "no compiler emits it"),
    ("s_sendmsghalt", "there is nobody to receive a message"),
    ("ds_gws_", "no compiler emits global wave synchronisation"),
];

/// Instructions whose operands are printed otherwise, and the reason.
const OTHERWISE: &[(&str, &str)] = &[
    ("s_sendmsg", "names of messages that belong to graphics"),
    ("v_ldexp_f16_dpp", "LLVM prints the sign of an integer operand as its extension"),
    ("v_cvt_pk_u8_f32", "LLVM prints the sign of an integer operand as its extension"),
];

/// Encodings of the formats: fixed bits and a mask of the random bits.
const FORMATS: [(u32, u32); 13] = [
    (0x7e00_0000, 0x01ff_ffff),
    (0x0000_0000, 0x7fff_ffff),
    (0x7c00_0000, 0x01ff_ffff),
    (0xd000_0000, 0x03ff_ffff),
    (0xd380_0000, 0x007f_ffff),
    (0xd3c0_0000, 0x003f_ffff),
    (0x8000_0000, 0x3fff_ffff),
    (0xbe80_0000, 0x007f_ffff),
    (0xbf00_0000, 0x00ff_ffff),
    (0xd800_0000, 0x03ff_ffff),
    (0xdc00_0000, 0x03ff_ffff),
    (0xe000_0000, 0x03ff_ffff),
    (0xc000_0000, 0x03ff_ffff),
];

/// Variable with the number of instructions to compare for each target; the default takes seconds.
const COUNT: &str = "DIPTYCH_GENERATED";

/// No operation.
const NOTHING: u32 = 0xbf80_0000;

/// Returns two words that are an instruction more often than random ones.
fn words(random: &mut Random) -> [u32; 2] {
    let (fixed, mask) = FORMATS[random.below(FORMATS.len() as u32) as usize];
    let mut words = [fixed | random.u32() & mask, random.u32()];
    let registers =
        |random: &mut Random| (0..3).fold(0, |word, n| word | (256 + 2 * random.below(100)) << (9 * n));
    match random.below(6) {
        0 => words[1] &= 0x3fff_ffff,
        1 | 4 => words[1] = words[1] & 0xe000_0000 | registers(random),
        _ => {}
    }
    if random.below(3) == 0 {
        words[0] &= !([0, 0x8000, 0xc000, 0x700][random.below(4) as usize]);
    }
    let short = words[0] >> 31 == 0;
    if short && random.below(8) == 0 {
        words[0] = words[0] & !0x1ff | [0xf9, 0xfa, 0xff][random.below(3) as usize];
    }
    match words[0] & 0x1ff {
        // llvm-objdump 19 crashes on selections that SDWA does not have.
        0xf9 if short => words[1] = sdwa(words, random),
        0xfa if short => {
            let controls = [0, 0x5b, 0x101, 0x111, 0x121, 0x130, 0x138, 0x140, 0x142, 0x153, 0x15f];
            let control = controls[random.below(controls.len() as u32) as usize];
            words[1] = words[1] & 0x00f8_00ff | 0xff00_0000 | control << 8;
        }
        _ => {}
    }
    words
}

fn sdwa([first, second]: [u32; 2], random: &mut Random) -> u32 {
    let mut word = second & !0xc0c0_0000 | [0, 0, 1 << 23, 1 << 31][random.below(4) as usize];
    for shift in [8, 16, 24] {
        if word >> shift & 7 == 7 {
            word &= !(1 << shift);
        }
    }
    if word >> 11 & 3 == 3 {
        word &= !0x1000;
    }
    if first >> 25 == 0x3e { word & !0xff00 } else { word }
}

/// Returns the texts that LLVM's assembler turns into the same words, by number.
fn canonical(target: Target, texts: &[(String, Vec<u32>)]) -> HashSet<usize> {
    let names = ["llvm-mc-19", "/usr/lib/llvm-19/bin/llvm-mc", "llvm-mc-20", "llvm-mc"];
    let program = first_program(names.into_iter().map(String::from))
        .expect("llvm-mc is installed with llvm-objdump (`make setup`)");
    let numbers = kept("test-canonical", &(&program, target.name(), texts), || {
        let numbers = canonical_now(&program.0, target, texts);
        numbers.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect()
    });
    numbers.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize).collect()
}

fn canonical_now(program: &str, target: Target, texts: &[(String, Vec<u32>)]) -> HashSet<usize> {
    let cpu = format!("-mcpu={}", target.name());
    let mut child = Command::new(program)
        .args(["-triple=amdgcn", &cpu, "--show-encoding"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("llvm-mc starts");
    let source: String = texts.iter().map(|(text, _)| format!("{text}\n")).collect();
    let mut input = child.stdin.take().expect("it is a pipe");
    let writer = std::thread::spawn(move || input.write_all(source.as_bytes()));
    let output = child.wait_with_output().expect("llvm-mc ends");
    writer.join().expect("the writer ends").expect("llvm-mc reads its input");
    let (listing, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = |error: &str| {
        let number = error.strip_prefix("<stdin>:")?.split(':').next()?.parse::<usize>().ok()?;
        error.contains("error:").then_some(number - 1)
    };
    let refused: HashSet<usize> = errors.lines().filter_map(line).collect();
    let encodings = listing.lines().filter_map(|line| {
        let bytes = line.split("encoding: [").nth(1)?.split(']').next()?;
        bytes
            .split(',')
            .map(|b| u8::from_str_radix(b.trim_start_matches("0x"), 16).ok())
            .collect::<Option<Vec<u8>>>()
            .or(Some(Vec::new()))
    });
    let accepted = (0..texts.len()).filter(|n| !refused.contains(n));
    let same = |(n, bytes): &(usize, Vec<u8>)| {
        let words: Vec<u8> = texts[*n].1.iter().flat_map(|word| word.to_le_bytes()).collect();
        *bytes == words
    };
    accepted.zip(encodings).filter(same).map(|(n, _)| n).collect()
}

/// An instruction's address, text and words.
type Line = (u64, String, Vec<u32>);

/// Returns the code object of some instructions, each at a multiple of 16 bytes, and those that LLVM knows.
fn generated(target: Target, count: usize, random: &mut Random) -> (Vec<u8>, Vec<Line>) {
    let mut text = String::from(".text\n.globl code\n.p2align 8\n.type code,@function\ncode:\n");
    for _ in 0..count {
        let [first, second] = words(random);
        text += &format!(".long {first}, {second}, {NOTHING}, {NOTHING}\n");
    }
    let image = compile::assemble(target, &text);
    let listing = objdump::listing(&image, target);
    let base = listing.first().map_or(0, |line| line.0);
    let known = |(address, text, words): Line| {
        let text = text.split(" <").next().unwrap_or_default().to_owned();
        let valid = !text.starts_with(".long") && !text.contains("nvalid");
        (valid && (address - base) % 16 == 0).then_some((address, text, words))
    };
    (image, listing.into_iter().filter_map(known).collect())
}

#[test]
fn generated_instructions_are_printed_as_llvm_objdump_prints_them() {
    let wanted = std::env::var(COUNT).ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    for target in CDNA {
        let mut random = Random::new(1);
        let (mut compared, mut wrong, mut unknown) = (0, Vec::new(), BTreeMap::<String, usize>::new());
        let mut rounds = 0;
        while compared < wanted {
            rounds += 1;
            assert!(rounds < 200, "{compared} instructions are too few");
            let (image, lines) = generated(target, 30_000, &mut random);
            let texts: Vec<(String, Vec<u32>)> =
                lines.iter().map(|(_, text, words)| (text.clone(), words.clone())).collect();
            let same = canonical(target, &texts);
            let chosen: Vec<&Line> =
                lines.iter().enumerate().filter(|(n, _)| same.contains(n)).map(|(_, line)| line).collect();
            let addresses: Vec<u64> = chosen.iter().map(|line| line.0).collect();
            let got = disassemble(&image, target, &addresses).expect("the object is whole");
            for ((_, text, words), line) in chosen.iter().zip(got) {
                let begins = |list: &[(&str, &str)]| list.iter().any(|(name, _)| text.starts_with(name));
                match line.text {
                    None if begins(UNKNOWN) => *unknown.entry(text.clone()).or_default() += 1,
                    Some(_) if begins(OTHERWISE) => {}
                    Some(printed) if printed == *text && line.words == words.len() => compared += 1,
                    printed => wrong.push(format!("{words:x?}: '{printed:?}', llvm-objdump: '{text}'")),
                }
            }
        }
        println!("{}: {compared} instructions compared, {} not decoded", target.name(), unknown.len());
        let shown = &wrong[..wrong.len().min(20)];
        assert!(wrong.is_empty(), "{}: {} differ:\n{}", target.name(), wrong.len(), shown.join("\n"));
    }
}
