//! The README's kernel, compiled by its command and run as its program does: the printed results are right.

use crate::support::{Arguments, Session, compile};
use virtual_gpu::{FaultKind, Target};

const README: &str = include_str!("../README.md");

/// Returns the first block of a language that contains a text.
fn block(language: &str, with: &str) -> &'static str {
    let mut blocks = README.split("```").skip(1).step_by(2);
    let found =
        blocks.find(|b| b.strip_prefix(language).is_some_and(|b| b.starts_with('\n')) && b.contains(with));
    found.unwrap_or_else(|| panic!("no block {language} with {with}"))[language.len()..].trim()
}

/// Runs the kernel; returns the last element, the lines that the program prints, or the fault.
fn saxpy(source: &str) -> Result<String, virtual_gpu::Fault> {
    let mut options: Vec<&str> = block("sh", "clang-19").split_whitespace().skip(1).collect();
    assert_eq!(options.split_off(options.len() - 3), ["saxpy.hip", "-o", "saxpy.co"]);
    let target = Target::Gfx906;
    assert!(options.contains(&format!("--offload-arch={}", target.name()).as_str()));
    let session = Session::new(target, "README", &compile::run("saxpy.hip", source, &options));
    let (x, y) = (session.upload(&[2f32; 1000]), session.upload(&[1f32; 1000]));
    let arguments = Arguments::new().add(x).add(y).add(3f32).add(1000u32);
    let counters = session.attempt("saxpy", [8, 1, 1], [128, 1, 1], 0, &arguments)?;
    let last = session.download::<f32>(y, 1000)[999];
    Ok(format!(
        "y[999] = {last}\n{} wavefronts, {} instructions\n{} bytes read, {} written",
        counters.waves, counters.instructions, counters.global_read, counters.global_written
    ))
}

#[test]
fn example_prints_what_it_says() {
    let source = block("cpp", "saxpy");
    assert_eq!(saxpy(source).unwrap(), block("text", "y[999]"));
    let fault = saxpy(&source.replace("if (i < n) ", "")).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds(_)), "{fault}");
    assert_eq!(fault.to_string(), block("text", "out of bounds"));
}
