//! The README's kernel, compiled by its command and run as its program does: the printed results are right.

use crate::support::{Arguments, Session, compile};
use virtual_gpu::{FaultKind, Target};

const README: &str = include_str!("../README.md");

/// Returns the first block of a language that contains a text.
fn block(language: &str, with: &str) -> &'static str {
    let mut blocks = README.split("```").skip(1).step_by(2);
    let found = blocks.find(|b| b.strip_prefix(language).is_some_and(|b| b.starts_with('\n')) && b.contains(with));
    found.unwrap_or_else(|| panic!("no block {language} with {with}"))[language.len()..].trim()
}

/// Runs the kernel; returns the last element, the lines that the program prints, or the fault.
fn saxpy(source: &str) -> Result<String, virtual_gpu::Fault> {
    // The helper's options hold those of the command: anything else would be a different object.
    let command = block("sh", "clang-19");
    let target = Target::Gfx906;
    let options = ["-x hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-O3"];
    assert!(options.iter().all(|option| command.contains(option)), "{command}");
    assert!(command.contains(&format!("--offload-arch={}", target.name())), "{command}");
    let session = Session::new(target, "README", &compile::hip(target, "-O3 -ffp-contract=fast-honor-pragmas", source));
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
