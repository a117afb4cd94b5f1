//! User spaces of ROCm, and programs under them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time of a program.
const LIMIT: Duration = Duration::from_secs(120);

/// A user space of ROCm.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) version: String,
    /// libamdhip64.
    pub(crate) library: PathBuf,
    /// Program that starts others with this user space; none is needed where the system has installed it.
    runner: Option<PathBuf>,
}

/// Returns the user spaces: the system's, and those that `scripts/rocm-roots.sh` unpacked.
pub(crate) fn roots() -> Vec<Root> {
    let folder = std::env::var_os("ROCM_ROOTS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rocm"));
    let mut roots: Vec<Root> = installed().into_iter().collect();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|f| f.join("run").exists() && f.join("hip").exists()) {
        roots.push(Root {
            version: folder.file_name().unwrap().to_string_lossy().into_owned(),
            library: folder.join("hip"),
            runner: Some(folder.join("run")),
        });
    }
    roots
}

/// Returns the system's user space.
fn installed() -> Option<Root> {
    ["/usr/lib/x86_64-linux-gnu", "/opt/rocm/lib"].iter().find_map(|folder| {
        let name = |n: u32| Path::new(folder).join(format!("libamdhip64.so.{n}"));
        let library = (5..8).map(name).find(|path| path.exists())?;
        Some(Root { version: "installed".into(), library, runner: None })
    })
}

/// Returns the library to preload, which cargo has built for these tests.
pub(crate) fn preload() -> PathBuf {
    // Cargo leaves it beside the tests, or, if it is built for itself, in the folder above.
    let tests = std::env::current_exe().unwrap();
    let found = tests.ancestors().skip(1).take(2).map(|folder| folder.join("libvirtual_kfd_preload.so"));
    found.into_iter().find(|path| path.exists()).expect("the library to preload")
}

/// Returns a program of `tests/c`, which is compiled once.
pub(crate) fn compiled(name: &'static str) -> PathBuf {
    static PROGRAMS: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        let mut cc = Command::new("cc");
        success(cc.args(["-Wall", "-Werror", "-O1", "-o"]).arg(&to).arg(source).arg("-ldl"));
        to
    };
    programs.entry(name).or_insert_with(make).clone()
}

/// Returns the test program.
pub(crate) fn program() -> PathBuf {
    compiled("program")
}

/// Returns the kernels of a processor, which are compiled once; `None` without a compiler for them.
pub(crate) fn kernels(target: &'static str) -> Option<PathBuf> {
    static OBJECTS: Mutex<BTreeMap<&str, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    objects.entry(target).or_insert_with(|| compile(target)).clone()
}

fn compile(target: &str) -> Option<PathBuf> {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{target}.co"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/kernels.hip");
    // Version 4 is what all of them load.
    let options = [
        "-x",
        "hip",
        "--offload-device-only",
        "--no-gpu-bundle-output",
        "-nogpuinc",
        "-nogpulib",
        "-O2",
        "-mcode-object-version=4",
    ];
    let mut clang = Command::new("clang-19");
    clang.args(options).arg(format!("--offload-arch={target}")).arg("-o").arg(&to).arg(source);
    match clang.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(to)
        }
        Err(_) => None,
    }
}

fn success(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Root {
    /// Returns a program with this user space and the virtual machine.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let preload = preload();
        let mut command = match &self.runner {
            Some(runner) => {
                let mut command = Command::new(runner);
                command.arg(program).env("VIRTUAL_KFD_LIBRARY", preload);
                command
            }
            None => {
                let mut command = Command::new(program);
                command.env("LD_PRELOAD", preload);
                command
            }
        };
        command.arg(&self.library).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Runs a program to its end; one that goes on too long is killed, and its output says so.
pub(crate) fn finish(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + LIMIT;
    let mut late = false;
    // Its output fits into the pipes.
    while child.try_wait().unwrap().is_none() {
        if !late && Instant::now() > until {
            late = true;
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut output = child.wait_with_output().unwrap();
    if late {
        output.stderr.extend(format!("killed after {} s\n", LIMIT.as_secs()).bytes());
    }
    output
}

/// Returns both outputs as text.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
