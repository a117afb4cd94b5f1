//! The gates for another program: the libraries that its HIP library would load, the targets inside its code objects,
//! and the gate that blocks a card. Nothing is loaded or run.

mod binary;
mod search;

use super::card::Found;
use super::hip::{self, HipPath, Override};
use super::report::{AccessPath, Gate, Line, State};
use super::{Inspection, ProbeOptions, name, ordered, table, vendor};
use backend_hip::advice::{self, Situation};
use backend_hip::arch::Target;
use backend_hip::installed::{Installation, LibraryFile, Release, installed};
use backend_hip::system::KernelFacts;
use binary::Binary;
use ggml_core::escape::escaped_line;
use ggml_core::{Error, Result};
use search::{Needed, Search};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Report on another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// The file or folder that was named.
    pub path: String,
    /// Its libraries with HIP code objects, each with the gates of every card.
    pub libraries: Vec<ProgramLibrary>,
    /// One sentence for each library and card.
    pub summary: Vec<String>,
}

impl ProgramReport {
    /// True if some library has a card that no gate blocks, or no card was judged.
    pub fn is_free(&self) -> bool {
        let mut cards = self.libraries.iter().flat_map(|library| &library.cards).peekable();
        cards.peek().is_none() || cards.any(|card| card.lines.iter().all(|line| !line.blocks_a_program()))
    }
}

/// Library of another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramLibrary {
    /// Path of the file.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of bundles of code objects.
    pub bundles: usize,
    /// Number of compressed bundles among them, whose targets cannot be read.
    pub compressed: usize,
    /// Targets of the code objects.
    pub targets: Vec<String>,
    /// The reason why not all code objects were read.
    pub unread: Option<String>,
    /// Directories that are searched for the libraries it needs, in order.
    pub search: Vec<String>,
    /// The libraries it needs, and those that AMD's libraries among them need.
    pub needed: Vec<NeededLibrary>,
    /// The gates of each card, or of each target that was named.
    pub cards: Vec<ProgramCard>,
}

/// A library that another library needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeededLibrary {
    /// Its name.
    pub name: String,
    /// Path of the library that needs it.
    pub by: String,
    /// Path of the file that the loader finds.
    pub path: Option<String>,
    /// The rule by which it is found.
    pub how: String,
}

/// The gates of a card for another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramCard {
    /// Name of the card, or of the target that was named.
    pub name: String,
    /// The processor for which code is needed: the one that the runtime reports.
    pub target: String,
    /// The gates.
    pub lines: Vec<Line>,
    /// The gates in one sentence.
    pub summary: String,
}

/// Reports which gates of this machine's cards block another program: a library such as `libggml-hip.so`, or a folder
/// such as Ollama's that contains one. With `targets` ("gfx900"), these are judged in place of the cards. Under another
/// root, `path` is a path below it.
///
/// # Errors
/// [`Error::InvalidArgument`] if there is no library with HIP code objects, its headers are broken, or a target is no name
/// of a processor; [`Error::Io`] if a file that was named cannot be read.
pub fn probe_program(options: &ProbeOptions, path: &Path, targets: &[String]) -> Result<ProgramReport> {
    let inspection = Inspection::new(options)?;
    for target in targets {
        let known =
            Target::parse(target).filter(|known| known.processor == *target && target.starts_with("gfx"));
        known.ok_or_else(|| {
            Error::argument("target", target, "a processor of AMD without modes, such as gfx900")
        })?;
    }
    let path = match inspection.root.is_here() {
        true => std::fs::canonicalize(path).map_err(|e| Error::io(path, e))?,
        false => Path::new("/").join(path),
    };
    let (found, own) = libraries(&inspection, &path)?;
    let libraries: Vec<ProgramLibrary> =
        found.iter().map(|(file, read)| library(&inspection, file, read, &own, targets)).collect();
    let summary = libraries.iter().flat_map(sentences).collect();
    Ok(ProgramReport { path: path.display().to_string(), libraries, summary })
}

