//! Tuning: grids and variants of kernels, by family of processors.
//!
//! The register counts behind these choices come from the code objects' metadata (listed in
//! `hip-kernels/RESOURCES.md`). Their effect is LLVM's occupancy: on GCN, 64 vector registers allow four
//! wavefronts on a SIMD, 84 three, 128 two.

use crate::arch::{Dot4, Family, Matrix, Profile};
use ggml_core::DType;
use ggml_core::routes::Candidate;

/// Tile of a matrix product and the kernel that computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of the weights in the tile.
    pub rows: u32,
    /// Columns of the tile.
    pub columns: u32,
    /// Threads of a work-group.
    pub threads: u32,
    /// True if every type of weights has the tile; else only the types that most models use.
    pub of_every_type: bool,
}

/// Compiled tiles, from small to large.
pub const TILES: [Tile; 4] = [
    Tile { rows: 64, columns: 32, threads: 128, of_every_type: true },
    Tile { rows: 64, columns: 64, threads: 256, of_every_type: false },
    Tile { rows: 128, columns: 64, threads: 256, of_every_type: true },
    Tile { rows: 128, columns: 128, threads: 256, of_every_type: false },
];

/// Parameters for a family of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Compute units (work-group processors on RDNA) of a typical card, used if the driver does not report
    /// them.
    pub compute_units: u32,
    /// Wavefronts per SIMD below which the wavefronts of a mat-vec share rows.
    pub vec_waves: u32,
    /// Work-groups of a mat-vec per compute unit that must remain if each work-group processes more rows.
    pub vec_groups: u32,
    /// True if exactly `vec_groups` work-groups per compute unit run at a time: then no more are launched,
    /// and each processes as many rows as needed.
    pub vec_at_once: bool,
    /// True if a token's experts are computed beside each other where their rows do not fill the device, and
    /// summed by a launch of its own.
    pub experts_apart: bool,
    /// Maximum columns of a mat-vec kernel. More columns need several passes over the weights.
    pub vec_columns: u32,
    /// Number of columns from which tiles are used.
    pub tile_from: u32,
    /// Work-groups per compute unit that must remain if a larger tile is used.
    pub tile_groups: u32,
    /// Largest tile, as an index into [`TILES`].
    pub largest_tile: usize,
    /// Products with activations in 8 bits.
    pub int8: Int8,
    /// Largest tile of products with activations in 8 bits.
    pub largest_int8_tile: usize,
    /// Products with activations in F16.
    pub half: Half,
}

/// Products of many columns that use operands in F16 if rounding is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// No products.
    None,
    /// Products with weights in F16, two multiplications per instruction (`v_dot2_f32_f16`). With bytes it is
    /// four per instruction.
    Dot2,
    /// Products with weights in blocks, two multiplications and sums in F16 per instruction (`v_pk_fma_f16`), on targets
    /// without dot products.
    Packed,
    /// All products, with matrix units. On an H200, prompts of 512 tokens are 1.3 times as fast as with bytes
    /// (a model of 0.5 billion Q8_0 weights), 1.6 times (1 billion) and 2.3 times (8 billion, Q4_K). Bytes on
    /// the matrix units (`mma.m16n8k32`) were tried: 0.87 times as fast for 14336 x 4096 x 512 of Q8_0, 0.80
    /// for Q4_K (1.04, 0.97 and 0.90 for the prompts above), because the scales need two instructions per sum
    /// and 32 elements, more than the half of the products that is saved.
    Matrix,
}

impl Half {
    /// Returns true if products of a type use F16, provided that kernels exist.
    pub fn is_used_for(self, dtype: DType) -> bool {
        match self {
            Half::None => false,
            Half::Dot2 => dtype == DType::F16,
            Half::Packed => dtype.is_quantized(),
            Half::Matrix => true,
        }
    }
}

/// F16 tiles of AMD's processors. The large tile needs half of the LDS reads, decodes weights for twice as
/// many columns, and allows two work-groups on a compute unit.
pub const HALF_TILES: [Tile; 2] = [
    Tile { rows: 64, columns: 64, threads: 128, of_every_type: true },
    Tile { rows: 128, columns: 128, threads: 256, of_every_type: true },
];

