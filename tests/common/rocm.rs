//! AMD's user spaces that `scripts/rocm-roots.sh` unpacked into `target/rocm`, or into the folder that `ROCM_ROOTS` names.

use super::example;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most programs at a time: each emulates a card with several threads.
const AT_A_TIME: usize = 2;

/// Longest that one program may take, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(240);

/// Permission to run one of [`AT_A_TIME`] programs.
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Turn {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= AT_A_TIME {
            running = ENDED.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Seconds that it ran.
    pub seconds: f64,
}

impl Ended {
    /// Returns all output as words with a space between them: lines are wrapped.
    pub fn words(&self) -> String {
        let text = format!("{} {}", self.stdout, self.stderr);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Runs a program when its turn comes. It has to end by itself.
pub fn end(command: Command, place: &str) -> Ended {
    end_within(command, place, LONGEST)
}

/// As [`end`], with another limit.
pub fn end_within(mut command: Command, place: &str, longest: Duration) -> Ended {
    let _turn = Turn::wait();
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = std::thread::scope(|scope| {
        scope.spawn(|| stdout.read_to_end(&mut out));
        scope.spawn(|| stderr.read_to_end(&mut err));
        loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > longest => {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("{place}: no end after {longest:?}");
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&out), text(&err));
    Ended { code: status.code(), stdout, stderr, seconds: start.elapsed().as_secs_f64() }
}

/// A user space: its version, and the program that runs others with it.
pub struct Root {
    pub version: String,
    run: PathBuf,
}

/// Returns the user spaces that are there, by version; says so if there are none.
pub fn roots() -> Vec<Root> {
    let named = std::env::var_os("ROCM_ROOTS").filter(|named| !named.is_empty()).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/rocm"));
    let mut roots: Vec<Root> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| Root {
            version: entry.file_name().to_string_lossy().into_owned(),
            run: entry.path().join("run"),
        })
        .filter(|root| root.run.is_file())
        .collect();
    roots.sort_by(|a, b| a.version.cmp(&b.version));
    if roots.is_empty() {
        eprintln!("skipped: no HIP user space in {} (scripts/rocm-roots.sh)", folder.display());
    }
    roots
}

impl Root {
    /// Returns the minor version of the glibc in this user space, if it has one that is needed.
    pub fn own_glibc(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.run.with_file_name("glibc")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the path of libamdhip64.
    pub fn library(&self) -> PathBuf {
        self.run.with_file_name("hip")
    }

    /// Returns an example program under this user space.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.run);
        command.arg(example(name)).env("DIPTYCH_VIRTUAL_KFD", preload()).env_remove("DIPTYCH_HIP_LIBRARY");
        command
    }
}

/// Returns the library to preload for the emulated card, which cargo has built for the tests.
pub fn preload() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("libvirtual_kfd_preload.so"));
    let found = folders.into_iter().find(|path| path.is_file());
    found.expect("libvirtual_kfd_preload.so, which `cargo test` builds")
}
