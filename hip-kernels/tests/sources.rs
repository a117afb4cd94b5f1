//! The sources are embedded completely, and their parameter structures equal those of ggml-core, field by
//! field.

use std::path::Path;

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

/// Returns names and entries of the grids in a text, sorted: the text between the brackets after `begin`.
fn grids_of<'a>(text: &'a str, begin: &str) -> Vec<(&'a str, Vec<u16>)> {
    let entry = |x: &str| u16::from_str_radix(x.trim().strip_prefix("0x")?, 16).ok();
    let grid = |part: &'a str| {
        let (head, rest) = part.split_once(" = ")?;
        let (name, _) = head.split_once([':', '['])?;
        Some((
            name,
            rest.split([';', '}', ']'])
                .next()?
                .trim_start_matches(['{', '['])
                .split(',')
                .filter_map(entry)
                .collect(),
        ))
    };
    let mut found: Vec<_> = text.split(begin).skip(1).filter_map(grid).collect();
    found.sort();
    found
}

#[test]
fn grids_are_those_of_ggml_core() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ggml-core/src/grids.rs");
    let Ok(rust) = std::fs::read_to_string(path) else {
        eprintln!("skipped: ggml-core's sources are not next to this crate");
        return;
    };
    let (_, header) = hip_kernels::sources().iter().find(|(name, _)| *name == "grids.h").unwrap();
    let (ours, theirs) = (grids_of(header, "GRID GRID_"), grids_of(&rust, "pub static "));
    let lengths: Vec<_> = ours.iter().map(|(name, entries)| (*name, entries.len())).collect();
    let all =
        [("IQ1", 2048), ("IQ2_S", 1024), ("IQ2_XS", 512), ("IQ2_XXS", 256), ("IQ3_S", 512), ("IQ3_XXS", 256)];
    assert_eq!(lengths, all);
    assert!(ours == theirs, "grids.h and ggml_core::grids differ");
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
    let asked = hip_kernels::targets().is_empty();
    assert_eq!(hip_kernels::compiler().is_none(), asked, "a compiler if and only if there are code objects");
}
