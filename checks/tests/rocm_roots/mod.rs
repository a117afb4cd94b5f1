//! `scripts/rocm-roots.sh` with packages and mirrors made here; nothing is downloaded.

mod mirror;

use crate::project::root;
use mirror::{Content, Mirror, cc, compile, outcome, sha256, succeed};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// One package of a table.
struct Row<'a> {
    root: &'a str,
    place: &'a str,
    suite: &'a str,
    package: &'a str,
    sha256: &'a str,
    path: &'a str,
}

fn parse(table: &str) -> Vec<Row<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [root, place, suite, package, sha256, path] = columns[..] else {
                panic!("columns of {line}")
            };
            Row { root, place, suite, package, sha256, path }
        })
        .collect()
}

#[test]
fn table_is_well_formed() {
    let text = ["rocm-roots.txt", "rocm-witness.txt"]
        .map(|name| fs::read_to_string(root().join("scripts").join(name)).unwrap())
        .concat();
    let rows = parse(&text);
    for (i, row) in rows.iter().enumerate() {
        let file = row.path.rsplit('/').next().unwrap();
        let name = format!("{} {}", row.root, row.package);
        let places = if row.root == "witness" { &["tree"][..] } else { &["amd", "more", "libc", "bin"] };
        assert!(places.contains(&row.place), "place of {name}");
        assert!(["bookworm", "trixie", "forky", "experimental"].contains(&row.suite), "suite of {name}");
        assert!(row.path.starts_with("pool/main/") && !row.path.contains(".."), "path of {name}");
        assert!(
            file.starts_with(&format!("{}_", row.package)) && file.ends_with("_amd64.deb"),
            "{name}: {file}"
        );
        let digits = row.sha256.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
        assert!(row.sha256.len() == 64 && digits, "SHA-256 of {name}");
        let same = |other: &&Row<'_>| (other.root, other.package) == (row.root, row.package);
        assert_eq!(rows[..i].iter().filter(same).count(), 0, "{name} occurs twice");
        // Roots share a cache: one file name, one hash.
        let other = rows.iter().find(|r| r.path.ends_with(&format!("/{file}")) && r.sha256 != row.sha256);
        assert!(other.is_none(), "{file} has two hashes");
    }
    for root in ["5.2.3", "5.7.1", "6.4.3", "7.2.4"] {
        let has = |place: &str, package: &str| {
            rows.iter().any(|r| r.root == root && r.place == place && r.package.starts_with(package))
        };
        assert!(has("amd", "libamdhip64-") && has("amd", "libamd-comgr") && has("amd", "libllvm"), "{root}");
        assert_eq!(has("libc", "libc6"), root != "5.2.3", "glibc of {root}");
    }
}

#[test]
fn scripts_have_no_errors() {
    let scripts = fs::read_dir(root().join("scripts")).unwrap().map(|entry| entry.unwrap().path());
    for script in scripts.filter(|path| path.extension().is_some_and(|e| e == "sh")) {
        let first = fs::read_to_string(&script).unwrap();
        let shell = if first.starts_with("#!/bin/sh\n") { "sh" } else { "bash" };
        succeed(Command::new(shell).arg("-n").arg(&script));
        if Command::new("shellcheck").arg("--version").output().is_ok() {
            succeed(Command::new("shellcheck").arg("--severity=warning").arg(&script));
        }
    }
}

#[test]
fn wrong_use_has_status_2() {
    let mirror = Mirror { dir: tempfile::tempdir().unwrap(), table: "9.1 amd forky a 0 pool/a\n".into() };
    for (arguments, message) in [
        (&["9.3"][..], "no such root: 9.3; there are 9.1"),
        (&["--install"], "unknown option: --install"),
        (&["--to"], "--to takes a value"),
    ] {
        let (status, text) = mirror.run(arguments);
        assert_eq!((status, text.contains(message)), (2, true), "{arguments:?}: {text}");
        assert!(text.contains("usage: "), "{text}");
    }
    let (status, text) = mirror.run(&["--help"]);
    assert_eq!((status, text.starts_with("usage: "), mirror.to().exists()), (0, true, false), "{text}");
}