/// Tile of NVIDIA's matrix units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaTile {
    /// Rows of the weights, columns, and threads of a work-group.
    pub tile: Tile,
    /// LDS of a work-group in bytes: two slices, each with one or two steps of the rows and two of the
    /// columns, 64 halves per step.
    pub lds_bytes: u32,
    /// Cost of a step in the first-level cache, in thousandths of the cost of 64 x 128.
    pub cost: u64,
}

/// Tiles of NVIDIA's matrix units from sm_80 on, from small to large. Per step, 64 rows of Q8_0 need 256
/// accesses to the first-level cache and 64 to store them to LDS, 64 columns need 64 accesses, and the reads
/// of four wavefronts 256, 384 and 512.
pub const MMA_TILES: [MmaTile; 3] =
    [MmaTile::new([64, 2], 64, 770), MmaTile::new([64, 2], 128, 1000), MmaTile::new([128, 1], 128, 1540)];

impl MmaTile {
    const fn new([rows, steps]: [u32; 2], columns: u32, cost: u64) -> MmaTile {
        let tile = Tile { rows, columns, threads: 256, of_every_type: true };
        MmaTile { tile, lds_bytes: 2 * 64 * 2 * (rows * steps + 2 * columns), cost }
    }
}

/// LDS in bytes that a launch may give a work-group on NVIDIA's processors from sm_80 on: the minimum over
/// these processors (CUDA C++ Programming Guide, technical specifications: 99 KiB on 8.6 and 8.9, of which
/// the system uses 1 KiB).
pub const GIVEN_LDS: u32 = 98 << 10;

/// Products that use activations in 8 bits if rounding is allowed.
///
/// Vector instructions of a wavefront (arithmetic, memory, LDS) in the loop of the code objects of gfx906 and
/// gfx900, for a step of 32 elements of k of a 128 x 64 tile; `tests/products.rs` of this crate runs them and
/// counts with the rounding included, as in the column of packed F16 ([`Half::Packed`]):
///
/// | | F32 | dot4 | packed F16 |
/// | --- | --- | --- | --- |
/// | Q8_0 | 1191 | 371 | 709 |
/// | Q4_0 | 1215 | 387 | 712 |
/// | Q4_1, Q5_0, MXFP4 | 1219 .. 1233 | 425, 400, 436 | 759, 726, 744 |
/// | Q5_1, IQ4_NL, IQ4_XS | 1221 .. 1251 | 437, 403, 417 | 772, 740, 755 |
/// | Q4_K | 1252 | 392 | 773 |
/// | Q5_K | 1254 | 400 | 784 |
/// | Q6_K | 1234 | 477 | 800 |
/// | Q2_K, Q3_K | 1253, 1265 | 544, 491 | 877, 814 |
///
/// (The dot4 counts of Q4_K and Q5_K include an eighth of the cost of a block of 256.) In each dot4 count,
/// 256 instructions are dot4. Pairs of 16-bit integers in place of packed F16 took 751 (Q4_0), 821 (Q4_K) and 908 (Q6_K), and
/// could not hold the sums of Q8_0, Q5_K and others.
///
/// Extracting and multiplying bytes one by one needs 1600 instructions and more. For mat-vec with one column,
/// vector instructions per weight in the loop of gfx906's code objects (four rows of 32 elements a lane):
///
/// | | Q8_0 | Q4_0 | Q4_K | Q5_K | Q6_K |
/// | --- | --- | --- | --- | --- | --- |
/// | F32 | 2.3 | 3.0 | 3.5 | 4.0 | 3.9 |
/// | dot4 | 0.7 | 1.1 | 1.7 | 2.2 | 2.0 |
///
/// Rounding and the reduction add about 0.35, if rows have 4096 elements and a work-group has 64 rows. An
/// MI50 reads about 10 bytes per clock and compute unit, and a compute unit executes one instruction of 64
/// lanes in that time. So F32 keeps up with 29 bytes of Q8_0, 12 of Q4_0, 10 of Q4_K and 14 of Q6_K per
/// clock, dot4 with 93, 34, 22 and 27.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int8 {
    /// No products: without the instruction, bytes are slower than F32. Few columns are limited by the unpacking of
    /// weights, not by multiplications: one column of Q8_0 as pairs of 16 bits takes as long as in F32 (212 and 210
    /// instructions for four rows of 16 elements a lane), not counting the rounding.
    None,
    /// All products: four multiplications per instruction.
    Dot4,
}

