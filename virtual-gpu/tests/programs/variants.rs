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

/// Returns the levels for combination number `at` of `count` combinations of target and wavefront. Together, those of a
/// source have all four levels: one each where four or more can run it.
fn levels(source: Source, at: usize, count: usize) -> impl Iterator<Item = &'static str> {
    let all = std::env::var(VARIABLE).is_ok_and(|v| v == "all");
    let each = if all { LEVELS.len() } else { LEVELS.len().div_ceil(count) };
    (0..each).map(move |n| LEVELS[(at * each + n + source.name.len()) % LEVELS.len()])
}

/// Runs a check on every target and size of a wavefront. The combinations divide the levels of optimisation between
/// them, or have all four with `DIPTYCH_TEST_PROGRAMS=all`.
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
    let wanted = Target::ALL.into_iter().filter(|target| wanted(Units::of(*target)));
    let combinations: Vec<(Target, usize, &str)> = wanted
        .flat_map(|target| {
            Units::of(target).waves().iter().map(move |&(wave, option)| (target, wave, option))
        })
        .collect();
    for (at, &(target, wave, option)) in combinations.iter().enumerate() {
        for level in levels(source, at, combinations.len()) {
            run(source, target, wave, &format!("{level} {option} {more}"), &check);
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
fn every_source_has_all_levels() {
    for &source in super::SOURCES {
        for count in [2, 4, 8] {
            let mut all: Vec<&str> = (0..count).flat_map(|at| levels(source, at, count)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all, ["-O0", "-O1", "-O3", "-Os"], "{}, {count} combinations", source.name);
        }
    }
}
