//! The profile of a device: its properties, the tuning of its class, and the routes that it uses.

use super::candidates::CANDIDATES;
use super::tiles::{Fragment, Streamed, Tiles};
use super::tuning::{EMULATED_NARROW, Narrow, SMALL_STREAMED, Tuning};
use crate::arch::{ArchClass, Caps, MatrixShape, MatrixTypes};
use crate::route::Route;
use ggml_core::DType;
use ggml_core::precision::Precision;
use ggml_core::routes::{Chosen, Used};

/// Device properties and tuning, as seen by operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Capabilities of the device.
    pub caps: Caps,
    /// Tuning of the device's class.
    pub tuning: Tuning,
    /// The routes that the device uses. Kernels are chosen by them, not by the capabilities.
    pub routes: Used<Route>,
    /// Values in the tuning that are not those of the class.
    pub candidates: Chosen,
}

impl Profile {
    /// Creates the profile of a device that uses every route it is capable of.
    pub fn new(caps: Caps) -> Profile {
        let tuning = Tuning::of(caps.arch);
        let mut profile = Profile { caps, tuning, routes: Used::none(), candidates: Chosen::default() };
        profile.routes = Used::those(|route| lacks(&profile, route).is_none());
        profile
    }

    /// Returns the profile with other values in the tuning of its class.
    pub(crate) fn tuned(self, candidates: Chosen) -> Profile {
        let tuning = candidates.apply(Tuning::of(self.caps.arch), CANDIDATES);
        Profile { tuning, candidates, ..self }
    }

    /// True if the device uses a route.
    pub fn uses(&self, route: Route) -> bool {
        self.routes.has(route)
    }