#[test]
fn root_has_libraries_and_nothing_else() {
    let mirror = Mirror::new();
    let (status, text) = mirror.run(&["9.1"]);
    assert_eq!(status, 0, "{text}");
    let made = mirror.to().join("9.1");
    assert_eq!(fs::read_link(made.join("hip")).unwrap(), Path::new("lib/libamdhip64.so.1"));
    assert_eq!(fs::read_link(made.join("lib/libamdhip64.so.1")).unwrap(), Path::new("libamdhip64.so.1.0"));
    let list = succeed(Command::new("find").current_dir(&made).args([".", "!", "-type", "d"]));
    let mut list: Vec<&str> = list.lines().collect();
    list.sort_unstable();
    assert_eq!(
        list,
        [
            "./bin/tool",
            "./glibc",
            "./hip",
            "./lib/libamdhip64.so.1",
            "./lib/libamdhip64.so.1.0",
            "./more/libdiptych-extra3/libdiptych-extra-3.so",
            "./more/libdiptych-extra3/libdiptych-extra.so.3",
            "./packages",
            "./run",
        ]
    );
    assert!(!mirror.to().join("9.2").exists());

    // It is there, so nothing of the mirror is needed any more.
    fs::remove_dir_all(mirror.path().join("mirror")).unwrap();
    let (status, text) = mirror.run(&["9.1"]);
    assert_eq!((status, text.contains("9.1 is there")), (0, true), "{text}");
}

#[test]
fn files_of_a_tree_lie_as_in_the_package_without_kernels_for_other_cards() {
    let mut mirror = Mirror::new();
    let files = [
        ("usr/libexec/tests/test-ops", Content::File(Path::new("/bin/true"))),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_fallback.dat", Content::Text("any")),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_gfx906.co", Content::Text("gfx906")),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_gfx900.co", Content::Text("gfx900")),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_gfx90a.co", Content::Text("gfx90a")),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_gfx942.co", Content::Text("gfx942")),
        ("usr/lib/x86_64-linux-gnu/blas/kernels_gfx1100.co", Content::Text("gfx1100")),
        ("usr/share/doc/blas/copyright", Content::Text("text")),
    ];
    mirror.add("9.1", "tree", "blas", "1.0-1", &files);
    let kept = mirror.path().join("kept");
    let (status, text) = mirror.run(&["--downloads", kept.to_str().unwrap(), "9.1"]);
    assert_eq!(status, 0, "{text}");
    assert!(kept.join("blas_1.0-1_amd64.deb").is_file() && !mirror.to().join(".downloads").exists());
    let tree = mirror.to().join("9.1/tree");
    let list = succeed(Command::new("find").current_dir(tree).args([".", "-type", "f"]));
    let mut list: Vec<&str> = list.lines().collect();
    list.sort_unstable();
    assert_eq!(
        list,
        [
            "./usr/lib/x86_64-linux-gnu/blas/kernels_fallback.dat",
            "./usr/lib/x86_64-linux-gnu/blas/kernels_gfx900.co",
            "./usr/lib/x86_64-linux-gnu/blas/kernels_gfx906.co",
            "./usr/libexec/tests/test-ops",
        ]
    );
}

#[test]
fn without_dpkg_packages_are_unpacked_by_ar() {
    // dpkg-deb has a decompressor of its own.
    if Command::new("xz").arg("--version").output().is_err() {
        return println!("SKIPPED: there is no xz");
    }
    let mirror = Mirror::new();
    let tools = mirror.path().join("tools");
    fs::create_dir(&tools).unwrap();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() != "dpkg-deb" {
                let _ = symlink(entry.path(), tools.join(entry.file_name()));
            }
        }
    }
    let (status, text) = outcome(mirror.script(&[]).env("PATH", &tools).output().unwrap());
    assert_eq!(status, 0, "{text}");
    assert!(mirror.to().join("9.1/lib/libamdhip64.so.1.0").is_file());
    assert!(mirror.to().join("9.2/lib/libamdhip64.so.2.0").is_file());
}

