//! Lists the committed SPIR-V containers, so that adding a shader needs no second list, and packs them to one
//! part in 34 of their size.

#[path = "src/pack/grammar.rs"]
mod grammar;
#[path = "src/pack/write.rs"]
mod write;

use lzma_rust2::{LzmaOptions, LzmaWriter};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use write::Packer;

fn main() {
    println!("cargo:rerun-if-changed=spirv");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/pack");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let spirv = root.join("spirv");

    let (mut list, mut packer) = (String::from("&[\n"), Packer::default());
    for family in sorted_entries(&spirv).iter().filter(|path| path.is_dir()) {
        for file in sorted_entries(family) {
            let Some(stem) =
                file.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".spv.bin"))
            else {
                continue;
            };
            let bytes = std::fs::read(&file).expect("the committed SPIR-V is readable");
            let words: Vec<u32> =
                bytes.as_chunks().0.iter().map(|&word: &[u8; 4]| u32::from_le_bytes(word)).collect();
            packer.add(&words).unwrap_or_else(|| panic!("{} is no container", file.display()));
            let (count, checksum) = (words.len(), grammar::checksum(&words));
            writeln!(list, "    Summary {{ stem: {stem:?}, words: {count}, checksum: {checksum} }},")
                .expect("a String grows");
        }
    }
    list.push_str("]\n");
    let streams = packer.finish();
    std::fs::write(out.join("containers.rs"), list).expect("OUT_DIR is writable");
    std::fs::write(out.join("streams.rs"), streams.len().to_string()).expect("OUT_DIR is writable");
    std::fs::write(out.join("containers.lzma"), packed(&streams)).expect("OUT_DIR is writable");

    let manifest = spirv.join("manifest.json");
    let text = if manifest.is_file() {
        std::fs::read(manifest).expect("the manifest is readable")
    } else {
        // The program that writes the manifest has to build without one.
        assert!(
            std::env::var_os("CARGO_FEATURE_COMPILE").is_some(),
            "{} is missing: the committed SPIR-V is incomplete; `make shaders` makes it",
            manifest.display()
        );
        Vec::new()
    };
    std::fs::write(out.join("manifest.lzma"), packed(&text)).expect("OUT_DIR is writable");
}

/// Compresses bytes to an LZMA file.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut options = LzmaOptions::with_preset(9);
    // The packed bytes have no alignment to multiples of some bytes.
    (options.lc, options.lp, options.pb) = (3, 0, 0);
    options.nice_len = 273;
    let writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64));
    let packed = writer.and_then(|mut writer| writer.write_all(bytes).map(|()| writer)?.finish());
    packed.expect("a Vec takes everything")
}

/// Returns the entries of a directory sorted by name; empty if it cannot be read.
fn sorted_entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    entries
}