    /// Returns the variant that reduces over a work-group: by subgroup arithmetic or workgroup-shared memory.
    pub fn reduction(&self) -> &'static str {
        if self.uses(Route::SubgroupArithmetic) { "subgroup" } else { "lds" }
    }

    /// Returns the cooperative matrix shape used for products, if any.
    pub fn matrix_shape(&self) -> Option<MatrixShape> {
        self.shape_of_units().filter(|_| self.uses(Route::MatrixProducts))
    }

    /// Returns the cooperative matrix shape that the device has for kernels.
    pub(crate) fn shape_of_units(&self) -> Option<MatrixShape> {
        // The shape that all known devices have, and the emulated one.
        let usual = MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 };
        match self.caps.emulated_matrices {
            _ if !self.caps.fp16 => None,
            // Software devices have other shapes.
            false => {
                let rank = |shape: &&MatrixShape| (**shape != usual, shape.m, shape.n, shape.k);
                self.caps.matrices.iter().filter(|s| s.types == usual.types).min_by_key(rank).copied()
            }
            true => Some(usual),
        }
    }

    /// Returns the kernel for few columns on matrix units, if the device uses it.
    pub(crate) fn narrow(&self) -> Option<Narrow> {
        let of_class = if self.caps.emulated_matrices { Some(EMULATED_NARROW) } else { self.tuning.narrow };
        of_class.filter(|_| self.uses(Route::MatrixColumns))
    }

    /// Returns the subgroup size for matrices: 32 where the size can be chosen, because RDNA's units use 32.
    /// `None` if a compiler may choose a size other than the one the tiles are designed for.
    pub(crate) fn matrix_lanes(&self) -> Option<u32> {
        let Caps { subgroup_min, subgroup_max, subgroup_default, subgroup_control, .. } = self.caps;
        let free = subgroup_control && (subgroup_min..=subgroup_max).contains(&32);
        if free { Some(32) } else { Some(subgroup_default).filter(|_| subgroup_min == subgroup_max) }
    }

    /// Returns the tiles of a matrix product with weights of type `dtype`: tiles for matrix units if they are
    /// to be used, byte tiles for integer dot products if the device has them, otherwise the tiles for
    /// `precision` without either.
    pub fn tiles(&self, precision: Precision, dtype: DType) -> Tiles {
        let Tuning { tiles, f16_tiles, int8_tiles, matrix_tiles, expert_tiles, .. } = self.tuning;
        let Tuning { streamed, enough_groups, .. } = self.tuning;
        let fast = precision == Precision::Fast && self.caps.fp16;
        let for_matrices = fast && Fragment::Matrix.takes(dtype) && !matrix_tiles.is_empty();
        if let (true, Some(shape), Some(lanes)) = (for_matrices, self.matrix_shape(), self.matrix_lanes()) {
            // Tiles of 64 x 64 for three of four compute units: smaller tiles are slower because they read
            // much more.
            let enough = self.caps.compute_units.map_or(enough_groups, |units| units * 3 / 4);
            let fragment = if self.caps.emulated_matrices { Fragment::Emulated } else { Fragment::Matrix };
            if fragment.takes(dtype) {
                return Tiles {
                    fragment,
                    tiles: matrix_tiles,
                    of_experts: expert_tiles,
                    enough,
                    lanes,
                    subgroup: self.caps.subgroup_control.then_some(lanes),
                    shape: Some(shape),
                    streamed: match (self.uses(Route::SharedTiles), fragment) {
                        (false, _) => None,
                        (_, Fragment::Emulated) => Some(SMALL_STREAMED),
                        _ if self.caps.small_shared_tiles => Some(SMALL_STREAMED),
                        _ => streamed.map(|s| Streamed { groups: s.groups * self.units(), ..s }),
                    },
                };
            }
        }
        let bytes = self.uses(Route::DotTiles) && precision == Precision::Fast;
        let int8 = bytes && Fragment::Int8.takes(dtype);
        let f16 = fast && !f16_tiles.is_empty();
        let (fragment, tiles) = match dtype {
            _ if int8 => (Fragment::Int8, int8_tiles),
            _ if f16 && Fragment::Packed.takes(dtype) => (Fragment::Packed, int8_tiles),
            _ if f16 && Fragment::F16.takes(dtype) => (Fragment::F16, f16_tiles),
            _ => (Fragment::F32, tiles),
        };
        Tiles {
            fragment,
            tiles,
            of_experts: tiles,
            enough: self.enough_groups(),
            lanes: 1,
            subgroup: None,
            shape: None,
            streamed: None,
        }
    }

    /// Returns the number of compute units, or an approximation if it is unknown.
    pub fn units(&self) -> u64 {
        self.caps.compute_units.unwrap_or(self.tuning.enough_groups / 2).into()
    }

    /// Returns the number of work-groups that keep the device busy: some for each compute unit, or the number of its class
    /// if the driver does not say how many there are.
    pub fn enough_groups(&self) -> u32 {
        let units = self.caps.compute_units.filter(|_| self.caps.arch != ArchClass::Cpu);
        units.map_or(self.tuning.enough_groups, |units| self.tuning.groups_of_unit * units)
    }

    /// Returns the sizes that subgroups of matrix-vector kernels and of attention of few tokens may have, from the smallest
    /// to the largest, and the size that they require.
    pub fn vector_lanes(&self) -> (u32, u32, Option<u32>) {
        let smallest = self.caps.subgroup_min.max(1);
        match self.tuning.vector_lanes {
            Some(lanes) => (lanes, lanes, Some(lanes)),
            None => (smallest, self.caps.subgroup_max.max(smallest), None),
        }
    }

    /// Returns the work-group size for short rows: about one subgroup.
    pub fn wave(&self) -> u32 {
        self.workgroup(self.caps.subgroup_default.clamp(32, 64))
    }

    /// Returns the largest work-group size up to `wanted` that the device allows.
    pub fn workgroup(&self, wanted: u32) -> u32 {
        let most = self.caps.max_invocations.min(self.caps.max_workgroup_size[0]).max(1);
        wanted.min(1 << most.ilog2())
    }
}

/// The reason against matrix units whose shapes do not suit, or are not known.
pub(super) const NO_SHAPES: &str = "the device has no suitable cooperative matrices";

/// Returns what a device lacks for a route, or `None` if it lacks nothing.
pub(super) fn lacks(profile: &Profile, route: Route) -> Option<&'static str> {
    let (Caps { subgroup, .. }, tuning) = (&profile.caps, &profile.tuning);
    let bytes = match (profile.caps.int_dot_signed, subgroup.shuffle) {
        (false, _) => Some("the device has no dot products of bytes"),
        (_, false) => Some("subgroup shuffles are missing or wrong"),
        _ => None,
    };
    match route {
        Route::MatrixProducts => units(profile),
        Route::MatrixAttention | Route::MatrixRows if !subgroup.shuffle || !subgroup.ballot => {
            Some("subgroup shuffles or ballots are missing or wrong")
        }
        Route::MatrixRows if !profile.caps.matrix_rows && !profile.caps.emulated_matrices => {
            Some("the device has no operations on rows of cooperative matrices")
        }
        Route::MatrixAttention | Route::MatrixRows => units(profile),
        Route::SharedTiles if tuning.streamed.is_none() && !profile.caps.small_shared_tiles => {
            Some("no shared tile was measured for devices of its class")
        }
        Route::SharedTiles => units(profile),
        Route::MatrixColumns if tuning.narrow.is_none() && !profile.caps.emulated_matrices => {
            Some("the kernel was not measured on its class")
        }
        Route::MatrixColumns => units(profile).or_else(|| stages(profile)).or_else(|| fragments(profile)),
        Route::DotTiles if tuning.int8_tiles.is_empty() => Some("other tiles are as fast on its class"),
        Route::DotTiles => bytes,
        Route::DotVectors if !subgroup.arithmetic => Some("subgroup arithmetic is missing or wrong"),
        Route::DotVectors if tuning.mat_vec_int8.is_none() => Some("its class computes in F32"),
        Route::DotVectors => bytes,
        Route::StagedWeights => staged(profile, tuning),
        Route::SubgroupArithmetic if !tuning.subgroup_arithmetic => Some("its class gains nothing by it"),
        Route::SubgroupArithmetic if !subgroup.arithmetic => Some("it is missing or wrong"),
        Route::SubgroupArithmetic | Route::ParallelCompilation => None,
    }
}