#[test]
fn wrong_hash_is_refused() {
    let mirror = Mirror::new();
    let deb = mirror.pool("libamdhip64-1", "1.0-1");
    let mut bytes = fs::read(&deb).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&deb, bytes).unwrap();
    let (status, text) = mirror.run(&[]);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("9.1: refused, its SHA-256 is not the one in the table: "), "{text}");
    assert!(text.contains("9.1: skipped, for want of libamdhip64-1_1.0-1_amd64.deb"), "{text}");
    assert!(!mirror.to().join("9.1").exists());
    assert!(!mirror.to().join(".downloads/libamdhip64-1_1.0-1_amd64.deb").exists());
    // The other root is made.
    assert!(mirror.to().join("9.2/run").is_file());
}

#[test]
fn package_that_is_gone_is_skipped_with_a_way_on() {
    let mirror = Mirror::new();
    fs::remove_file(mirror.pool("libamdhip64-2", "1.0-1")).unwrap();
    let (status, text) = mirror.run(&[]);
    assert_eq!(status, 1, "{text}");
    let address = mirror.path().join("mirror/pool/main/libamdhip64-2_1.0-1_amd64.deb");
    assert!(text.contains(&format!("9.2: gone from the mirror: {}", address.display())), "{text}");
    assert!(text.contains("'scripts/rocm-roots.sh --pin 9.2' prints"), "{text}");
    assert!(mirror.to().join("9.1/run").is_file() && !mirror.to().join("9.2").exists());
}

#[test]
fn interrupted_run_goes_on_and_changed_table_makes_anew() {
    let mut mirror = Mirror::new();
    // What a run leaves that was killed while it downloaded or unpacked.
    fs::create_dir_all(mirror.to().join(".9.1.new/lib")).unwrap();
    fs::write(mirror.to().join(".9.1.new/lib/half.so"), "half").unwrap();
    fs::create_dir_all(mirror.to().join(".downloads")).unwrap();
    fs::write(mirror.to().join(".downloads/libamdhip64-1_1.0-1_amd64.deb"), "half").unwrap();
    fs::write(mirror.to().join(".downloads/tools_1.0-1_amd64.deb.part"), "half").unwrap();
    let (status, text) = mirror.run(&["9.1"]);
    assert_eq!(status, 0, "{text}");
    assert!(mirror.to().join("9.1/bin/tool").is_file() && !mirror.to().join("9.1/lib/half.so").exists());

    mirror.add(
        "9.1",
        "more",
        "libfour4",
        "1.0-1",
        &[("usr/lib/x86_64-linux-gnu/libfour.so.4", Content::File(Path::new("/bin/true")))],
    );
    let (status, text) = mirror.run(&["9.1"]);
    assert_eq!((status, text.contains("9.1: unpacking")), (0, true), "{text}");
    assert!(mirror.to().join("9.1/more/libfour4/libfour.so.4").is_file());
    let left: Vec<_> = fs::read_dir(mirror.to()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| [".downloads", ".lock", "9.1"].iter().any(|known| name == known)),
        "{left:?}"
    );
}

