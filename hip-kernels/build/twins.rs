//! Targets that differ in name only.
//!
//! For some processors the compiler makes the same instructions from the same source; the code objects then differ in the
//! flags of the ELF header and in the target's name. These are compiled once, and the others are made from the result: a
//! third of all targets, and of the time that all targets take.

/// A target, and others for which clang 19 generates the same instructions from every kernel. A test compiles some kernels
/// for all of them and compares.
pub(crate) const TWINS: &[(&str, &[&str])] = &[
    ("gfx900", &["gfx902", "gfx90c"]),
    ("gfx1030", &["gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    ("gfx1150", &["gfx1152"]),
    ("gfx1200", &["gfx1201"]),
];

/// Bytes of the flags in the header of a 64-bit ELF file.
const FLAGS: std::ops::Range<usize> = 48..52;

/// Returns true if [`TWINS`] holds for a compiler, given its version as it prints it: LLVM's release 19. Others compile
/// every target.
pub(crate) fn are_known(version: &str) -> bool {
    let release = version.split("clang version ").nth(1).unwrap_or_default();
    release.split('.').next().is_some_and(|major| major.trim() == "19") && !version.contains("AMD")
}

/// Returns the target whose code objects those of `target` are made from.
pub(crate) fn original(target: &str) -> Option<&'static str> {
    TWINS.iter().find(|(_, twins)| twins.contains(&target)).map(|(original, _)| *original)
}

/// Returns the code object of target `to` made from `image`, that of target `from`. `sample` is any code object for `to`:
/// its flags are used. `None` if one of them is no ELF file, or the names differ in length.
pub(crate) fn renamed(image: &[u8], from: &str, to: &str, sample: &[u8]) -> Option<Vec<u8>> {
    let is_elf = |bytes: &[u8]| bytes.starts_with(b"\x7fELF\x02") && bytes.len() > FLAGS.end;
    if !is_elf(image) || !is_elf(sample) || from.len() != to.len() || from.is_empty() {
        return None;
    }
    let mut renamed = image.to_vec();
    renamed[FLAGS].copy_from_slice(&sample[FLAGS]);
    let mut at = FLAGS.end;
    while at + from.len() <= renamed.len() {
        if renamed[at..].starts_with(from.as_bytes()) {
            renamed[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        at += 1;
    }
    Some(renamed)
}
