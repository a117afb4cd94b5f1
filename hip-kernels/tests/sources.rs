//! The sources are embedded completely, and their parameter structures equal those of ggml-core, field by
//! field.

use crate::build::script::compiler::{Compiler, options};
use ggml_core::grids::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Fields of every structure whose name ends in `Params`: name, type, number of elements.
type Structures = Vec<(String, Vec<(String, String, u32)>)>;

/// Parses `u32 ne[4];`, `float scale[2][2];` and the like between `struct XParams {` and `};`.
fn of_header(text: &str) -> Structures {
    let mut found: Structures = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("struct ").and_then(|l| l.strip_suffix(" {")) {
            found.push((name.into(), Vec::new()));
        } else if let (Some((_, fields)), Some((ty, rest))) =
            (found.last_mut(), line.strip_suffix(';').and_then(|l| l.split_once(' ')))
        {
            let (name, extents) = rest.split_once('[').unwrap_or((rest, "1"));
            let extents = extents.split('[').map(|n| n.trim_end_matches(']').parse::<u32>().unwrap());
            fields.push((name.into(), ty.into(), extents.product()));
        }
    }
    found.sort();
    found
}

/// Parses `pub ne: [u32; 4],`, `pub scale: [[f32; 2]; 2],` and the like between `pub struct XParams {` and
/// `}`.
fn of_rust(text: &str) -> Structures {
    let mut found: Structures = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|l| l.strip_suffix(" {")) {
            inside = name.ends_with("Params");
            if inside {
                found.push((name.into(), Vec::new()));
            }
        } else if line == "}" {
            inside = false;
        } else if let Some((name, ty)) = line
            .trim()
            .strip_prefix("pub ")
            .filter(|_| inside)
            .and_then(|l| l.strip_suffix(','))
            .and_then(|l| l.split_once(": "))
        {
            let (ty, extents) = ty.trim_start_matches('[').split_once("; ").unwrap_or((ty, "1"));
            let extents = extents.split("; ").map(|n| n.trim_end_matches(']').parse::<u32>().unwrap());
            let ty = if ty == "f32" { "float" } else { ty };
            found.last_mut().unwrap().1.push((name.into(), ty.into(), extents.product()));
        }
    }
    found.sort();
    found
}

/// Returns the texts of ggml-core's parameter modules; empty if its sources are not next to this crate.
fn rust_sources() -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ggml-core/src/kernel/params");
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect::<Vec<_>>().join("\n")
}

#[test]
fn parameter_structures_are_those_of_ggml_core() {
    let rust = rust_sources();
    if rust.is_empty() {
        eprintln!("skipped: ggml-core's sources are not next to this crate");
        return;
    }
    let (_, header) = hip_kernels::sources().iter().find(|(name, _)| *name == "params.h").unwrap();
    let (ours, theirs) = (of_header(header), of_rust(&rust));
    assert!(ours.len() >= 11 && ours.iter().all(|(_, fields)| !fields.is_empty()), "{ours:#?}");
    for structure in &ours {
        assert!(theirs.contains(structure), "{structure:#?}\nis not in ggml-core as such");
    }
}

/// Returns the text of `src/grids.h`, made from [`ggml_core::grids`].
fn grids_header() -> String {
    let mut text = String::from(
        "// Lattice points of IQ1, IQ2 and IQ3: a word for each point, with eight codes of 2 bits, or four codes of 4 bits for IQ3,\n\
         // the first in the lowest bits. blocks_iq.h has the value of each code.\n\
         //\n\
         // Generated from ggml_core::grids by `DIPTYCH_WRITE_GRIDS=1 cargo test -p hip-kernels grids`. Do not edit.\n\
         #pragma once\n\
         #include \"device.h\"\n\n\
         #if DEVICE_AMD\n\
         #define GRID static __attribute__((constant)) const u16\n\
         #else\n\
         // Not const: the compiler would select constant memory, which serves lanes with different addresses one by one.\n\
         #define GRID static __attribute__((device)) u16\n\
         #endif\n",
    );
    for (name, points) in [
        ("IQ1", &IQ1[..]),
        ("IQ2_XXS", &IQ2_XXS),
        ("IQ2_XS", &IQ2_XS),
        ("IQ2_S", &IQ2_S),
        ("IQ3_XXS", &IQ3_XXS),
        ("IQ3_S", &IQ3_S),
    ] {
        let _ = writeln!(text, "\nGRID GRID_{name}[{}] = {{", points.len());
        for line in points.chunks(14) {
            let entries: Vec<String> = line.iter().map(|point| format!("{point:#06x}")).collect();
            let _ = writeln!(text, "    {},", entries.join(", "));
        }
        text += "};\n";
    }
    text
}

