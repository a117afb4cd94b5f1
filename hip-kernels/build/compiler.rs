//! The compiler: its search and its invocation.

use super::targets::is_ptx;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Clang that may support AMD's processors.
pub(crate) struct Compiler {
    pub(crate) path: PathBuf,
    /// First line of its `--version`.
    pub(crate) version: String,
}

/// Oldest release whose back end supports all default targets.
const OLDEST: u32 = 19;

/// Environment variables that change how every program is compiled. They are removed: code objects must
/// depend on the sources only.
const FOREIGN: [&str; 6] = [
    "CCC_OVERRIDE_OPTIONS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "HIPCC_COMPILE_FLAGS_APPEND",
    "HIPCC_LINK_FLAGS_APPEND",
];

impl Compiler {
    /// Finds the first compiler that runs: the one that the user names, versioned names in the search path, a
    /// plain `clang` that is new enough, the one of ROCm. Makes cargo rerun the build script if the compiler
    /// that was found changes, but not if the search path does, which often changes for other reasons.
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
            let paths = ["llvm/bin/clang", "lib/llvm/bin/clang", "bin/hipcc"];
            paths.iter().find_map(|path| Compiler::probe(&rocm.join(path)))
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

    /// Compiles one source for one target. The error is the beginning of the compiler's messages.
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

/// Finds a file in the search path; a name with a folder is returned unchanged.
fn in_path(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.into());
    }
    let mut file = name.as_os_str().to_owned();
    file.push(env::consts::EXE_SUFFIX);
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&file)).find(|path| path.is_file())
}

/// Returns the options for a target: a bare ELF of code object version 4 for AMD's processors (ROCm 5.2
/// loads no later one, and all releases since load it), PTX for NVIDIA's. SDK headers and device libraries are not used, and the output does
/// not depend on paths.
///
/// Division and square root round as IEEE requires and subnormal values are preserved on both. That is the
/// default for AMD's processors and set by options for NVIDIA's.
pub(crate) fn options(target: &str) -> Vec<String> {
    let mut options = vec!["-O3", "-std=c++17", "-ffp-contract=on", "-Wall", "-Wextra", "--cuda-device-only"];
    let last = if is_ptx(target) {
        options.extend(["-x", "cuda", "-nocudainc", "-nocudalib", "-S"]);
        options.extend(["-fno-fast-math", "-fno-gpu-flush-denormals-to-zero"]);
        vec![format!("--cuda-feature=+{}", ptx_version(target)), format!("--cuda-gpu-arch={target}")]
    } else {
        options.extend(["-x", "hip", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-c"]);
        options.extend(["-mcode-object-version=4", "-fno-ident", "-fuse-cuid=none"]);
        vec![format!("--offload-arch={target}")]
    };
    options.into_iter().map(String::from).chain(last).collect()
}

/// Returns the oldest version of PTX that supports a target, which allows the oldest drivers.
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