fn sentences(library: &ProgramLibrary) -> Vec<String> {
    let file = Path::new(&library.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if library.cards.is_empty() {
        let targets = library.targets.join(", ");
        return vec![format!(
            "{file}: no card of AMD is here; it has code for {targets}; --target judges a processor"
        )];
    }
    library.cards.iter().map(|card| format!("{file}: {}", card.summary)).collect()
}

/// The deepest folder below the named one, and the most files that are looked at.
const DEPTH: usize = 5;
const FILES: usize = 20_000;

/// Libraries with their contents, and folders.
type Libraries = (Vec<(PathBuf, Binary)>, Vec<PathBuf>);

/// Returns the libraries with HIP code objects, and the folders with libraries.
fn libraries(inspection: &Inspection<'_>, path: &Path) -> Result<Libraries> {
    let real = |path: &Path| inspection.root.at(path);
    let nothing = |why: &str| Error::argument("program", path.display(), why);
    if real(path).is_file() {
        let read = binary::read(&real(path))?.ok_or_else(|| nothing("a library (64-bit ELF)"))?;
        if !read.has_code {
            return Err(nothing(
                "a library with HIP code objects; a program often loads one by name: name its libggml-hip.so, or its folder",
            ));
        }
        let file = inspection.root.resolve(path).unwrap_or_else(|| path.into());
        let own = file.parent().map(Path::to_path_buf).into_iter().collect();
        return Ok((vec![(file, read)], own));
    }
    if !real(path).is_dir() {
        return Err(nothing("a file or a folder that exists"));
    }
    let (mut found, mut own, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut folders = vec![(path.to_path_buf(), 0)];
    let mut room = FILES;
    while let Some((folder, depth)) = folders.pop() {
        for name in inspection.root.names(&folder) {
            if room == 0 {
                break;
            }
            room -= 1;
            let entry = folder.join(&name);
            let is_link = inspection.root.below(&entry).is_symlink();
            if real(&entry).is_dir() && !is_link && depth < DEPTH {
                folders.push((entry, depth + 1));
                continue;
            }
            if !name.contains(".so") {
                continue;
            }
            if !own.contains(&folder) {
                own.push(folder.clone());
            }
            let Some(file) = inspection.root.resolve(&entry).filter(|file| seen.insert(file.clone())) else {
                continue;
            };
            // AMD's libraries have code objects too; the question is the program's own.
            if search::is_amd(&name) || !real(&file).is_file() {
                continue;
            }
            // A file that is broken is none of those that would be loaded.
            let read = binary::read(&real(&file)).ok().flatten();
            found.extend(read.filter(|read| read.has_code).map(|read| (file, read)));
        }
    }
    match found.is_empty() {
        true => Err(nothing("a folder with a library that has HIP code objects, such as libggml-hip.so")),
        false => Ok((found, own)),
    }
}

fn library(
    inspection: &Inspection<'_>,
    file: &Path,
    read: &Binary,
    own: &[PathBuf],
    targets: &[String],
) -> ProgramLibrary {
    let path = inspection.hip.environment.get("LD_LIBRARY_PATH").unwrap_or_default();
    let search = Search::new(&inspection.root, path, own.to_vec());
    let needed = search.needed(file, read);
    let program = Program { inspection, read, needed: &needed, runtime: runtime(inspection, &needed) };
    let cards = match targets {
        [] => {
            let found = inspection.found(&Default::default());
            found.iter().filter(|found| found.is_amd()).map(|found| program.card(found)).collect()
        }
        named => named.iter().map(|target| program.target(target)).collect(),
    };
    let text = |path: &Path| path.display().to_string();
    ProgramLibrary {
        path: text(file),
        bytes: read.bytes,
        bundles: read.bundles,
        compressed: read.compressed,
        targets: read.targets.iter().cloned().collect(),
        unread: read.unread.clone(),
        search: search.order(file, read),
        needed: needed
            .iter()
            .map(|library| NeededLibrary {
                name: library.name.clone(),
                by: text(&library.by),
                path: library.path.as_deref().map(text),
                how: library.how.clone(),
            })
            .collect(),
        cards,
    }
}

/// Returns the copy of AMD's runtime that the program loads, by the name that it loads.
fn runtime(inspection: &Inspection<'_>, needed: &[Needed]) -> Option<LibraryFile> {
    let found = needed.iter().find(|library| library.name.starts_with("libamdhip64."))?.found.as_ref()?;
    let options = backend_hip::HipOptions { library: Some(found.clone()), ..inspection.hip.clone() };
    let mut copy = installed(&options).chosen()?.clone();
    // Other names of the copy are of no account: a process has one.
    copy.names = vec![found.clone()];
    Some(copy)
}

/// A program's library, for judging cards.
struct Program<'a> {
    inspection: &'a Inspection<'a>,
    read: &'a Binary,
    needed: &'a [Needed],
    runtime: Option<LibraryFile>,
}

impl Program<'_> {
    /// Judges a card of the system.
    fn card(&self, found: &Found) -> ProgramCard {
        let Inspection { hip, system, .. } = self.inspection;
        let kernel = KernelFacts::read(hip, found.pci().unwrap_or_default());
        let copies: Vec<LibraryFile> = self.runtime.iter().cloned().collect();
        let chosen = copies.first().map(|copy| (0, copy.path.clone()));
        let libraries = Installation { copies, chosen, absent: None };
        let built_in: Vec<String> = self.read.targets.iter().cloned().collect();
        let path = HipPath {
            found,
            options: hip,
            libraries: &libraries,
            kernel: &kernel,
            built_in: &built_in,
            refusal: None,
            was_queried: false,
            system,
        };
        let seen = path.seen().unwrap_or_default();
        let rows = path.rows();
        let mut lines = vec![found.hardware()];
        lines.extend(found.kernel_driver(&kernel));
        lines.extend(found.nodes(system));
        lines.extend([found.firmware(&kernel, &rows), path.recognition(&rows)]);
        lines.retain(|line| line.way != AccessPath::Vulkan);
        let overridden = match path.overridden() {
            Some(Override::Target(setting, _)) => format!(" with {setting}"),
            _ => String::new(),
        };
        let name = name(found);
        let target = if seen.is_empty() { name.clone() } else { seen };
        self.judge(name, &target, &overridden, lines)
    }

    /// Judges a target that no card is here for.
    fn target(&self, target: &str) -> ProgramCard {
        let hip = self.release().and_then(Release::hip);
        let situation = Situation { target: target.into(), hip, ..Situation::default() };
        let rows = advice::known(&situation).filter(|row| !row.is_of_kernel());
        let mut line =
            Line::new(Gate::Hardware, AccessPath::Hip, State::Unknown, format!("{target}, as it was named"));
        line = line.with(rows.map(|row| row.text()));
        self.judge(target.into(), target, "", vec![line])
    }

    fn release(&self) -> Option<Release> {
        self.runtime.as_ref()?.release.map(|(release, _)| release)
    }

    /// Adds the gates of the program, and the sentence.
    fn judge(&self, name: String, target: &str, overridden: &str, mut lines: Vec<Line>) -> ProgramCard {
        lines.extend([self.runtime_line(), self.vendor_line(target), self.code_line(target)]);
        let lines = ordered(lines);
        let blocks: Vec<&Line> = lines.iter().filter(|line| line.blocks_a_program()).collect();
        let of = |line: &Line| {
            let cause = line.cause.clone().unwrap_or_else(|| line.evidence.clone());
            format!("{} ({cause})", line.gate.name())
        };
        let summary = match blocks.as_slice() {
            [] => format!("no gate that files show blocks {target}{overridden}"),
            blocks => {
                let causes: Vec<String> = blocks.iter().map(|line| of(line)).collect();
                let cure = blocks.iter().find_map(|line| line.cure.clone());
                let cure = cure.map_or(String::new(), |cure| format!("; {cure}"));
                format!("{target}{overridden} is blocked by {}{cure}", causes.join(", and by "))
            }
        };
        ProgramCard { name, target: target.into(), lines, summary }
    }

    /// Returns the line of the libraries that the loader does or does not find.
    fn runtime_line(&self) -> Line {
        let line = |state, text: String| Line::new(Gate::Runtime, AccessPath::Hip, state, text);
        let missing: Vec<&Needed> = self.needed.iter().filter(|library| library.path.is_none()).collect();
        let release = match &self.runtime {
            Some(copy) => copy.describe(),
            None => "no libamdhip64 is loaded".into(),
        };
        if let [first, ..] = missing.as_slice() {
            let names: Vec<&str> = missing.iter().map(|library| library.name.as_str()).collect();
            let text = format!("not found: {} (needed by {})", names.join(", "), first.by.display());
            return line(State::Blocks, format!("{text}; {release}")).because(
                format!("{} {} not found", names.join(", "), if names.len() == 1 { "is" } else { "are" }),
                "install what is missing, or set LD_LIBRARY_PATH to its folder",
            );
        }
        if let Some(bent) = self.runtime.as_ref().and_then(LibraryFile::redirected_name) {
            let cause = format!("{} leads to another major version than its name says", bent.display());
            return line(State::Blocks, format!("{release}, found as {}", bent.display()))
                .because(cause, hip::RIGHT);
        }
        if let Some((copy, (what, other))) =
            self.runtime.as_ref().and_then(|copy| Some((copy, copy.contradicts?)))
        {
            let text = format!("{}, but {other} by {what}: files of two releases are mixed", copy.describe());
            return line(State::Unknown, text);
        }
        let doubtful = self.needed.iter().find(|library| library.how.starts_with("the program's own"));
        match doubtful {
            Some(library) => {
                line(State::Unknown, format!("{release}; {} lies in {}", library.name, library.how))
            }
            None if self.runtime.is_none() => line(State::Unknown, release),
            None => line(State::Allows, release),
        }
    }

    /// Returns the line of rocBLAS's files for the target, if the program loads rocBLAS.
    fn vendor_line(&self, target: &str) -> Line {
        let line = |state, text: String| Line::new(Gate::VendorFiles, AccessPath::Hip, state, text);
        let Some(processor) = Target::parse(target).map(|target| target.processor) else {
            return line(State::Unknown, "the processor is unknown".into());
        };
        let rocblas = self.needed.iter().find(|library| library.name.starts_with("librocblas"));
        let Some(rocblas) = rocblas else {
            return line(
                State::Allows,
                "it does not load rocBLAS, whose files depend on the processor".into(),
            );
        };
        let Some(folder) = rocblas.path.as_ref().and_then(|path| path.parent()) else {
            return line(State::Unknown, format!("{} is not found", rocblas.name));
        };
        let folders = [folder.to_path_buf()];
        let shipped = vendor::shipped(&self.inspection.root, &processor, &folders);
        let Some(files) = shipped.iter().find(|shipped| shipped.library == "rocBLAS") else {
            let text = format!("{} has no folder rocblas/library beside it", folder.display());
            return line(State::Unknown, text);
        };
        let text = files.describe();
        if files.own > 0 {
            return line(State::Allows, format!("for {target}, {text}"));
        }
        line(State::Blocks, format!("for {target}, {text}")).because(
            format!("rocBLAS has no files for {target}"),
            format!(
                "use a release of rocBLAS that has files for {target}, or another driver: --backend vulkan"
            ),
        )
    }

    /// Returns the line of the code objects.
    fn code_line(&self, target: &str) -> Line {
        let line = |state, text: String| Line::new(Gate::Code, AccessPath::Hip, state, text);
        let Some(processor) = Target::parse(target) else {
            return line(State::Unknown, "the processor is unknown".into());
        };
        let targets = self.read.targets.iter().map(String::as_str);
        let all = self.read.targets.iter().cloned().collect::<Vec<_>>().join(", ");
        // The modes of the card are not known here; consumer cards do not retry page faults.
        let fits = |code: Target| code.processor == processor.processor && code.xnack != Some(true);
        if let Some(own) = targets.clone().find(|name| Target::parse(name).is_some_and(fits)) {
            return line(State::Allows, format!("its code objects for {own} fit (of {all})"));
        }
        if let Some(generic) = targets.clone().find(|name| is_generic_for(name, &processor.processor)) {
            let text = format!("its code objects for {generic} fit (of {all}), from ROCm 6.4 on");
            let state = match self.release() {
                Some(Release { major, minor, .. }) if (major, minor.unwrap_or(u32::MAX)) < (6, 4) => {
                    State::Blocks
                }
                Some(_) => State::Allows,
                None => State::Unknown,
            };
            return line(state, text);
        }
        if self.read.targets.contains("amdgcnspirv") {
            let text =
                format!("no code object for {target}; its SPIR-V is compiled by a runtime from ROCm 7 on");
            return line(State::Unknown, text);
        }
        if self.read.compressed > 0 || self.read.unread.is_some() {
            let text = format!("not all of its code objects can be read; those that can are for {all}");
            return line(State::Unknown, text);
        }
        let text = format!(
            "no code object for {target} (has {all}): its first kernel fails with \"invalid device function\""
        );
        line(State::Blocks, text).because(
            format!("no code for {target} among its targets: {all}"),
            format!("use a build for {target}, or another driver: --backend vulkan"),
        )
    }
}

