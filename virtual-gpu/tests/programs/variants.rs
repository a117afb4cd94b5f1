//! Combinations of target, size of a wavefront and level of optimisation that the programs run in.

use crate::programs::{PRELUDE, Source};
use crate::support::{Session, compile};
use std::ops::Deref;
use virtual_gpu::Target;

/// Levels of optimisation.
const LEVELS: [&str; 4] = ["-O0", "-O3", "-O1", "-Os"];

/// Variable that runs every combination if it is `all`.
const VARIABLE: &str = "DIPTYCH_TEST_PROGRAMS";

/// A loaded source, compiled in one way.
pub(super) struct Program {
    session: Session,
    /// Lanes of a wavefront.
    pub(super) wave: usize,
    /// Instructions beyond those of all targets.
    pub(super) units: Units,
}

/// Instructions that decide which kernels a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Units {
    /// GFX9 without matrix instructions.
    Gfx9,
    /// GFX9 with MFMA, single-precision ones of two and atomic additions of floats.
    Cdna {
        /// True for the integer matrix instructions of gfx940 and later.
        wide_integers: bool,
    },
    /// GFX10: moves by rows, no matrix instruction.
    Gfx10,
    /// GFX11: WMMA.
    Gfx11,
}

impl Units {
    /// Returns those of a target. A generation that has no line here is not covered.
    fn of(target: Target) -> Units {
        match target.name() {
            "gfx900" | "gfx906" => Units::Gfx9,
            "gfx90a" => Units::Cdna { wide_integers: false },
            "gfx942" => Units::Cdna { wide_integers: true },
            name if name.starts_with("gfx10") => Units::Gfx10,
            name if name.starts_with("gfx11") => Units::Gfx11,
            name => panic!("the programs do not know the instructions of {name}: add it to Units::of"),
        }
    }

    /// Sizes of a wavefront, the compiler's default first, with the option that selects it.
    fn waves(self) -> &'static [(usize, &'static str)] {
        match self {
            Units::Gfx9 | Units::Cdna { .. } => &[(64, "")],
            Units::Gfx10 | Units::Gfx11 => &[(32, ""), (64, "-mwavefrontsize64")],
        }
    }

    /// Returns true if it is GFX9, whose wavefronts move by rows and as a whole.
    pub(super) fn is_gfx9(self) -> bool {
        matches!(self, Units::Gfx9 | Units::Cdna { .. })
    }
}

impl Deref for Program {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// Returns the levels for combination number `at` of a source. Two neighbours have all four: gfx900 and gfx906,
/// both sizes of a wavefront of one target.
fn levels(source: Source, at: usize) -> &'static [&'static str] {
    if std::env::var(VARIABLE).is_ok_and(|v| v == "all") {
        return &LEVELS;
    }
    &LEVELS[(at + source.name.len()) % 2 * 2..][..2]
}

/// Runs a check on every target and size of a wavefront. Each combination has two levels of optimisation, or all
/// four with `DIPTYCH_TEST_PROGRAMS=all`.
pub(super) fn everywhere(source: Source, check: impl Fn(&Program)) {
    everywhere_with(source, "", check);
}

/// As [`everywhere`] with more options of the compiler.
pub(super) fn everywhere_with(source: Source, more: &str, check: impl Fn(&Program)) {
    where_units(source, |_| true, more, check);
}

/// As [`everywhere_with`], on the targets with some units only: a source that the others cannot compile.
pub(super) fn where_units(
    source: Source,
    wanted: impl Fn(Units) -> bool,
    more: &str,
    check: impl Fn(&Program),
) {
    let targets = Target::ALL.into_iter().enumerate();
    for (number, target) in targets.filter(|&(_, target)| wanted(Units::of(target))) {
        for (mode, &(wave, option)) in Units::of(target).waves().iter().enumerate() {
            for level in levels(source, number + mode) {
                run(source, target, wave, &format!("{level} {option} {more}"), &check);
            }
        }
    }
}

/// As [`everywhere`], and once more with so few registers that most values are spilled to scratch.
pub(super) fn everywhere_spilling(source: Source, check: impl Fn(&Program)) {
    everywhere(source, &check);
    for target in Target::ALL {
        let wave = Units::of(target).waves()[0].0;
        run(source, target, wave, "-O3 -DFEW_REGISTERS", &check);
    }
}

fn run(source: Source, target: Target, wave: usize, options: &str, check: impl Fn(&Program)) {
    let options: Vec<&str> = options.split_whitespace().chain(source.options.split_whitespace()).collect();
    let options = options.join(" ");
    let object = compile::hip(target, &options, &format!("{PRELUDE}\n{}", source.text));
    let label = format!("{} {options}", source.name);
    let session = Session::new(target, &label, &object);
    check(&Program { session, wave, units: Units::of(target) });
}

#[test]
fn neighbours_have_all_levels() {
    for &source in super::SOURCES {
        let mut both = [levels(source, 0), levels(source, 1)].concat();
        both.sort_unstable();
        both.dedup();
        assert_eq!(both, ["-O0", "-O1", "-O3", "-Os"], "{}", source.name);
    }
}
