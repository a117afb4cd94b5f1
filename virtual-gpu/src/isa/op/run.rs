//! Functions of operations, compiled in two variants: [`valu!`] makes a [`Row`](crate::isa::Row) of each formula.

use super::lanes::{Results, Sources};

/// Function of an operation: compiled for any host, and for one with wide vectors.
///
/// Without FMA, a fused multiply-add calls a C library function for each lane: correct but slow.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) any: fn(&Sources<'_>, &mut Results),
    #[cfg(target_arch = "x86_64")]
    pub(crate) wide: unsafe fn(&Sources<'_>, &mut Results),
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Run")
    }
}

/// Makes a [`Run`] of a formula over sources and results.
macro_rules! run {
    (|$sources:ident, $results:ident| $body:block) => {{
        use $crate::isa::op::lanes::{Results, Sources};
        use $crate::isa::op::run::Run;
        #[inline(always)]
        fn formula($sources: &Sources<'_>, $results: &mut Results) $body
        fn any(sources: &Sources<'_>, results: &mut Results) {
            formula(sources, results);
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn wide(sources: &Sources<'_>, results: &mut Results) {
            formula(sources, results);
        }
        Run {
            any,
            #[cfg(target_arch = "x86_64")]
            wide,
        }
    }};
}
pub(crate) use run;

/// Defines operations of the vector unit.
///
/// A row is `name (sources) -> result { formula }`, optionally followed by flags in brackets. Formulas may use `mode`
/// and `lane`.
macro_rules! valu {
    (
        $mode:ident, $lane:ident;
        $( $name:ident ($($a:ident : $t:ty),*) -> $r:ty $body:block $([$($flag:ident)*])? )*
    ) => {$(
        #[allow(unused_variables, unused_mut, unused_assignments)]
        pub(crate) static $name: $crate::isa::Row = $crate::isa::Row {
            name: stringify!($name),
            dst: <$r as $crate::isa::op::lanes::Output>::KIND,
            carry_out: <$r as $crate::isa::op::lanes::Output>::CARRY,
            src: $crate::isa::op::lanes::kinds(&[$(<$t as $crate::isa::op::lanes::Source>::KIND),*]),
            flags: 0 $($(| $crate::isa::flag::$flag)*)?,
            run: $crate::isa::op::run::run!(|sources, results| {
                let $mode = sources.mode;
                for chunk in 0..sources.chunks {
                    let (from, mut to) = (sources.part(chunk), results.part(chunk));
                    for at in 0..$crate::isa::op::lanes::CHUNK {
                        let $lane = $crate::isa::op::lanes::CHUNK * chunk + at;
                        let mut n = 0;
                        $(
                            let $a = <$t as $crate::isa::op::lanes::Source>::get(&from, n, at);
                            n += 1;
                        )*
                        let result: $r = $body;
                        $crate::isa::op::lanes::Output::set(result, &mut to, at);
                    }
                }
            }),
        };
    )*};
}
pub(crate) use valu;
