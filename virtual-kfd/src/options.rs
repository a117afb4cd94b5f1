//! Options of a virtual machine, and their text in environment variables.

use crate::card::{CARDS, Card};
use crate::inject::Fault;
use std::path::PathBuf;
use virtual_gpu::Checks;

/// Most cards of one machine: each has a page of doorbells.
pub const MOST_CARDS: usize = 16;
/// Newest minor version of the interface that is known.
pub const NEWEST: u32 = 18;

/// Options of a virtual machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its cards, in the order of the topology.
    pub cards: Vec<Card>,
    /// Minor version of the interface of `/dev/kfd` (1.x): what it has, and what is refused.
    pub minor: u32,
    /// True if the kernel shares the process's memory with cards (`CONFIG_HSA_AMD_SVM`), from version 1.5 on.
    pub svm: bool,
    /// Checks of the processor, beside that of every address.
    pub checks: Checks,
    /// Most instructions of one wavefront, after which the card counts as hung.
    pub max_instructions: u64,
    /// Report accesses behind the bytes that a program asked for (`hipMalloc`), not only behind those that the driver
    /// allocates for it.
    pub overruns: bool,
    /// Seed of what registers, LDS and scratch contain when a kernel starts, and of the order of wavefronts.
    pub seed: u64,
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// File to which each ioctl and packet is appended, `-` for standard error.
    pub log: Option<PathBuf>,
    /// File for the counts, written when the machine ends, `-` for standard error.
    pub counts: Option<PathBuf>,
}

impl Default for Options {
    /// One MI50 under version 1.17, all checks but three: those of misaligned LDS and of the ranges of buffers, because
    /// hardware defines both accesses, and rocBLAS's kernels read beyond their buffers to get zeros; and that of the order of
    /// accesses to memory, which takes time, and which programs that store the same value twice do not mean.
    fn default() -> Options {
        let processor = virtual_gpu::Options::default();
        Options {
            cards: vec![Card::default()],
            minor: 17,
            svm: true,
            checks: Checks { ranges: false, order: false, ..processor.checks },
            max_instructions: processor.max_instructions,
            overruns: false,
            seed: processor.seed,
            faults: Vec::new(),
            log: None,
            counts: None,
        }
    }
}

/// An option that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Variable.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// Values that it takes.
    pub wanted: String,
}

impl std::fmt::Display for OptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}: expected {}", self.variable, self.value, self.wanted)
    }
}

impl std::error::Error for OptionError {}

impl Options {
    /// Returns true if the kernel has shared virtual memory.
    pub fn has_svm(&self) -> bool {
        self.svm && self.minor >= 5
    }

    /// Reads the variables `VIRTUAL_KFD_*` of the environment.
    ///
    /// # Errors A value that the variable does not take.
    pub fn from_environment() -> Result<Options, OptionError> {
        Options::from_variables(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads the options from variables:
    ///
    /// | variable | meaning |
    /// | --- | --- |
    /// | `VIRTUAL_KFD_CARDS` | names of [`CARDS`], with commas: `mi50,vega56` |
    /// | `VIRTUAL_KFD_ABI` | version of the interface: `1.3` to `1.18` |
    /// | `VIRTUAL_KFD_SVM` | 0: a kernel without shared virtual memory |
    /// | `VIRTUAL_KFD_MEMORY` | MiB of memory of every card |
    /// | `VIRTUAL_KFD_COPY_ENGINES` | copy engines of every card: 0 to 8 |
    /// | `VIRTUAL_KFD_LARGE_BAR` | 1: the processor reaches all memory of a card |
    /// | `VIRTUAL_KFD_SRAM_ECC` | 1: cards with error correction |
    /// | `VIRTUAL_KFD_CHECKS` | `none`, `default` or `all` |
    /// | `VIRTUAL_KFD_OVERRUNS` | 1: accesses behind what the program asked for are errors |
    /// | `VIRTUAL_KFD_SEED` | a number |
    /// | `VIRTUAL_KFD_FAULT` | see [`Fault`] |
    /// | `VIRTUAL_KFD_LOG` | file for ioctls and packets, `-` for standard error |
    /// | `VIRTUAL_KFD_COUNTS` | file for the counts, `-` for standard error |
    ///
    /// # Errors A value that the variable does not take.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Options, OptionError> {
        let read = Reader { get: &get };
        let mut options = Options::default();
        if let Some(cards) = read.parse("CARDS", &card_names(), cards)? {
            options.cards = cards;
        }
        if let Some(minor) = read.parse("ABI", &format!("1.0 to 1.{NEWEST}"), minor)? {
            options.minor = minor;
        }
        options.svm = read.parse("SVM", "0 or 1", switch)?.unwrap_or(options.svm);
        let number = |text: &str, most: u64| text.parse().ok().filter(|&n: &u64| n <= most);
        let memory =
            read.parse("MEMORY", "MiB of memory, 1 to 1048576", |t| number(t, 1 << 20).filter(|&n| n > 0))?;
        let engines = read.parse("COPY_ENGINES", "0 to 8", |t| number(t, 8))?;
        let large_bar = read.parse("LARGE_BAR", "0 or 1", switch)?;
        let sram_ecc = read.parse("SRAM_ECC", "0 or 1", switch)?;
        for card in &mut options.cards {
            card.memory = memory.map_or(card.memory, |n| n << 20);
            card.copy_engines = engines.map_or(card.copy_engines, |n| n as u32);
            if engines == Some(0) {
                card.link_engines = 0;
            }
            card.large_bar = large_bar.unwrap_or(card.large_bar);
            card.sram_ecc = sram_ecc.unwrap_or(card.sram_ecc);
        }
        if let Some(checks) = read.parse("CHECKS", CHECKS, checks)? {
            options.checks = checks;
        }
        options.overruns = read.parse("OVERRUNS", "0 or 1", switch)?.unwrap_or(options.overruns);
        let seed = read.parse("SEED", "a number", |text| text.parse().ok())?;
        options.seed = seed.unwrap_or(options.seed);
        if let Some(faults) = read.parse("FAULT", Fault::WANTED, Fault::read_all)? {
            options.faults = faults;
        }
        options.log = read.parse("LOG", "a file, or -", path)?;
        options.counts = read.parse("COUNTS", "a file, or -", path)?;
        Ok(options)
    }
}

struct Reader<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    /// Reads a variable that may be unset or empty.
    fn parse<T>(
        &self,
        name: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, OptionError> {
        let variable = format!("VIRTUAL_KFD_{name}");
        let Some(value) = (self.get)(&variable).filter(|v| !v.is_empty()) else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(OptionError { variable, value, wanted: wanted.into() }),
        }
    }
}

