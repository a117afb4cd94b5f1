//! Compiles assembly and HIP to code objects.

use super::kept::{first_program, kept};
use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use virtual_gpu::Target;

/// Returns the compiler and its version. Panics if it is missing, because a test without it would prove nothing.
fn clang() -> &'static (String, Vec<u8>) {
    static FOUND: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    FOUND.get_or_init(|| {
        let named = std::env::var("DIPTYCH_HIP_CLANG").ok();
        let names = named.into_iter().chain(["clang-19", "clang"].map(String::from));
        first_program(names).expect(
            "these tests need clang 19 with its linker lld (Debian: clang-19 lld-19); `make setup` installs them",
        )
    })
}

/// Runs the compiler on a source of some name; the options decide what it writes.
pub(crate) fn run(name: &str, source: &str, arguments: &[&str]) -> Vec<u8> {
    kept("test-object", &(clang(), name, source, arguments), || run_now(name, source, arguments))
}

fn run_now(name: &str, source: &str, arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = directory.path().join(name);
    let output = directory.path().join("object.elf");
    fs::write(&input, source).expect("the temporary directory is writable");
    let result = Command::new(&clang().0).args(arguments).arg(&input).arg("-o").arg(&output).output();
    let result = result.expect("the compiler starts");
    assert!(
        result.status.success(),
        "{} {}:\n{}",
        clang().0,
        arguments.join(" "),
        String::from_utf8_lossy(&result.stderr)
    );
    fs::read(&output).expect("the compiler wrote its output")
}

/// Assembles and links a text.
pub(crate) fn assemble(target: Target, text: &str) -> Vec<u8> {
    let cpu = format!("-mcpu={}", target.name());
    run(
        "kernels.s",
        &adapted(target, text),
        &["-target", "amdgcn-amd-amdhsa", &cpu, "-mcode-object-version=5"],
    )
}

/// Adapts the descriptors of [`asm::file`](super::asm::file) to a target: CDNA's say where the accumulation registers
/// begin, and hardware knows the scratch of gfx942.
fn adapted(target: Target, text: &str) -> String {
    if !super::CDNA.contains(&target) {
        return text.to_owned();
    }
    let lines = text.replace("; .amdhsa_accum_offset", ".amdhsa_accum_offset");
    if target == Target::Gfx90a {
        return lines;
    }
    let unknown = ["user_sgpr_private_segment_buffer", "user_sgpr_flat_scratch_init"];
    let known = |line: &&str| !unknown.iter().any(|name| line.contains(name));
    let lines: Vec<&str> = lines.lines().filter(known).collect();
    lines.join("\n").replace("system_sgpr_private_segment_wavefront_offset", "enable_private_segment")
}

/// Returns the numbers of the lines of a text that the assembler refuses.
pub(crate) fn errors(target: Target, text: &str) -> Vec<usize> {
    let cpu = format!("-mcpu={}", target.name());
    let arguments =
        ["-target", "amdgcn-amd-amdhsa", &cpu, "-mcode-object-version=5", "-c", "-ferror-limit=0"];
    let messages = kept("test-errors", &(clang(), text, arguments), || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let input = directory.path().join("kernels.s");
        fs::write(&input, text).expect("the temporary directory is writable");
        let output = directory.path().join("object.elf");
        let result = Command::new(&clang().0).args(arguments).arg(&input).arg("-o").arg(output).output();
        result.expect("the compiler starts").stderr
    });
    let line =
        |line: &str| line.split_once(".s:")?.1.split_once(": error:")?.0.split(':').next()?.parse().ok();
    String::from_utf8_lossy(&messages).lines().filter_map(line).collect()
}

/// Assembles a text to plain machine code.
pub(crate) fn bare(target: Target, text: &str) -> Vec<u8> {
    use object::{Object as _, ObjectSection as _};
    let cpu = format!("-mcpu={}", target.name());
    let object = run("bare.s", text, &["-target", "amdgcn", &cpu, "-c"]);
    let file = object::File::parse(&*object).expect("the assembler wrote an ELF file");
    let section = file.section_by_name(".text").expect("the text is not empty");
    section.data().expect("the file is whole").to_vec()
}

type Objects = Mutex<HashMap<(String, String), Arc<OnceLock<Vec<u8>>>>>;

/// Compiles HIP for the device only, without headers or libraries; each object is compiled once per test
/// program.
pub(crate) fn hip(target: Target, options: &str, source: &str) -> Vec<u8> {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    let key = (format!("{} {options}", target.name()), source.to_owned());
    let slot = {
        let mut objects = OBJECTS.get_or_init(Objects::default).lock().unwrap_or_else(|e| e.into_inner());
        Arc::clone(objects.entry(key).or_default())
    };
    let arch = format!("--offload-arch={}", target.name());
    let mut arguments =
        vec!["-x", "hip", &arch, "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output"];
    arguments.extend(["-std=c++17", "-ffp-contract=off", "-mcode-object-version=5"]);
    arguments.extend(options.split_whitespace());
    slot.get_or_init(|| run("kernels.hip", source, &arguments)).clone()
}
