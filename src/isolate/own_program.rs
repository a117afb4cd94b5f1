//! The command that starts this program again.

use ggml_core::{Error, Result};
#[cfg(any(unix, test))]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Options of glibc's loader that are followed by a value.
#[cfg(any(unix, test))]
const WITH_VALUE: [&str; 7] = [
    "--argv0",
    "--audit",
    "--glibc-hwcaps-mask",
    "--glibc-hwcaps-prepend",
    "--inhibit-rpath",
    "--library-path",
    "--preload",
];

/// Returns the command. A program that was started through a dynamic loader (`ld-linux-x86-64.so.2 --library-path
/// FOLDERS PROGRAM`), with libraries of another system, is started in the same way.
pub(crate) fn command() -> Result<Command> {
    let program = std::env::current_exe().map_err(|e| Error::io("the program's own path", e))?;
    let mut command = Command::new(&program);
    if is_loader(&program) {
        command.args(arguments_of_loader().unwrap_or_default());
    }
    Ok(command)
}

/// Returns true if a program is a dynamic loader, by its name.
fn is_loader(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux") || name.starts_with("ld.so") || name.starts_with("ld-musl")
}

/// Returns the arguments that the loader of this process was started with, up to the program.
#[cfg(unix)]
fn arguments_of_loader() -> Option<Vec<OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::fs::read("/proc/self/cmdline").ok()?;
    let words: Vec<&OsStr> = bytes.split(|&b| b == 0).map(OsStr::from_bytes).collect();
    up_to_program(&words)
}

#[cfg(not(unix))]
fn arguments_of_loader() -> Option<Vec<OsString>> {
    None
}

/// Returns the words after the first up to the program, the first one that is no option of the loader.
#[cfg(any(unix, test))]
fn up_to_program(words: &[&OsStr]) -> Option<Vec<OsString>> {
    let mut at = 1;
    while words.get(at)?.as_encoded_bytes().starts_with(b"--") {
        at += if WITH_VALUE.iter().any(|option| *option == words[at]) { 2 } else { 1 };
    }
    words.get(1..=at).map(|words| words.iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_loader_are_kept() {
        let words = |line: &'static str| line.split(' ').map(OsStr::new).collect::<Vec<&OsStr>>();
        let of = |line| Some(up_to_program(&words(line))?.join(OsStr::new(" ")).into_string().unwrap());
        let line =
            "ld --library-path /a:/b --preload /c.so --inhibit-cache --argv0 x /x --model y --library-path z";
        let kept = "--library-path /a:/b --preload /c.so --inhibit-cache --argv0 x /x";
        assert_eq!(of(line).as_deref(), Some(kept));
        assert_eq!(of("ld /x").as_deref(), Some("/x"));
        assert_eq!((of("ld"), of("ld --preload"), of("ld --preload x")), (None, None, None));
    }

    #[test]
    fn loaders_are_known_by_name() {
        assert!(
            is_loader(Path::new("/lib64/ld-linux-x86-64.so.2"))
                && is_loader(Path::new("ld-musl-x86_64.so.1"))
        );
        assert!(!is_loader(Path::new("/usr/bin/compare")) && !is_loader(Path::new("/usr/bin/ld")));
    }
}