/// 60 compute units of 4 SIMDs. The tile of 128 x 128 needs 104 to 121 registers, which allows two wavefronts
/// on a SIMD; 512 of the 571 instructions of its loop are products.
///
/// Products of bytes: 128 x 64 needs 106 to 125 registers, two wavefronts, because a thread holds its 32 sums
/// both in integers and in F32. Computing the two halves of a tile one after the other would fit three
/// wavefronts, but reading LDS would take as long as the multiplications.
const GCN: Tuning = Tuning {
    compute_units: 60,
    vec_waves: 2,
    vec_groups: 4,
    vec_at_once: false,
    experts_apart: false,
    vec_columns: 8,
    tile_from: 9,
    tile_groups: 2,
    largest_tile: 3,
    int8: Int8::Dot4,
    largest_int8_tile: 2,
    half: Half::None,
};

/// Without scalar base addresses (gfx8) eight columns need 134 registers, four 102.
const GCN_FLAT: Tuning = Tuning { compute_units: 36, vec_columns: 4, ..GCN };

/// Twice the registers of a SIMD, and more compute units.
const CDNA: Tuning = Tuning { compute_units: 104, ..GCN };

/// A work-group processor also has four SIMDs; a wavefront of 32 has half as many rows in flight.
const RDNA: Tuning = Tuning { compute_units: 30, vec_waves: 4, ..GCN };

/// 132 multiprocessors of four schedulers. The registers of mat-vec allow two work-groups at a time. Without
/// further work-groups that would round the same activations again, decoding is 1 to 6 % faster on an H200. With two
/// wavefronts on a scheduler in place of one, it is 1.7 % slower (1 billion weights of Q4_K) and 1.3 % (8 billion).
const NVIDIA: Tuning =
    Tuning { compute_units: 132, vec_waves: 1, vec_groups: 2, vec_at_once: true, experts_apart: true, ..GCN };

const VECTOR_GROUPS: &str = "work-groups for each compute unit that products of few tokens keep";
const VECTOR_WAVES: &str = "wavefronts for each SIMD below which those of such a product share rows";
const TILE_FROM: &str = "tokens from which products use tiles";
const TILE_GROUPS: &str = "work-groups for each compute unit that a larger tile leaves";
const BYTE_TILES: &str = "largest tile of dot products of bytes";

const fn of(name: &'static str, about: &'static str, change: fn(&Tuning) -> Tuning) -> Candidate<Tuning> {
    Candidate::new(name, about, None, change)
}

/// Other values of the parameters, which are measured on the card itself. Those that equal the table's are left out there.
pub const CANDIDATES: &[Candidate<Tuning>] = &[
    of("hip.vector-groups=2", VECTOR_GROUPS, |t| Tuning { vec_groups: 2, ..*t }),
    of("hip.vector-groups=4", VECTOR_GROUPS, |t| Tuning { vec_groups: 4, ..*t }),
    of("hip.vector-groups=8", VECTOR_GROUPS, |t| Tuning { vec_groups: 8, ..*t }),
    of("hip.vector-waves=1", VECTOR_WAVES, |t| Tuning { vec_waves: 1, ..*t }),
    of("hip.vector-waves=2", VECTOR_WAVES, |t| Tuning { vec_waves: 2, ..*t }),
    of("hip.vector-waves=4", VECTOR_WAVES, |t| Tuning { vec_waves: 4, ..*t }),
    of("hip.tile-from=5", TILE_FROM, |t| Tuning { tile_from: 5, ..*t }),
    of("hip.tile-from=17", TILE_FROM, |t| Tuning { tile_from: 17, ..*t }),
    of("hip.tile-groups=1", TILE_GROUPS, |t| Tuning { tile_groups: 1, ..*t }),
    of("hip.tile-groups=4", TILE_GROUPS, |t| Tuning { tile_groups: 4, ..*t }),
    of("hip.byte-tiles=64x32", BYTE_TILES, |t| Tuning { largest_int8_tile: 0, ..*t }),
    of("hip.byte-tiles=64x64", BYTE_TILES, |t| Tuning { largest_int8_tile: 1, ..*t }),
];