#[test]
fn mirror_is_the_one_of_the_package_sources() {
    let mirror = Mirror::new();
    assert_eq!(mirror.run(&["9.2"]).0, 0);
    let apt = mirror.path().join("apt");
    fs::create_dir_all(apt.join("sources.list.d")).unwrap();
    let default = "http://deb.debian.org/debian";
    for (file, text, expected) in [
        ("none", "", default),
        (
            "sources.list",
            "# deb http://old.example/debian bookworm main\ndeb-src http://src.example/debian trixie main\n\
             deb http://security.example/debian-security bookworm-security main\n\
             deb [arch=amd64 signed-by=/x] https://list.example/debian/ bookworm main contrib # comment\n",
            "https://list.example/debian",
        ),
        (
            "sources.list.d/debian.sources",
            "# comment\nTypes: deb\nURIs: http://security.example/debian-security\nSuites: trixie-security\n\
             Components: main\n\nTypes: deb\nEnabled: no\nURIs: http://off.example\nSuites: trixie\n\
             Components: main\n\nTypes: deb deb-src\n# comment\nURIs: http://stanza.example/debian\n\
             Suites: trixie\n trixie-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n",
            "http://stanza.example/debian",
        ),
        (
            "sources.list.d/ubuntu.sources",
            "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu\nSuites: noble\nComponents: main universe\n",
            default,
        ),
        ("sources.list.d/cd.list", "deb cdrom:[Debian]/ bookworm main\n", default),
        ("sources.list.d/extra.list", "deb http://extra.example/debian bookworm non-free # main\n", default),
    ] {
        let path = apt.join(file);
        fs::write(&path, text).unwrap();
        // The root is there, so the mirror is only named.
        let mut command = Command::new(root().join("scripts/rocm-roots.sh"));
        command.args(["--apt".as_ref(), apt.as_os_str(), "--to".as_ref(), mirror.to().as_os_str()]);
        command.args(["--table".as_ref(), mirror.path().join("table").as_os_str(), "9.2".as_ref()]);
        let output = succeed(&mut command);
        assert!(output.contains(&format!("mirror is {expected}\n")), "{file}: {output}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn pinning_prints_rows_that_work() {
    if Command::new("xz").arg("--version").output().is_err() {
        eprintln!("skipped: no xz");
        return;
    }
    let mut mirror = Mirror::new();
    let (old, new) = (mirror.pool("libamdhip64-2", "1.0-1"), mirror.pool("libamdhip64-2", "1.1-1"));
    fs::rename(&old, &new).unwrap();
    let index = mirror.path().join("mirror/dists/forky/main/binary-amd64");
    fs::create_dir_all(&index).unwrap();
    let text = format!(
        "Package: other\nFilename: pool/main/other_1_amd64.deb\nSHA256: 0\n\nPackage: libamdhip64-2\nVersion: 1.1-1\n\
         Filename: pool/main/libamdhip64-2_1.1-1_amd64.deb\nSHA256: {}\n",
        sha256(&new)
    );
    fs::write(index.join("Packages"), text).unwrap();
    succeed(Command::new("xz").arg(index.join("Packages")));

    let output = mirror.script(&["--pin", "9.2"]).output().unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && rows.lines().count() == 1 && rows.contains("_1.1-1_amd64.deb"),
        "{rows}"
    );
    let (status, text) = mirror.run(&["--pin"]);
    assert_eq!(
        (status, text.contains("forky has no package libdiptych-extra3 any more")),
        (1, true),
        "{text}"
    );
    mirror.table = rows;
    let (status, text) = mirror.run(&[]);
    assert_eq!(status, 0, "{text}");
    assert!(mirror.to().join("9.2/run").is_file());
}

/// A program that says where its libc and the HIP library are, then does so again in a new process.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    void *library = dlopen(getenv("DIPTYCH_HIP_LIBRARY"), RTLD_NOW);
    int (*version)(void) = library ? (int (*)(void))dlsym(library, "version") : 0;
    printf("hip %d\n", version ? version() : -1);
    FILE *maps = fopen("/proc/self/maps", "r");
    for (char line[4096]; fgets(line, sizeof line, maps);)
        if (strstr(line, "libc.so.6") && strstr(line, " r-xp ")) printf("libc %s", strchr(line, '/'));
    fflush(stdout);
    char own[4096] = "";
    if (count > 1 && strcmp(arguments[1], "run") == 0) execl(getenv("ROCM_ROOT_RUN"), "run", arguments[0], (char *)0);
    if (count > 1 && readlink("/proc/self/exe", own, sizeof own - 1) > 0) execl(own, arguments[0], (char *)0);
    return 7;
}
"#;