fn card_names() -> String {
    let names: Vec<&str> = CARDS.iter().map(|c| c.name).collect();
    format!("up to {MOST_CARDS} of {}, with commas", names.join(", "))
}

fn cards(text: &str) -> Option<Vec<Card>> {
    let cards: Option<Vec<Card>> = text.split(',').map(Card::find).collect();
    cards.filter(|c| c.len() <= MOST_CARDS)
}

fn minor(text: &str) -> Option<u32> {
    text.strip_prefix("1.")?.parse().ok().filter(|&n| n <= NEWEST)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Values of the option for checks.
const CHECKS: &str = "none, default, all, or some of races, uninitialised, alignment, barriers, waits, ranges, order with commas";

fn checks(text: &str) -> Option<Checks> {
    if text == "default" { Some(Options::default().checks) } else { Checks::parse(text) }
}

fn path(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Options, OptionError> {
        let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_string());
        Options::from_variables(find)
    }

    #[test]
    fn variables_are_read() {
        let options = read(&[
            ("VIRTUAL_KFD_CARDS", "mi50,vega56"),
            ("VIRTUAL_KFD_ABI", "1.8"),
            ("VIRTUAL_KFD_MEMORY", "512"),
            ("VIRTUAL_KFD_LARGE_BAR", "1"),
            ("VIRTUAL_KFD_COPY_ENGINES", "0"),
            ("VIRTUAL_KFD_CHECKS", "none"),
            ("VIRTUAL_KFD_LOG", ""),
        ])
        .unwrap();
        assert_eq!(options.cards.iter().map(|c| c.target_version()).collect::<Vec<_>>(), [90006, 90000]);
        assert!(options.cards.iter().all(|c| c.memory == 512 << 20 && c.large_bar && c.copy_engines == 0));
        assert_eq!((options.minor, options.checks, options.log), (8, Checks::NONE, None));
    }

    #[test]
    fn checks_are_named_one_by_one_or_together() {
        let checks = |text| read(&[("VIRTUAL_KFD_CHECKS", text)]).unwrap().checks;
        let some = Checks { races: true, waits: true, ..Checks::NONE };
        assert_eq!(checks("races,waits"), some);
        assert_eq!(checks("races,uninitialised,alignment,barriers,waits,ranges,order"), Checks::ALL);
        assert_eq!(checks("default"), checks("races,uninitialised,barriers,waits"));
        assert_eq!(checks("default"), Options::default().checks);
    }

    #[test]
    fn wrong_values_say_what_is_expected() {
        for (name, value, words) in [
            (
                "CARDS",
                "mi50,rx580",
                "mi50, radeon-vii, vega56, vega64, mi25, mi210, mi250, mi300x, rx7900xtx, strix-halo",
            ),
            ("ABI", "2.1", "1.0 to 1.18"),
            ("ABI", "1.19", "1.0 to 1.18"),
            ("MEMORY", "0", "MiB"),
            ("LARGE_BAR", "yes", "0 or 1"),
            ("OVERRUNS", "2", "0 or 1"),
            ("CHECKS", "some", "none, default, all, or some of races"),
            ("CHECKS", "races,none", "with commas"),
            ("FAULT", "dispatch:0:hang", "dispatch"),
        ] {
            let variable = format!("VIRTUAL_KFD_{name}");
            let error = read(&[(&variable, value)]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{variable}={value}: expected")) && error.contains(words),
                "{error}"
            );
        }
    }
}