impl Tuning {
    /// Returns the parameters for a profile: those of its family, with the candidates that it uses.
    pub fn of(profile: &Profile) -> Tuning {
        profile.candidates.apply(Tuning::table(profile), CANDIDATES)
    }

    /// Returns the parameters of a profile's family.
    pub(crate) fn table(profile: &Profile) -> Tuning {
        let int8 = match profile.dot4 {
            Dot4::Software => Int8::None,
            Dot4::Sdot4 | Dot4::Sudot4 | Dot4::Dp4a => Int8::Dot4,
        };
        let half = match (profile.matrix, profile.family, profile.dot4) {
            // Processors with both instructions have no dot2 kernels.
            (Matrix::None, Family::Gcn | Family::Rdna1 | Family::Rdna2, Dot4::Sdot4) => Half::Dot2,
            (Matrix::None, Family::Gcn | Family::Rdna1, Dot4::Software) if profile.packed_half => {
                Half::Packed
            }
            (Matrix::None, ..) => Half::None,
            _ => Half::Matrix,
        };
        Tuning { int8, half, ..Tuning::of_family(profile) }
    }

    fn of_family(profile: &Profile) -> Tuning {
        match profile.family {
            Family::Gcn if profile.target.processor.starts_with("gfx8") => GCN_FLAT,
            Family::Gcn => GCN,
            Family::Cdna => CDNA,
            Family::Rdna1 | Family::Rdna2 | Family::Rdna3 | Family::Rdna4 => RDNA,
            Family::Nvidia => NVIDIA,
        }
    }

    /// Returns the compute units of a device: the driver's value if it is more than one, else that of a
    /// typical card.
    pub fn units(&self, profile: &Profile) -> u64 {
        u64::from(if profile.compute_units > 1 { profile.compute_units } else { self.compute_units })
    }
}

/// Returns true if one wavefront computes a row of `n` elements: it is short, or there are enough rows to
/// fill the device.
pub fn row_by_wave(profile: &Profile, n: u32, rows: u64) -> bool {
    let tuning = Tuning::of(profile);
    n <= 512 || (n <= 4096 && rows >= 16 * tuning.units(profile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;

    #[test]
    fn rules_of_the_kernels() {
        for tile in TILES {
            // Each thread computes 4 x 4, 8 x 4 or 8 x 8 elements of a tile.
            let each = tile.rows * tile.columns / tile.threads;
            assert!([16, 32, 64].contains(&each), "{tile:?}");
        }
        for name in ["gfx803", "gfx906", "gfx942", "gfx1010", "gfx1100", "gfx1201", "sm_90"] {
            let mut profile = Profile::of(&Target::parse(name).unwrap()).unwrap();
            let tuning = Tuning::of(&profile);
            assert!([1, 2, 4, 8].contains(&tuning.vec_columns) && tuning.vec_groups > 0, "{name}");
            assert!(tuning.largest_tile < TILES.len() && tuning.units(&profile) > 1, "{name}");
            assert_eq!(tuning.int8 == Int8::Dot4, profile.dot4 != Dot4::Software, "{name}");
            profile.compute_units = 7;
            assert_eq!(tuning.units(&profile), 7);
            for candidate in CANDIDATES {
                let changed = (candidate.change)(&tuning);
                assert!(changed.vec_groups > 0 && changed.vec_waves > 0 && changed.tile_groups > 0);
                assert!(changed.largest_int8_tile <= tuning.largest_int8_tile && changed.tile_from > 1);
            }
        }
        assert!(CANDIDATES.len() <= 64, "a set has 64 bits");
        for candidate in CANDIDATES {
            assert!(candidate.row.name.starts_with("hip.") && candidate.number() != candidate.row.name);
        }
    }
}
