//! AMD's own files for a card: firmware of the kernel's driver, and the libraries that other programs use. Diptych's
//! code for the card is another matter: [`Gate::Code`].

use super::report::{AccessPath, Gate, Line, State};
use backend_hip::installed::Installation;
use ggml_core::files::Root;
use std::path::{Path, PathBuf};

/// The most names of a folder that are read.
const NAMES: usize = 50_000;

/// Folders that contain a runtime's libraries, beside those that were found.
const FOLDERS: &[&str] =
    &["/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Prefixes of the firmware of processors whose files have other names than the processor. From gfx11 on the prefix is the
/// version of the graphics block, which is that of the processor but for gfx1101 and gfx1103.
/// Source: amdgpu, `MODULE_FIRMWARE` of gfx_v8_0.c to gfx_v10_0.c; versions and processors in kfd_device.c.
const CHIPS: &[(&str, &[&str])] = &[
    ("gfx803", &["fiji", "polaris10", "polaris11", "polaris12", "vegam"]),
    ("gfx900", &["vega10"]),
    ("gfx902", &["raven", "picasso", "raven2"]),
    ("gfx904", &["vega12"]),
    ("gfx906", &["vega20"]),
    ("gfx908", &["arcturus"]),
    ("gfx90a", &["aldebaran"]),
    ("gfx90c", &["renoir", "green_sardine"]),
    ("gfx942", &["gc_9_4_3", "gc_9_4_4"]),
    ("gfx950", &["gc_9_5_0"]),
    ("gfx1010", &["navi10"]),
    ("gfx1011", &["navi12"]),
    ("gfx1012", &["navi14"]),
    ("gfx1030", &["sienna_cichlid"]),
    ("gfx1031", &["navy_flounder"]),
    ("gfx1032", &["dimgrey_cavefish"]),
    ("gfx1033", &["vangogh"]),
    ("gfx1034", &["beige_goby"]),
    ("gfx1035", &["yellow_carp"]),
    ("gfx1036", &["gc_10_3_6", "gc_10_3_7"]),
    ("gfx1101", &["gc_11_0_3"]),
    ("gfx1103", &["gc_11_0_1", "gc_11_0_4"]),
];

/// Returns the folders in which AMD's libraries lie: those of every copy of the runtime, and the usual ones.
pub(super) fn folders(libraries: &Installation) -> Vec<PathBuf> {
    let found = libraries.copies.iter().filter_map(|copy| copy.path.parent().map(Path::to_path_buf));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in found.chain(FOLDERS.iter().map(PathBuf::from)) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Returns the line of the firmware files of the chip's graphics block. `asic` is the kernel's name of it.
pub(super) fn firmware(root: &Root, target: &str, asic: &str) -> Line {
    let folder = ["/lib/firmware/amdgpu", "/usr/lib/firmware/amdgpu"]
        .into_iter()
        .find(|folder| root.at(folder).is_dir());
    let line = |state, text: String| Line::new(Gate::Firmware, AccessPath::Card, state, text);
    let prefixes = prefixes(target, asic);
    let Some(folder) = folder else {
        return line(
            State::Unknown,
            "no folder /lib/firmware/amdgpu: firmware files cannot be listed".into(),
        );
    };
    let names = names(root, Path::new(folder));
    let counted: Vec<String> = prefixes
        .iter()
        .map(|prefix| (prefix, names.iter().filter(|name| is_of(name, prefix)).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(prefix, count)| format!("{count} {prefix}_*"))
        .collect();
    if prefixes.is_empty() {
        return line(State::Unknown, format!("the names of the firmware files of {target} are unknown"));
    }
    match counted.as_slice() {
        [] => line(State::Unknown, format!("{folder} has no files {}_* for {target}", prefixes.join("_*, "))),
        counted => line(State::Allows, format!("firmware files in {folder}: {}", counted.join(", "))),
    }
}

/// True for "vega10_mec.bin.zst" and the prefix "vega10".
fn is_of(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('_'))
}

fn prefixes(target: &str, asic: &str) -> Vec<String> {
    let named = CHIPS.iter().find(|(chip, _)| *chip == target).map(|(_, names)| *names);
    // The kernel's name tells chips of one processor apart ("picasso").
    if let Some(names) = named {
        let own: Vec<String> =
            names.iter().filter(|name| **name == asic).map(|name| name.to_string()).collect();
        return if own.is_empty() { names.iter().map(|name| name.to_string()).collect() } else { own };
    }
    let version = target.strip_prefix("gfx").filter(|digits| digits.len() == 4);
    let block = |digits: &str| {
        let step = u32::from_str_radix(&digits[3..], 16).ok()?;
        Some(format!("gc_{}_{}_{step}", &digits[..2], &digits[2..3]))
    };
    version.filter(|digits| digits.is_ascii()).and_then(block).into_iter().collect()
}

/// Files of a library for a chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shipped {
    /// The library's name.
    pub(super) library: &'static str,
    /// Folder of its files.
    pub(super) folder: PathBuf,
    /// Number of files for the chip, and of all files.
    pub(super) own: usize,
    pub(super) all: usize,
}

impl Shipped {
    pub(super) fn describe(&self) -> String {
        let Shipped { library, folder, own, all } = self;
        format!("{library}: {own} of {all} files in {}", folder.display())
    }
}

/// Counts the files for a chip that lie below folders of libraries.
pub(super) fn shipped(root: &Root, target: &str, folders: &[PathBuf]) -> Vec<Shipped> {
    let mut all = Vec::new();
    for folder in folders {
        let home = folder.parent().unwrap_or(folder);
        let versions = |name: &str| {
            let inner = names(root, &folder.join(name));
            inner
                .into_iter()
                .map(|version| folder.join(name).join(version).join("library"))
                .collect::<Vec<_>>()
        };
        let places = [
            ("rocBLAS", [vec![folder.join("rocblas/library")], versions("rocblas")].concat()),
            ("hipBLASLt", [vec![folder.join("hipblaslt/library")], versions("hipblaslt")].concat()),
            ("MIOpen", vec![home.join("share/miopen/db"), home.join("miopen/db")]),
        ];
        for (library, places) in places {
            for place in places {
                // Of links that lead to one folder, the first is counted.
                let Some(place) = root.resolve(&place).filter(|place| root.below(place).is_dir()) else {
                    continue;
                };
                if all.iter().any(|known: &Shipped| known.folder == place) {
                    continue;
                }
                let names = names(root, &place);
                let own = names.iter().filter(|name| is_for(name, target)).count();
                all.push(Shipped { library, folder: place, own, all: names.len() });
            }
        }
    }
    all.retain(|shipped| shipped.all > 0);
    all
}

/// True for a file's name that contains the target: "TensileLibrary_gfx900.co", and "gfx900_56.HIP.fdb.txt" or
/// "gfx90a68.kdb" of MIOpen, where the number of compute units follows.
fn is_for(name: &str, target: &str) -> bool {
    name.match_indices(target).any(|(at, _)| {
        let rest = &name[at + target.len()..];
        let is_word = !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
        is_word || at == 0 && name.ends_with("db.txt") || at == 0 && name.ends_with(".kdb")
    })
}

/// Returns the line of AMD's files for a chip.
pub(super) fn libraries(root: &Root, target: &str, folders: &[PathBuf]) -> Line {
    let line = |state, text: String| Line::new(Gate::VendorFiles, AccessPath::Hip, state, text);
    let shipped = shipped(root, target, folders);
    let text = shipped.iter().map(Shipped::describe).collect::<Vec<_>>().join("; ");
    let lacking = shipped.iter().find(|shipped| shipped.library == "rocBLAS" && shipped.own == 0);
    let has = shipped.iter().any(|shipped| shipped.library == "rocBLAS" && shipped.own > 0);
    let ours = "Diptych uses none of these";
    match (shipped.is_empty(), lacking.filter(|_| !has)) {
        (true, _) => line(
            State::Unknown,
            format!("no rocBLAS, hipBLASLt or MIOpen was found; only other programs need them, {ours}"),
        ),
        (false, Some(_)) => line(State::Blocks, format!("for {target}, {text}")).with([format!(
            "programs that use rocBLAS fail on this card; {ours}, so this stops no backend here"
        )]),
        (false, None) => line(State::Allows, format!("for {target}, {text}; {ours}")),
    }
}

/// Returns the names in a folder, not more than [`NAMES`].
fn names(root: &Root, folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.at(folder)).into_iter().flatten().flatten().take(NAMES);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for name in
            ["TensileLibrary_gfx900.co", "Kernels.so-000-gfx900-xnack-.hsaco", "gfx900_56.HIP.fdb.txt"]
        {
            assert!(is_for(name, "gfx900"), "{name}");
        }
        assert!(is_for("gfx90a68.HIP.fdb.txt", "gfx90a") && is_for("gfx90878.kdb", "gfx908"));
        for name in ["TensileLibrary_gfx90a.co", "TensileLibrary_gfx9000.co", "gfx906_60.db.txt"] {
            assert!(!is_for(name, "gfx900"), "{name}");
        }
        assert_eq!(prefixes("gfx1151", "ip discovery"), ["gc_11_5_1"]);
        assert_eq!(prefixes("gfx1100", "navi31"), ["gc_11_0_0"]);
        assert_eq!(prefixes("gfx1101", "navi32"), ["gc_11_0_3"]);
        assert_eq!(prefixes("gfx1103", "ip discovery"), ["gc_11_0_1", "gc_11_0_4"]);
        assert_eq!(prefixes("gfx900", "vega10"), ["vega10"]);
        assert_eq!(prefixes("gfx902", "picasso"), ["picasso"]);
        assert_eq!(prefixes("gfx90c", "renoir"), ["renoir"]);
        assert!(prefixes("gfx", "").is_empty() && prefixes("gfx11é", "").is_empty());
        assert!(is_of("vega10_mec.bin", "vega10") && !is_of("vega10x_mec.bin", "vega10"));
    }

    /// The kernel's name tells chips of one processor apart.
    #[test]
    fn firmware_is_that_of_the_chip() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("lib/firmware/amdgpu");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["picasso_mec.bin", "picasso_sdma.bin", "raven_mec.bin"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let line = firmware(&Root::new(dir.path()), "gfx902", "picasso");
        assert_eq!(line.evidence, "firmware files in /lib/firmware/amdgpu: 2 picasso_*");
        let line = firmware(&Root::new(dir.path()), "gfx902", "raven2");
        assert_eq!(
            (line.state, line.evidence.as_str()),
            (State::Unknown, "/lib/firmware/amdgpu has no files raven2_* for gfx902")
        );
    }
}
