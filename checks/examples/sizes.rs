//! Says what a program consists of, and what grew since the sizes were recorded.
//!
//! `cargo run -p diptych-checks --example sizes -- PROGRAM [--record]`
//!
//! PROGRAM is an ELF file with symbols. Its size is that of the sections that are loaded, about that of the
//! stripped file. `checks/sizes.txt` holds the recorded sizes in KiB: `total`, `data`, and the code of each
//! crate. The exit status is 1 if the program is larger than recorded by more than [`SLACK`].

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Growth that is accepted, in percent: compilers differ.
const SLACK: u64 = 3;

/// Crates with less code, in KiB, are counted together.
const SMALL: u64 = 20;

/// Sizes in KiB by name.
type Sizes = BTreeMap<String, u64>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().ok_or("usage: sizes PROGRAM [--record]")?;
    let sizes = measure(&std::fs::read(&program)?)?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sizes.txt");
    if arguments.next().as_deref() == Some("--record") {
        let lines: String = sizes.iter().map(|(name, size)| format!("{name} {size}\n")).collect();
        return Ok(std::fs::write(path, lines)?);
    }
    let recorded = parse(&std::fs::read_to_string(path)?)?;
    print!("{}", table(&recorded, &sizes));
    let (before, now) = (of(&recorded, "total"), of(&sizes, "total"));
    if now * 100 > before * (100 + SLACK) {
        println!("{program}: {now} KiB, recorded are {before} KiB. If that is meant: --record");
        std::process::exit(1);
    }
    Ok(())
}

/// Returns the size of a name; 0 if it has none.
fn of(sizes: &Sizes, name: &str) -> u64 {
    sizes.get(name).copied().unwrap_or_default()
}

/// Parses lines of a name and a size.
fn parse(text: &str) -> Result<Sizes, Box<dyn Error>> {
    let line = |line: &str| {
        let (name, size) = line.split_once(' ').ok_or_else(|| format!("not a name and a size: '{line}'"))?;
        Ok((name.to_owned(), size.parse()?))
    };
    text.lines().map(line).collect()
}

/// Measures a program.
fn measure(bytes: &[u8]) -> Result<Sizes, Box<dyn Error>> {
    let file = object::File::parse(bytes)?;
    let (mut total, mut data) = (0, 0);
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { return Err("not an ELF file".into()) };
        if sh_flags & u64::from(object::elf::SHF_ALLOC) == 0 {
            continue;
        }
        total += section.file_range().map_or(0, |(_, size)| size);
        if section.kind() != SectionKind::Text {
            data += section.file_range().map_or(0, |(_, size)| size);
        }
    }
    let mut crates = Sizes::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text) {
        *crates.entry(crate_of(symbol.name()?)).or_default() += symbol.size();
    }
    let mut sizes = Sizes::from([("total".into(), total / 1024), ("data".into(), data / 1024)]);
    for (name, size) in crates {
        let name = if size / 1024 < SMALL { "others".into() } else { name };
        *sizes.entry(name).or_default() += size / 1024;
    }
    Ok(sizes)
}

/// Returns the crate of a mangled name: the first identifier of its path. For a method that is the crate of
/// the type, of `<&T as Trait>` "others".
fn crate_of(symbol: &str) -> String {
    let path = symbol.strip_prefix("_ZN").unwrap_or_default();
    let digits = path.len() - path.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length = path[..digits].parse().unwrap_or(0);
    let first = path.get(digits..digits + length).unwrap_or_default();
    // `_$LT$crate..module..Type` is a type in angle brackets.
    let first = first.trim_start_matches("_$LT$").split("..").next().unwrap_or_default();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if first.is_empty() || !is_name(first) { "others".into() } else { first.into() }
}

/// Returns a line for each name whose size changed, the largest growth first.
fn table(recorded: &Sizes, sizes: &Sizes) -> String {
    let mut names: Vec<&String> = recorded.keys().chain(sizes.keys()).collect();
    names.sort();
    names.dedup();
    let growth = |name: &str| of(sizes, name).cast_signed() - of(recorded, name).cast_signed();
    names.sort_by_key(|name| -growth(name));
    let mut text = format!("{:>10} {:>10} {:>8}  KiB\n", "recorded", "now", "growth");
    for name in names.into_iter().filter(|name| growth(name) != 0 || *name == "total") {
        let (before, now) = (of(recorded, name), of(sizes, name));
        text += &format!("{before:>10} {now:>10} {:>+8}  {name}\n", growth(name));
    }
    text
}
