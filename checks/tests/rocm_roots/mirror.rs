//! A mirror of Debian with small packages, and programs and libraries to put into them.

use crate::project::root;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A mirror with two roots, 9.1 and 9.2, of small packages, and a folder for what is unpacked.
pub(super) struct Mirror {
    pub(super) dir: TempDir,
    /// Lines of the table.
    pub(super) table: String,
}

impl Mirror {
    pub(super) fn new() -> Mirror {
        let mut mirror = Mirror { dir: tempfile::tempdir().unwrap(), table: "# comment\n\n".into() };
        for major in ["1", "2"] {
            let library = compile(mirror.path(), "hip", major);
            let files = [
                ("usr/lib/x86_64-linux-gnu/libamdhip64.so.N.0", Content::File(&library)),
                ("usr/lib/x86_64-linux-gnu/libamdhip64.so.N", Content::Link("libamdhip64.so.N.0")),
                ("usr/lib/x86_64-linux-gnu/gconv/other.so", Content::Text("not a library of AMD's")),
                ("usr/share/doc/libamdhip64-N/copyright", Content::Text("text")),
                ("usr/include/hip.h", Content::Text("header")),
            ];
            mirror.add(&format!("9.{major}"), "amd", &format!("libamdhip64-{major}"), "1.0-1", &files);
        }
        let library = compile(mirror.path(), "extra", "3");
        let files = [
            (
                "usr/lib/llvm-3/lib/libdiptych-extra.so.3",
                Content::Link("../../x86_64-linux-gnu/libdiptych-extra.so.3"),
            ),
            ("usr/lib/x86_64-linux-gnu/libdiptych-extra.so.3", Content::File(&library)),
            ("usr/lib/x86_64-linux-gnu/libdiptych-extra-3.so", Content::Link("libdiptych-extra.so.3")),
        ];
        mirror.add("9.1", "more", "libdiptych-extra3", "1.0-1", &files);
        let files = [
            ("usr/bin/tool", Content::File(Path::new("/bin/true"))),
            ("usr/bin/tool.py", Content::Text("#!")),
        ];
        mirror.add("9.1", "bin", "tools", "1.0-1", &files);
        mirror
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn pool(&self, package: &str, version: &str) -> PathBuf {
        self.path().join("mirror/pool/main").join(format!("{package}_{version}_amd64.deb"))
    }

    /// Puts a package into the mirror and its row into the table. `N` in a path is the package's last character.
    pub(super) fn add(
        &mut self,
        root: &str,
        place: &str,
        package: &str,
        version: &str,
        files: &[(&str, Content)],
    ) {
        let deb = self.pool(package, version);
        build(&self.path().join("build").join(package), package, version, files, &deb);
        let path = format!("pool/main/{}", deb.file_name().unwrap().to_str().unwrap());
        self.table += &format!("{root} {place} forky {package} {} {path}\n", sha256(&deb));
    }

    pub(super) fn to(&self) -> PathBuf {
        self.path().join("to")
    }

    pub(super) fn script(&self, arguments: &[&str]) -> Command {
        fs::write(self.path().join("table"), &self.table).unwrap();
        let mut command = Command::new(root().join("scripts/rocm-roots.sh"));
        command.args(["--table".as_ref(), self.path().join("table").as_os_str()]);
        command.args(["--to".as_ref(), self.to().as_os_str()]);
        command.args(["--mirror".as_ref(), self.path().join("mirror").as_os_str()]);
        command.args(arguments);
        command
    }

    /// Runs the script. Returns its status and all that it printed.
    pub(super) fn run(&self, arguments: &[&str]) -> (i32, String) {
        outcome(self.script(arguments).output().unwrap())
    }
}

/// Content of a file of a package.
pub(super) enum Content<'a> {
    Text(&'a str),
    File(&'a Path),
    Link(&'a str),
}

pub(super) fn outcome(output: Output) -> (i32, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(text).unwrap())
}

/// Runs a command that has to succeed. Returns its output.
pub(super) fn succeed(command: &mut Command) -> String {
    let (status, text) = outcome(command.output().unwrap());
    assert_eq!(status, 0, "{command:?}: {text}");
    text
}

pub(super) fn sha256(file: &Path) -> String {
    let text = succeed(Command::new("sha256sum").arg(file));
    text.split_whitespace().next().unwrap().to_owned()
}

pub(super) fn cc(source: &str, out: &Path, options: &[&str]) {
    fs::write(out.with_extension("c"), source).unwrap();
    succeed(Command::new("cc").args(options).arg("-o").arg(out).arg(out.with_extension("c")).arg("-ldl"));
}

/// Compiles a library whose function `version` returns a number, and which says so when it is loaded if `SPEAK` is set.
pub(super) fn compile(dir: &Path, name: &str, version: &str) -> PathBuf {
    let out = dir.join(format!("{name}-{version}.so"));
    let source = format!(
        "#include <stdio.h>\n#include <stdlib.h>\nint version(void) {{ return {version}; }}\n\
         __attribute__((constructor)) static void load(void) {{ if (getenv(\"SPEAK\")) puts(\"loaded {name}\"); }}\n"
    );
    cc(&source, &out, &["-shared", "-fPIC"]);
    out
}

/// Makes a package of Debian's format, with dpkg-deb if it is there, otherwise as it would.
fn build(tree: &Path, package: &str, version: &str, files: &[(&str, Content)], deb: &Path) {
    for (name, content) in files {
        let file = tree.join(name.replace('N', &package[package.len() - 1..]));
        let filled = |text: &str| text.replace('N', &package[package.len() - 1..]);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        match content {
            Content::Text(text) => fs::write(&file, text).unwrap(),
            Content::File(from) => drop(fs::copy(from, &file).unwrap()),
            Content::Link(target) => symlink(filled(target), &file).unwrap(),
        }
    }
    fs::create_dir_all(deb.parent().unwrap()).unwrap();
    let control = format!(
        "Package: {package}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Nobody <nobody@example.org>\n\
         Description: a test\n"
    );
    let control_dir = tree.join("DEBIAN");
    fs::create_dir_all(&control_dir).unwrap();
    fs::write(control_dir.join("control"), control).unwrap();
    if Command::new("dpkg-deb").arg("--version").output().is_ok() {
        succeed(Command::new("dpkg-deb").arg("--build").args([tree, deb]));
        return;
    }
    let parts = tree.with_extension("parts");
    fs::create_dir_all(&parts).unwrap();
    fs::write(parts.join("debian-binary"), "2.0\n").unwrap();
    succeed(
        Command::new("tar")
            .arg("-czf")
            .arg(parts.join("control.tar.gz"))
            .arg("-C")
            .arg(&control_dir)
            .arg("."),
    );
    fs::remove_dir_all(&control_dir).unwrap();
    succeed(Command::new("tar").arg("-czf").arg(parts.join("data.tar.gz")).arg("-C").arg(tree).arg("."));
    let members = ["debian-binary", "control.tar.gz", "data.tar.gz"];
    succeed(Command::new("ar").current_dir(&parts).arg("rc").arg(deb).args(members));
}
