//! Compares the disassembler with llvm-objdump.

use std::collections::BTreeSet;
use std::process::Command;
use virtual_gpu::{Target, disassemble};

/// Names of llvm-objdump to try.
const PROGRAMS: [&str; 4] = ["llvm-objdump-19", "llvm-objdump-20", "llvm-objdump-21", "llvm-objdump"];

/// Returns the mnemonics in a code object, with their encoding suffixes.
pub(crate) fn mnemonics(image: &[u8], target: Target) -> BTreeSet<String> {
    let first = |(_, text, _): (u64, String, Vec<u32>)| text.split_whitespace().next().map(str::to_owned);
    listing(image, target).into_iter().filter_map(first).collect()
}

/// Returns addresses, texts and words of the instructions of a code object, as llvm-objdump prints them.
pub(crate) fn listing(image: &[u8], target: Target) -> Vec<(u64, String, Vec<u32>)> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("code.o");
    std::fs::write(&path, image).expect("a file can be written");
    objdump(&path, target)
}

fn objdump(path: &std::path::Path, target: Target) -> Vec<(u64, String, Vec<u32>)> {
    let run = |program: &&str| {
        let cpu = format!("--mcpu={}", target.name());
        Command::new(program).args(["-d", &cpu]).arg(path).output().ok().filter(|o| o.status.success())
    };
    let output = PROGRAMS.iter().find_map(run).expect("llvm-objdump 19 or later is installed (`make setup`)");
    let text = String::from_utf8(output.stdout).expect("text");
    // A line is an instruction, "//", its address and its words.
    let line = |line: &str| {
        let (instruction, comment) = line.strip_prefix('\t')?.split_once("//")?;
        let (address, words) = comment.split_once(':')?;
        let words = words.split([';', '<']).next()?.split_whitespace();
        let words = words.filter_map(|word| u32::from_str_radix(word, 16).ok()).collect();
        Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction.trim().to_string(), words))
    };
    text.lines().filter_map(line).collect()
}

/// Compares a code object; returns its number of instructions and the first differences.
pub(crate) fn compare(image: &[u8], target: Target, name: &str) -> (usize, Vec<String>) {
    let wanted = listing(image, target);
    assert!(!wanted.is_empty(), "{name}: llvm-objdump prints no instruction");
    let addresses: Vec<u64> = wanted.iter().map(|w| w.0).collect();
    let lines = disassemble(image, target, &addresses).expect("the code object is read");
    let mut wrong = Vec::new();
    for ((address, want, _), line) in wanted.iter().zip(&lines) {
        let got = line.text.as_deref().unwrap_or("no instruction");
        if got != want {
            wrong.push(format!("{} {name} {address:#x}: '{got}', llvm-objdump: '{want}'", target.name()));
        }
    }
    // The lengths match: no word is skipped or read twice.
    for (pair, line) in wanted.windows(2).zip(&lines) {
        let gap = pair[1].0 - pair[0].0;
        // Kernels begin at multiples of 256.
        if gap != 4 * line.words as u64 && pair[1].0 % 256 != 0 {
            wrong.push(format!("{name} {:#x}: {} words, not {}", pair[0].0, line.words, gap / 4));
        }
    }
    (lines.len(), wrong)
}