fn units(profile: &Profile) -> Option<&'static str> {
    match () {
        _ if profile.tuning.matrix_tiles.is_empty() => Some("its class has no tiles for matrix units"),
        _ if !profile.caps.fp16 => Some("shaders cannot compute in F16"),
        _ if profile.shape_of_units().is_none() => Some(NO_SHAPES),
        _ if profile.matrix_lanes().is_none() => Some("the size of its subgroups is not fixed"),
        _ => None,
    }
}

fn staged(profile: &Profile, tuning: &Tuning) -> Option<&'static str> {
    match () {
        _ if tuning.mat_vec_staged.is_none() => Some("its class has too few registers for it"),
        _ => stages(profile),
    }
}

fn stages(profile: &Profile) -> Option<&'static str> {
    match () {
        _ if !profile.caps.shared_views => Some("workgroup-shared memory has one view"),
        _ if profile.caps.subgroup_min != profile.caps.subgroup_max => {
            Some("the size of its subgroups is not fixed")
        }
        _ => None,
    }
}

/// Returns what is missing for matrices whose elements kernels put in their places.
fn fragments(profile: &Profile) -> Option<&'static str> {
    let shape = MatrixShape { m: 16, n: 8, k: 16, types: MatrixTypes::F16F32 };
    match () {
        _ if profile.caps.emulated_matrices => None,
        _ if !profile.caps.matrices.contains(&shape) => {
            Some("the device has no cooperative matrices of 16 x 8 x 16")
        }
        _ if profile.matrix_lanes() != Some(32) => Some("its subgroups do not have 32 lanes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchClass;

    /// Checks the fragment of each class for weights of F16 or Q4_K, and of BF16.
    #[test]
    fn matrix_units_are_used_where_wanted_and_available() {
        let usual = MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 };
        let fragment =
            |caps: &Caps, precision, dtype| Profile::new(caps.clone()).tiles(precision, dtype).fragment;
        for class in ArchClass::ALL {
            let with = |matrices: &[MatrixShape], emulated_matrices| Caps {
                matrices: matrices.to_vec(),
                emulated_matrices,
                fp16: true,
                ..Caps::imagined(class, 64)
            };
            let (exact, fast) = (Precision::Exact, Precision::Fast);
            let units = with(&[usual], false);
            let made_for = ![ArchClass::Cpu, ArchClass::Intel, ArchClass::Other].contains(&class);
            let expected = |dtype| match dtype {
                DType::F16 | DType::Q4_K if made_for => Fragment::Matrix,
                DType::Q4_K if class != ArchClass::Cpu => Fragment::Packed,
                _ => Fragment::F32,
            };
            for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q4_K] {
                assert_eq!(fragment(&units, fast, dtype), expected(dtype), "{class} {dtype}");
                assert_eq!(fragment(&units, exact, dtype), Fragment::F32, "{class} {dtype}");
            }
            let other = MatrixShape { types: MatrixTypes::F16F16, ..usual };
            for caps in [with(&[], false), with(&[other], false)] {
                assert!(fragment(&caps, fast, DType::Q4_K) != Fragment::Matrix, "{class} {caps:?}");
            }
            let profile = Profile::new(units.clone());
            let left_out = Profile { routes: profile.routes.without(Route::MatrixProducts), ..profile };
            assert!(left_out.tiles(fast, DType::Q4_K).fragment != Fragment::Matrix, "{class}");
            let weak = Caps { fp16: false, ..units };
            assert_eq!(fragment(&weak, fast, DType::Q4_K), Fragment::F32, "{class}");
            let emulated = fragment(&with(&[], true), fast, DType::Q8_0);
            assert_eq!(emulated == Fragment::Emulated, made_for, "{class}");
        }
    }
}