#[test]
fn programs_run_with_the_root_and_with_either_glibc() {
    if cfg!(not(target_env = "gnu")) {
        return;
    }
    let mut mirror = Mirror::new();
    let [loader, libc] = ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"].map(Path::new);
    if !libc.exists() {
        eprintln!("skipped: no {}", libc.display());
        return;
    }
    let files = [
        ("usr/lib64/ld-linux-x86-64.so.2", Content::File(loader)),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", Content::File(libc)),
    ];
    mirror.add("9.1", "libc", "libc6", "2-1", &files);
    let (status, text) = mirror.run(&["9.1"]);
    assert_eq!(status, 0, "{text}");
    let made = mirror.to().join("9.1");
    let preload = compile(mirror.path(), "preload", "5");
    let program = mirror.path().join("program");
    cc(PROGRAM, &program, &[]);

    let run = |program: &Path, loader: &str, arguments: &[&str]| {
        let mut command = Command::new(made.join("run"));
        command.arg(program).args(arguments).env("VIRTUAL_KFD_LIBRARY", &preload).env("SPEAK", "1");
        command.env("ROCM_ROOT_LOADER", loader).env_remove("DIPTYCH_HIP_LIBRARY").env_remove("LD_PRELOAD");
        outcome(command.output().unwrap())
    };
    let own = format!("libc {}", made.join("lib64/libc.so.6").display());
    for loader in ["own", "system"] {
        let (status, text) = run(&program, loader, &[]);
        assert_eq!(status, 7, "{loader}: {text}");
        assert!(text.contains("loaded preload") && text.contains("hip 1\n"), "{loader}: {text}");
        assert_eq!(text.contains(&own), loader == "own", "{loader}: {text}");
        let (status, text) = run(&program, loader, &["run"]);
        assert_eq!((status, text.matches("hip 1\n").count()), (7, 2), "{loader}, by ROCM_ROOT_RUN: {text}");
        assert_eq!(text.matches(&own).count(), if loader == "own" { 2 } else { 0 }, "{loader}: {text}");
    }

    // The default follows from the versions.
    for (versions, expected) in [("99 99", true), ("0 99", false), ("0 0", false)] {
        fs::write(made.join("glibc"), format!("{versions}\n")).unwrap();
        let (status, text) = run(&program, "", &[]);
        assert_eq!((status, text.contains(&own)), (7, expected), "glibc {versions}: {text}");
    }
    fs::write(made.join("glibc"), "99 0\n").unwrap();
    let (status, text) = run(&program, "", &[]);
    assert_eq!((status, text.contains("this takes glibc 2.99 or later")), (126, true), "{text}");

    // A program that is linked for the root takes its libraries by itself, in processes that it starts too.
    fs::write(made.join("glibc"), "99 99\n").unwrap();
    let link = succeed(Command::new(made.join("run")).arg("--link"));
    let linked = mirror.path().join("linked");
    cc(PROGRAM, &linked, &[link.trim()]);
    let (status, text) = run(&linked, "", &["self"]);
    assert_eq!((status, text.matches(&own).count()), (7, 2), "{text}");
    assert_eq!(text.matches("loaded preload").count(), 2, "{text}");

    let list = succeed(Command::new(made.join("run")).arg("--list").env("ROCM_ROOT_LOADER", "own"));
    assert!(list.contains(&format!("libc.so.6 => {}", made.join("lib64/libc.so.6").display())), "{list}");
}

/// A root never hides a newer library of the system: with the system's glibc, a library that both have is the root's
/// only if the root's glibc is the newer one.
#[test]
fn libraries_of_the_system_are_preferred_where_they_are_newer() {
    let mut mirror = Mirror::new();
    mirror.add(
        "9.1",
        "more",
        "libm6",
        "1-1",
        &[("usr/lib/x86_64-linux-gnu/libm.so.6", Content::Text("old"))],
    );
    assert_eq!(mirror.run(&["9.1"]).0, 0);
    let made = mirror.to().join("9.1");
    for (versions, from_root) in [("0 0", false), ("0 99", true)] {
        fs::write(made.join("glibc"), format!("{versions}\n")).unwrap();
        let link = succeed(Command::new(made.join("run")).arg("--link").env("ROCM_ROOT_LOADER", "system"));
        let has = |folder: &str| link.contains(made.join(folder).to_str().unwrap());
        assert_eq!(
            (has("more/libm6"), has("more/libdiptych-extra3")),
            (from_root, true),
            "{versions}: {link}"
        );
    }
}

#[test]
fn wrong_use_of_the_launcher() {
    let mirror = Mirror::new();
    assert_eq!(mirror.run(&["9.2"]).0, 0);
    let run = mirror.to().join("9.2/run");
    assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o111, 0o111);
    for (arguments, status, message) in [
        (&["--help"][..], 0, "usage: run PROGRAM"),
        (&[], 2, "usage: run PROGRAM"),
        (&["--no-such-option"], 2, "usage: run PROGRAM"),
        (&["no-such-program"], 127, "no such program: no-such-program"),
    ] {
        let (found, text) = outcome(Command::new(&run).args(arguments).output().unwrap());
        assert_eq!((found, text.contains(message)), (status, true), "{arguments:?}: {text}");
    }
}
