//! The compiler: where it is and how it is called.

use super::targets::is_ptx;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clang that may know AMD's processors.
pub(crate) struct Compiler {
    pub(crate) path: PathBuf,
    /// First line of its `--version`.
    pub(crate) version: String,
}

/// Oldest release whose back end knows all default targets.
const OLDEST: u32 = 19;

/// What users set to change how every program is compiled. Code objects are to follow from the sources alone.
const FOREIGN: [&str; 6] = [
    "CCC_OVERRIDE_OPTIONS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "HIPCC_COMPILE_FLAGS_APPEND",
    "HIPCC_LINK_FLAGS_APPEND",
];

impl Compiler {
    /// The first that runs: the one that the user names, versioned names in the search path, a plain `clang` that is
    /// new enough, the one that ROCm brings. Tells cargo what to look at before it runs the build script again: the
    /// compiler that was found, not the search path, in which everything may change but that.
    pub(crate) fn find() -> Option<Compiler> {
        println!("cargo:rerun-if-env-changed=DIPTYCH_HIP_CLANG");
        let found = match env::var_os("DIPTYCH_HIP_CLANG") {
            Some(name) => {
                let named = in_path(Path::new(&name)).and_then(|path| Compiler::probe(&path));
                assert!(named.is_some(), "DIPTYCH_HIP_CLANG: {name:?} does not run");
                named
            }
            None => Compiler::search(),
        };
        match &found {
            Some(compiler) => println!("cargo:rerun-if-changed={}", compiler.path.display()),
            None => println!("cargo:rerun-if-env-changed=PATH"),
        }
        found
    }

    fn search() -> Option<Compiler> {
        let named = |name: &str| in_path(Path::new(name)).and_then(|path| Compiler::probe(&path));
        let versioned = (OLDEST..=22).find_map(|v| named(&format!("clang-{v}")));
        let plain = || named("clang").filter(|c| c.major() >= Some(OLDEST));
        let brought = || {
            println!("cargo:rerun-if-env-changed=ROCM_PATH");
            let rocm = env::var_os("ROCM_PATH").map_or(PathBuf::from("/opt/rocm"), PathBuf::from);
            let places = ["llvm/bin/clang", "lib/llvm/bin/clang", "bin/hipcc"];
            places.iter().find_map(|place| Compiler::probe(&rocm.join(place)))
        };
        versioned.or_else(plain).or_else(brought)
    }

    fn probe(path: &Path) -> Option<Compiler> {
        let output = Command::new(path).arg("--version").output().ok().filter(|o| o.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // hipcc prints its own version before that of its clang.
        let line = text.lines().find(|line| line.contains("clang version"))?;
        Some(Compiler { path: path.into(), version: line.trim().into() })
    }

    fn major(&self) -> Option<u32> {
        let digits = self.version.split("clang version ").nth(1)?;
        digits.split('.').next()?.parse().ok()
    }

    /// Compiles one source for one target. The error is the beginning of what the compiler said.
    pub(crate) fn run(&self, target: &str, source: &Path, object: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.path);
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        let output = command
            .args(options(target))
            .arg(source)
            .arg("-o")
            .arg(object)
            .output()
            .map_err(|e| format!("{}: {e}", self.path.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("error")).take(5).collect();
        Err(if lines.is_empty() {
            format!("{} ended with {}", self.path.display(), output.status)
        } else {
            lines.join("\n")
        })
    }
}

/// A file in the search path; a name with a folder is that file.
fn in_path(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.into());
    }
    let mut file = name.as_os_str().to_owned();
    file.push(env::consts::EXE_SUFFIX);
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&file)).find(|path| path.is_file())
}

/// Options for a target: a bare ELF of code object version 5 (older runtimes refuse version 6) for AMD's processors,
/// PTX for NVIDIA's. No SDK header and no device library take part, and nothing in the output depends on paths.
///
/// Division and square root are rounded as IEEE says and subnormal numbers are kept, on both: that is the default for
/// AMD's processors and said for NVIDIA's.
pub(crate) fn options(target: &str) -> Vec<String> {
    let mut options = vec!["-O3", "-std=c++17", "-ffp-contract=on", "-Wall", "-Wextra", "--cuda-device-only"];
    let last = if is_ptx(target) {
        options.extend(["-x", "cuda", "-nocudainc", "-nocudalib", "-S"]);
        options.extend(["-fno-fast-math", "-fno-gpu-flush-denormals-to-zero"]);
        vec![format!("--cuda-feature=+{}", ptx_version(target)), format!("--cuda-gpu-arch={target}")]
    } else {
        options.extend(["-x", "hip", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-c"]);
        options.extend(["-mcode-object-version=5", "-fno-ident", "-fuse-cuid=none"]);
        vec![format!("--offload-arch={target}")]
    };
    options.into_iter().map(String::from).chain(last).collect()
}

/// The oldest version of PTX that has a target: the older it is, the older a driver may be.
fn ptx_version(target: &str) -> &'static str {
    let digits = target.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_ascii_alphabetic());
    match digits.parse().unwrap_or(u32::MAX) {
        ..=75 => "ptx63",
        76..=80 => "ptx70",
        81..=86 => "ptx71",
        87 => "ptx74",
        88..=90 => "ptx80",
        91..=119 => "ptx86",
        _ => "ptx87",
    }
}