/// `grids.h` is what [`grids_header`] generates. `DIPTYCH_WRITE_GRIDS=1` writes it.
#[test]
fn grids_are_those_of_ggml_core() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grids.h");
    let generated = grids_header();
    if std::env::var_os("DIPTYCH_WRITE_GRIDS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let header = std::fs::read_to_string(&path).unwrap();
    let wrong = header.lines().zip(generated.lines()).position(|(ours, theirs)| ours != theirs);
    assert!(
        header == generated,
        "grids.h differs from ggml_core::grids (line {:?}); DIPTYCH_WRITE_GRIDS=1 writes it",
        wrong.map(|line| line + 1)
    );
}

#[test]
fn sources_are_whole() {
    for &stem in hip_kernels::stems() {
        let text = hip_kernels::source(stem).unwrap_or_else(|| panic!("{stem} has no source"));
        // The kernels of one family may be in several sources, generated by the macros of a header.
        let own = |name: &str| text.contains(&format!("#include \"{name}\"")) && name != "device.h";
        let mut texts = hip_kernels::sources().iter().filter(|(name, _)| own(name)).map(|(_, text)| *text);
        assert!(text.contains("KERNEL(") || texts.any(|text| text.contains("KERNEL(")), "{stem}");
    }
    // Every included header exists, under the name by which it is included.
    for (name, text) in hip_kernels::sources() {
        for line in text.lines().filter(|line| line.starts_with("#include")) {
            let header =
                line.split('"').nth(1).unwrap_or_else(|| panic!("{name}: {line} is no header of our own"));
            assert!(hip_kernels::sources().iter().any(|(n, _)| *n == header), "{name} includes {header}");
        }
    }
    assert!(
        hip_kernels::source("nothing").is_none() && hip_kernels::code_object("gfx906", "nothing").is_none()
    );
    assert!(hip_kernels::targets().iter().all(|target| hip_kernels::compiler(target).is_some()));
    assert_eq!(hip_kernels::compiler("gfx1"), None, "there are no such code objects");
}

/// The compilers of old releases of ROCm, which compile these sources at run time, know no C++20: clang before 16 refuses
/// a captured structured binding, for example. Newer ones warn of what is no C++17.
#[test]
fn sources_are_of_one_standard() {
    let Some(compiler) = Compiler::find() else {
        println!("no clang 19 or later: nothing is compiled");
        return;
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // Matrix units of two kinds; the other processors use parts of the same sources.
    let of_target = |target: &'static str, stems: &[&'static str]| {
        stems.iter().map(|&stem| (target, stem)).collect::<Vec<_>>()
    };
    let with_units = ["flash_attn", "flash_attn_blocks", "mul_mat_half"];
    let mut all = of_target("gfx90a", hip_kernels::stems());
    all.extend(of_target("gfx1201", &with_units));
    for (target, stem) in all {
        let mut command = Command::new(&compiler.path);
        command.args(options(target)).args([
            "-fsyntax-only",
            "-Werror=c++20-extensions",
            "-Wc++20-extensions",
        ]);
        let output = command.arg(sources.join(format!("{stem}.hip"))).output().unwrap();
        assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
