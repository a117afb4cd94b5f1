//! Lists the committed SPIR-V containers, so that adding a shader needs no second list, and packs them: a twelfth of their
//! size is left.

#[path = "src/ids.rs"]
mod ids;

use ids::Ids;
use lzma_rust2::{LzmaOptions, LzmaWriter};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=spirv");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/ids.rs");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let spirv = root.join("spirv");

    let (mut list, mut all) = (String::from("&[\n"), Vec::new());
    for family in sorted_entries(&spirv).iter().filter(|path| path.is_dir()) {
        for file in sorted_entries(family) {
            let Some(stem) =
                file.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".spv.bin"))
            else {
                continue;
            };
            let bytes = std::fs::read(&file).expect("the committed SPIR-V is readable");
            writeln!(list, "    ({stem:?}, {}),", bytes.len()).expect("a String grows");
            let (words, rest) = bytes.as_chunks();
            let mut ids = Ids::default();
            all.extend(words.iter().flat_map(|&word| ids.relative(u32::from_le_bytes(word)).to_le_bytes()));
            all.extend(rest);
        }
    }
    list.push_str("]\n");
    std::fs::write(out.join("containers.rs"), list).expect("OUT_DIR is writable");
    std::fs::write(out.join("containers.lzma"), packed(&all)).expect("OUT_DIR is writable");

    let manifest = spirv.join("manifest.json");
    let text = if manifest.is_file() {
        std::fs::read(manifest).expect("the manifest is readable")
    } else {
        // The program that makes the manifest has to build without one.
        assert!(
            std::env::var_os("CARGO_FEATURE_COMPILE").is_some(),
            "{} is missing: the committed SPIR-V is incomplete; `make shaders` makes it",
            manifest.display()
        );
        Vec::new()
    };
    std::fs::write(out.join("manifest.lzma"), packed(&text)).expect("OUT_DIR is writable");
}

/// An LZMA file.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut options = LzmaOptions::with_preset(6);
    // SPIR-V is words of four bytes.
    (options.lc, options.lp, options.pb) = (2, 2, 2);
    let writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64));
    let packed = writer.and_then(|mut writer| writer.write_all(bytes).map(|()| writer)?.finish());
    packed.expect("a Vec takes everything")
}

/// The entries of a directory in the order of their names; none if it cannot be read.
fn sorted_entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    entries
}