/// Processors of LLVM's generic targets.
const GENERIC: &[(&str, &[&str])] = &[
    ("gfx9-generic", &["gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"]),
    ("gfx9-4-generic", &["gfx940", "gfx941", "gfx942", "gfx950"]),
    ("gfx10-1-generic", &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ("gfx10-3-generic", &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    (
        "gfx11-generic",
        &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"],
    ),
    ("gfx12-generic", &["gfx1200", "gfx1201"]),
];

fn is_generic_for(name: &str, processor: &str) -> bool {
    let base = name.split(':').next().unwrap_or(name);
    GENERIC.iter().any(|(generic, processors)| *generic == base && processors.contains(&processor))
}

/// Formats the report for a terminal of 100 columns.
pub fn program_table(report: &ProgramReport) -> String {
    let mut out = String::new();
    for library in &report.libraries {
        let _ = writeln!(out, "{}", escaped_line(&library.path));
        let compressed = match library.compressed {
            0 => String::new(),
            count => format!(", {count} of them compressed, whose targets cannot be read"),
        };
        let targets = if library.targets.is_empty() { "none".into() } else { library.targets.join(", ") };
        let code = format!("{targets} ({} bundles{compressed})", library.bundles);
        table::wrapped(&mut out, "  code objects for ", &code, 19);
        if let Some(why) = &library.unread {
            table::wrapped(&mut out, "  not read further: ", why, 20);
        }
        table::wrapped(&mut out, "  libraries from ", &library.search.join(", then "), 17);
        for needed in &library.needed {
            let place = needed.path.as_deref().unwrap_or("NOT FOUND");
            let by = if needed.by == library.path { String::new() } else { format!(" for {}", needed.by) };
            let how = if needed.path.is_some() { format!(" ({})", needed.how) } else { String::new() };
            table::wrapped(&mut out, &format!("    {:<24} ", needed.name), &format!("{place}{how}{by}"), 29);
        }
        for card in &library.cards {
            let _ = writeln!(out, "\n{}", escaped_line(&card.name));
            card.lines.iter().for_each(|line| table::write_line(&mut out, line));
        }
        out.push('\n');
    }
    report.summary.iter().for_each(|sentence| table::wrapped(&mut out, "", sentence, 0));
    out
}

#[cfg(test)]
pub(super) mod tests {
    pub(in crate::probe) use super::binary::tests::{code, library};
}
