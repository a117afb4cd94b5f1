//! Compares the disassembler with llvm-objdump.

use super::kept::{first_program, hash_of, kept};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;
use virtual_gpu::{Target, disassemble};

/// Names of llvm-objdump to try.
const PROGRAMS: [&str; 4] = ["llvm-objdump-19", "llvm-objdump-20", "llvm-objdump-21", "llvm-objdump"];

/// Returns the program and its version.
fn program() -> &'static (String, Vec<u8>) {
    static FOUND: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    FOUND.get_or_init(|| {
        first_program(PROGRAMS.into_iter().map(String::from))
            .expect("llvm-objdump 19 or later is installed (`make setup`)")
    })
}

/// Returns the mnemonics in a code object, with their encoding suffixes.
pub(crate) fn mnemonics(image: &[u8], target: Target) -> BTreeSet<String> {
    let names = kept("test-mnemonics", &(program(), image, target.name()), || {
        let first = |(_, text, _): (u64, String, Vec<u32>)| text.split_whitespace().next().map(str::to_owned);
        let names: BTreeSet<String> = listing(image, target).into_iter().filter_map(first).collect();
        Vec::from_iter(names).join("\n").into_bytes()
    });
    String::from_utf8(names).expect("text").lines().map(str::to_owned).collect()
}

/// Returns addresses, texts and words of the instructions of a code object, as llvm-objdump prints them.
pub(crate) fn listing(image: &[u8], target: Target) -> Vec<(u64, String, Vec<u32>)> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("code.o");
    std::fs::write(&path, image).expect("a file can be written");
    objdump(&path, target)
}

fn objdump(path: &std::path::Path, target: Target) -> Vec<(u64, String, Vec<u32>)> {
    let cpu = format!("--mcpu={}", target.name());
    let output = Command::new(&program().0).args(["-d", &cpu]).arg(path).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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

/// Addresses of the instructions that llvm-objdump prints of a code object, and a hash of their texts.
struct Outline {
    addresses: Vec<u64>,
    hash: u64,
}

impl Outline {
    fn of(image: &[u8], target: Target) -> Outline {
        let bytes = kept("test-outline", &(program(), image, target.name()), || {
            let lines = listing(image, target);
            let hash = hash_of(lines.iter().map(|line| line.1.as_str()));
            let addresses = lines.iter().flat_map(|line| (line.0 as u32).to_le_bytes());
            hash.to_le_bytes().into_iter().chain(addresses).collect()
        });
        let (hash, addresses) = bytes.split_first_chunk().expect("a hash");
        let addresses = addresses.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes).into());
        Outline { addresses: addresses.collect(), hash: u64::from_le_bytes(*hash) }
    }
}

/// Compares a code object; returns its number of instructions and the first differences.
pub(crate) fn compare(image: &[u8], target: Target, name: &str) -> (usize, Vec<String>) {
    let Outline { addresses, hash } = Outline::of(image, target);
    assert!(!addresses.is_empty(), "{name}: llvm-objdump prints no instruction");
    let lines = disassemble(image, target, &addresses).expect("the code object is read");
    let text = |n: usize| lines[n].text.as_deref().unwrap_or("no instruction");
    let mut wrong = Vec::new();
    if lines.len() != addresses.len() || hash_of((0..lines.len()).map(text)) != hash {
        for (n, (address, want, _)) in listing(image, target).iter().enumerate() {
            let got = text(n);
            if got != want {
                wrong.push(format!("{} {name} {address:#x}: '{got}', llvm-objdump: '{want}'", target.name()));
            }
        }
        assert!(!wrong.is_empty(), "{} {name}: llvm-objdump prints something else now", target.name());
    }
    // The lengths match: no word is skipped or read twice.
    for (pair, line) in addresses.windows(2).zip(&lines) {
        let gap = pair[1] - pair[0];
        // Kernels begin at multiples of 256.
        if gap != 4 * line.words as u64 && pair[1] % 256 != 0 {
            wrong.push(format!("{name} {:#x}: {} words, not {}", pair[0], line.words, gap / 4));
        }
    }
    (lines.len(), wrong)
}
