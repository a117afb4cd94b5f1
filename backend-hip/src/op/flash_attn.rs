//! FLASH_ATTN_EXT.
//!
//! A work-group processes all positions or, if that would leave the device idle, one split of them; then it
//! writes unnormalised sums and their statistics to scratch. For few query rows the last work-group to finish
//! combines the splits, for many a second launch does.

use super::grid::{launch, no_kernel, scratch};
use super::{Context, Launch, Operand, Refusal};
use crate::arch::{Family, Matrix, Profile};
use crate::tuning::Tuning;
use bytemuck::NoUninit;
use ggml_core::kernel::FlashAttnParams;
use ggml_core::precision::Precision;
use ggml_core::{DType, Tensor};

/// Threads of a work-group of all kernels of the family, except those for few query rows on NVIDIA's
/// processors and those on CDNA's matrix units.
const THREADS: u32 = 128;
/// Maximum query rows (tokens times the heads that share a head of k) for the few-row kernels.
const FEW: u64 = 8;
/// Query rows per work-group of the many-row kernels.
const TILE_ROWS: u64 = 32;
/// Threads and positions of a step of the many-row kernels that multiply pairs of F16.
const HALF_THREADS: u32 = 256;
const HALF_POSITIONS: u64 = 64;
/// Query rows per work-group of the many-row kernels on matrix units: 16 for each of four wavefronts. With
/// long rows the wavefronts share 16.
const MATRIX_ROWS: u64 = 64;
const LONG_MATRIX_ROWS: u64 = 16;
/// Maximum number of splits of the combining kernel, limited by its LDS.
const MAX_SPLITS: u64 = 2048;
/// Minimum number of positions of a split, and the cost of starting and combining a split, in positions.
/// (With 256, an H100 computed 512 tokens after 4096 others with a model of half a billion Q8_0 weights at
/// 69,500 tokens per second, with 160 at 66,800.)
const MIN_SPLIT: u32 = 256;
const SPLIT_COST: u64 = 256;

/// Maximum value row length of the kernels for rows of any length.
const MAX_VALUES: u32 = 1024;

/// Maximum lengths of rows of k and v in the long-row kernels, and query rows per work-group.
const LONG: [u32; 2] = [576, 512];
const LONG_ROWS: u64 = 4;
/// Query rows up to which long rows stay with these kernels even if matrix units have a kernel too, which
/// would have too few work-groups. An H200 computes latents of 16 heads over 4096 positions, for 8, 32 and
/// 512 tokens, at 11.7, 15.7 and 16.8 Tflop/s with these kernels, at 7.0, 27.7 and 48.8 with matrix units.
const LONG_FEW: u64 = 128;

/// Shortest split of the few-row kernels that multiply pairs of F16, in positions: combining shorter ones takes one
/// work-group as long as computing them takes all others.
const FEW_HALF_SPAN: u32 = 256;

/// Query rows up to which NVIDIA's matrix units use kernels that read k and v once for each 8 or 16 of them, as long as these
/// are so few groups; threads of their work-groups. Four work-groups that read the same positions share them in the
/// second-level cache. With a model of 8 billion weights after 4,096 tokens, steps of 5, 8 and 16 tokens (20, 32 and 64 rows)
/// have 1.10, 1.08 and 1.09 times as many tokens a second on an H200 as with the kernels for many rows.
const FEW_ON_UNITS: u64 = 64;
const GROUPS_ON_UNITS: u64 = 4;
const UNITS_THREADS: u32 = 256;

/// Kernels of a type for value rows of up to 64, 128 and 256 elements: for few query rows (one for each of
/// [`GROUPS`]), many query rows, many query rows by dot products of pairs of F16 (for F16 only, if no row is
/// longer), and many query rows on matrix units (if no row is longer; none for F32, and none of 256 for
/// blocks). Also kernels for rows of up to [`LONG`], on matrix units for F16 only, and one
/// for rows of any length.
struct Kernels {
    /// Stem of their source.
    module: &'static str,
    few: [[&'static str; 3]; 3],
    /// The same by dot products of pairs of F16, for rows of exactly this length and the first [`HALF_GROUPS`].
    few_half: [[&'static str; 2]; 3],
    /// The same on NVIDIA's matrix units, for rows of exactly this length and up to 8 and 16 query rows. Rows of 256 would
    /// need more registers for 16.
    few_units: [&'static [&'static str]; 3],
    /// Number of [`GROUPS`] with a kernel.
    groups: usize,
    many: [&'static str; 3],
    half: [&'static str; 3],
    matrix: [&'static str; 3],
    long: &'static str,
    long_matrix: &'static str,
    any: &'static str,
}

/// Query rows per work-group of the few-row kernels.
const GROUPS: [u64; 3] = [1, 4, 8];
/// Number of [`GROUPS`] with kernels that multiply pairs of F16. Eight rows would need as many instructions as
/// twice four, and more registers than there are.
const HALF_GROUPS: usize = 2;

/// Returns the threads and positions per work-group of the few-row kernels.
fn span(profile: &Profile) -> u32 {
    if profile.family == Family::Nvidia { 256 } else { THREADS }
}

/// Builds the kernels of a type from its name in the kernels' names. `$last` is the last group if the type
/// has it, else the one before.
macro_rules! kernels {
    ($t:literal, $module:literal, $groups:literal, $last:literal) => {
        Kernels {
            module: $module,
            few: [
                kernels!(few $t, "64", $last),
                kernels!(few $t, "128", $last),
                kernels!(few $t, "256", $last),
            ],
            few_half: [
                kernels!(few_half $t, "64"),
                kernels!(few_half $t, "128"),
                kernels!(few_half $t, "256"),
            ],
            few_units: [
                kernels!(few_units $t, "64", "_g8", "_g16"),
                kernels!(few_units $t, "128", "_g8", "_g16"),
                kernels!(few_units $t, "256", "_g8"),
            ],
            groups: $groups,
            many: [
                concat!("flash_attn_tile_", $t, "_d64"),
                concat!("flash_attn_tile_", $t, "_d128"),
                concat!("flash_attn_tile_", $t, "_d256"),
            ],
            half: [
                concat!("flash_attn_half_", $t, "_d64"),
                concat!("flash_attn_half_", $t, "_d128"),
                concat!("flash_attn_half_", $t, "_d256"),
            ],
            matrix: [
                concat!("flash_attn_matrix_", $t, "_d64"),
                concat!("flash_attn_matrix_", $t, "_d128"),
                concat!("flash_attn_matrix_", $t, "_d256"),
            ],
            long: concat!("flash_attn_split_", $t, "_long"),
            long_matrix: concat!("flash_attn_matrix_", $t, "_long"),
            any: concat!("flash_attn_any_", $t),
        }
    };
    (few_half $t:literal, $d:literal) => {
        [
            concat!("flash_attn_split_half_", $t, "_d", $d, "_g1"),
            concat!("flash_attn_split_half_", $t, "_d", $d, "_g4"),
        ]
    };
    (few_units $t:literal, $d:literal, $($g:literal),*) => {
        &[$(concat!("flash_attn_units_", $t, "_d", $d, $g)),*]
    };
    (few $t:literal, $d:literal, $last:literal) => {
        [
            concat!("flash_attn_split_", $t, "_d", $d, "_g1"),
            concat!("flash_attn_split_", $t, "_d", $d, "_g4"),
            concat!("flash_attn_split_", $t, "_d", $d, $last),
        ]
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    Some(match dtype {
        DType::F32 => kernels!("f32", "flash_attn", 2, "_g4"),
        DType::F16 => kernels!("f16", "flash_attn", 3, "_g8"),
        DType::Q8_0 => kernels!("q8_0", "flash_attn_blocks", 2, "_g4"),
        DType::Q4_0 => kernels!("q4_0", "flash_attn_blocks", 2, "_g4"),
        _ => return None,
    })
}

/// Returns the index of the smallest of 64, 128 and 256 that holds a row.
fn size_class(n: u32) -> Option<usize> {
    [64, 128, 256].iter().position(|&size| n <= size)
}

/// Returns the positions per work-group of the many-row kernels. `groups` work-groups cover all query rows
/// without splits, and `concurrent` work-groups run at a time. They run in rounds, each as long as the positions
/// of a work-group. Splitting leaves less of a round idle; if it gains nothing, each work-group processes all
/// positions.
fn tile_span(positions: u32, groups: u64, concurrent: u64) -> u32 {
    let span = |splits: u64| u64::from(positions).div_ceil(splits).next_multiple_of(32);
    let time = |splits: u64| {
        let rounds = groups.max(1).saturating_mul(splits).div_ceil(concurrent.max(1));
        rounds.saturating_mul(span(splits) + if splits > 1 { SPLIT_COST } else { 0 })
    };
    // More than two rounds leave little idle time.
    let most = (2 * concurrent).div_ceil(groups.max(1)).min(u64::from(positions / MIN_SPLIT)).min(MAX_SPLITS);
    match (1..=most).min_by_key(|&splits| time(splits)) {
        None | Some(1) => positions,
        Some(splits) => span(splits) as u32,
    }
}

/// A many-row kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Many {
    kernel: &'static str,
    /// Threads of a work-group, and its query rows.
    threads: u32,
    rows: u64,
    /// Work-groups that a compute unit runs at a time. Registers and LDS limit them: AMD's kernels bound them
    /// with `WAVES_PER_SIMD` in their sources, NVIDIA's on matrix units with `MATRIX_GROUPS`.
    resident: u64,
}

impl Many {
    fn tile(profile: &Profile, kernel: &'static str) -> Many {
        let resident = match profile.family {
            Family::Nvidia => 3,
            _ if profile.wave == 64 => 4,
            _ => 2,
        };
        Many { kernel, threads: THREADS, rows: TILE_ROWS, resident }
    }

    /// `size`: index of the row length.
    fn pairs(kernels: &Kernels, size: usize) -> Many {
        let rows = if size < 2 { 64 } else { 32 };
        Many { kernel: kernels.half[size], threads: HALF_THREADS, rows, resident: 2 }
    }

    fn units(profile: &Profile, kernel: &'static str, rows: u64) -> Many {
        let resident = match profile.family {
            Family::Nvidia => 2,
            _ if profile.wave == 64 => 2,
            _ => 4,
        };
        Many { kernel, threads: 4 * profile.wave, rows, resident }
    }
}

/// Returns the positions per work-group of the long-row kernels; `groups` work-groups read each position. The
/// rule is that of `attention_long.h`.
fn long_span(positions: u32, groups: u64) -> u32 {
    match groups {
        256.. => positions,
        _ => positions.div_ceil((256 / groups.max(1) as u32).min(64)).next_multiple_of(32),
    }
}

/// Parameters of kernels that the host tells the length of splits: `FlashAttnPieces` of `attention.h`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct SplitParams {
    p: FlashAttnParams,
    /// Positions per work-group.
    span: u32,
}

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = FlashAttnParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let kv_type = c.graph.tensor(src[1]).dtype;
    let kernels = kernels(kv_type).ok_or_else(|| no_kernel(c, kv_type))?;
    if let Some(&mask) = src.get(3) {
        let mask = c.graph.tensor(mask);
        if mask.span_bytes() / mask.dtype.block_bytes() > u32::MAX as usize {
            return Err(Refusal(format!("{} has 2^32 elements or more", mask.describe())));
        }
    }

    let heads = u64::from(p.kv[1]) * u64::from(p.ne[2]);
    let pairs = can_multiply_pairs(c, &p);
    let rounded = matrix_kernel(c, &p, &kernels).or_else(|| pair_kernel(&p, &kernels).filter(|_| pairs));
    let few_by_pairs = || few_by_pairs(c.profile, &p, &kernels).filter(|_| pairs);
    let choice = match few_on_units(c, &p, &kernels).or_else(few_by_pairs) {
        Some(choice) => choice,
        None => choose(c.profile, &p, &kernels, rounded)?,
    };
    let Choice { kernel, threads, few, splits, groups, span } = choice;
    let read: Vec<Operand> =
        [0, 1, 2, 3, 4].map(|i| Operand::Tensor(*src.get(i).unwrap_or(&src[0]))).to_vec();
    let result = Operand::Tensor(c.node);
    let attention = |written: &[Operand]| {
        let operands = [&read[..], written].concat();
        let (kernel, groups) = ((kernels.module, kernel), [splits, groups, heads]);
        let launch = match span {
            None => launch(c, kernel, operands, &p, groups, threads)?,
            Some(span) => launch(c, kernel, operands, &SplitParams { p, span }, groups, threads)?,
        };
        Ok::<Launch, Refusal>(Launch { written: written.len(), ..launch })
    };
    if splits == 1 {
        return Ok(vec![attention(&[result; 4][..if few { 4 } else { 2 }])?]);
    }
    // The sums of each row and split (`dv` F32 values) and their statistics (two F32 values).
    let all_rows = u64::from(p.ne[1]) * u64::from(p.ne[0]) * u64::from(p.ne[2]);
    let split_rows = all_rows.saturating_mul(splits);
    let [sums, stats] = scratch(c, [(split_rows, 4 * u64::from(p.d[1])), (split_rows, 8)])?;
    if few {
        let sets = u32::try_from(groups.saturating_mul(heads));
        let sets = sets.map_err(|_| {
            Refusal(format!("FLASH_ATTN_EXT of {heads} heads of k and v: too many for 32 bits"))
        })?;
        return Ok(vec![attention(&[sums, stats, Operand::Counters(sets), result])?]);
    }
    let joined = vec![sums, stats, result];
    let (second, p) =
        (("flash_attn", "flash_attn_combine"), SplitParams { p, span: span.unwrap_or(p.kv[0]) });
    let second = launch(c, second, joined, &p, [all_rows, 1, 1], THREADS)?;
    Ok(vec![attention(&[sums, stats])?, second])
}

/// Returns the maximum row length on matrix units for a type: blocks need one more tile of LDS, and AMD's
/// lanes have fewer registers.
fn longest_on_units(matrix: Matrix, kv_type: DType) -> u32 {
    match matrix {
        Matrix::None => 0,
        Matrix::Tensor if kv_type == DType::F16 => 256,
        Matrix::Tensor | Matrix::Mfma | Matrix::Wmma | Matrix::WmmaGfx12 => 128,
    }
}

/// Returns true if the kernels on matrix units can load the rows of k and v. Their byte stride must fit 32 bits. For rows
/// of F16 NVIDIA's kernels load 16 bytes at a time, aligned to 16; blocks, and rows on AMD, need no alignment.
fn suits_units(c: &Context<'_>, p: &FlashAttnParams) -> bool {
    let operands = c.graph.operands(c.node);
    let sixteens = |t: &&Tensor| t.nb[1..].iter().chain([&t.offset]).all(|n| n.is_multiple_of(16));
    let anywhere = operands[1].dtype != DType::F16 || c.profile.attention_matrix != Matrix::Tensor;
    let strides = operands[1..3].iter().all(|t| u32::try_from(t.nb[1]).is_ok());
    p.d.iter().all(|d| d.is_multiple_of(8)) && strides && (anywhere || operands[1..3].iter().all(sixteens))
}

/// Returns the matrix unit kernel for many query rows, if activations may be rounded.
fn matrix_kernel(c: &Context<'_>, p: &FlashAttnParams, kernels: &Kernels) -> Option<Many> {
    let dtype = c.graph.operands(c.node)[1].dtype;
    let longest = longest_on_units(c.profile.attention_matrix, dtype);
    let wanted = c.precision == Precision::Fast && dtype != DType::F32;
    let fits = suits_units(c, p);
    let row = Some(p.d[0].max(p.d[1])).filter(|&row| wanted && fits && row <= longest);
    let able = longest > 0 && dtype == DType::F16;
    let long = able && wanted && fits && is_long(p);
    let of_row = row.and_then(size_class).map(|size| (kernels.matrix[size], MATRIX_ROWS));
    let (kernel, rows) = of_row.or(long.then_some((kernels.long_matrix, LONG_MATRIX_ROWS)))?;
    Some(Many::units(c.profile, kernel, rows))
}

/// Returns true if products may be computed from pairs of F16, which rounds activations. The bytes of a step of k or v,
/// and those of the mask, must fit 32 bits.
fn can_multiply_pairs(c: &Context<'_>, p: &FlashAttnParams) -> bool {
    let operands = c.graph.operands(c.node);
    let able = c.profile.has_pairs() && c.precision == Precision::Fast && operands[1].dtype == DType::F16;
    let in_eights = p.d.iter().all(|d| *d > 0 && d.is_multiple_of(8));
    let fits = |bytes: u64| u32::try_from(bytes).is_ok();
    let steps = operands[1..3].iter().all(|t| fits((t.nb[1] as u64).saturating_mul(HALF_POSITIONS)));
    let mask = operands.get(3).is_none_or(|mask| fits(mask.span_bytes() as u64));
    able && in_eights && steps && mask
}

/// Returns the kernel for many query rows that multiplies pairs of F16.
fn pair_kernel(p: &FlashAttnParams, kernels: &Kernels) -> Option<Many> {
    size_class(p.d[0].max(p.d[1])).map(|size| Many::pairs(kernels, size))
}

/// Returns the positions of a split of the few-row kernels that multiply pairs of F16, as long as there is a work-group
/// for each of `units`; `others` work-groups read each position. Long splits spread the cost of a work-group.
fn few_half_span(positions: u32, others: u64, units: u64) -> u32 {
    let mut span = u64::from(FEW_HALF_SPAN);
    let positions = u64::from(positions);
    while span < positions && others.saturating_mul(positions.div_ceil(2 * span)) >= units {
        span *= 2;
    }
    // One split of all positions, however many.
    u32::try_from(span).unwrap_or(u32::MAX)
}

/// Chooses a few-row kernel that multiplies pairs of F16, if there is one of the row length. Four query rows share a
/// work-group unless that leaves half of the compute units idle.
fn few_by_pairs(profile: &Profile, p: &FlashAttnParams, kernels: &Kernels) -> Option<Choice> {
    let rows = u64::from(p.ne[0]) * u64::from(p.ne[1] / p.kv[1]);
    let size = [64, 128, 256].iter().position(|&size| p.d == [size, size]).filter(|_| rows <= FEW)?;
    let heads = u64::from(p.kv[1]) * u64::from(p.ne[2]);
    let units = Tuning::of(profile).units(profile);
    let splits = u64::from(p.kv[0].div_ceil(FEW_HALF_SPAN));
    let sharing = rows.div_ceil(GROUPS[1]) * splits;
    let shared = rows > 1 && sharing.saturating_mul(2 * heads.min(units)) >= units;
    let class = if shared { HALF_GROUPS - 1 } else { 0 };
    let groups = rows.div_ceil(GROUPS[class]);
    let span = few_half_span(p.kv[0], groups.saturating_mul(heads), units);
    Some(Choice {
        kernel: kernels.few_half[size][class],
        threads: THREADS,
        few: true,
        splits: p.kv[0].div_ceil(span).into(),
        groups,
        span: Some(span),
    })
}

/// Returns the positions of a split of the few-row kernels on matrix units, of which a work-group processes `step` at a
/// time. `others` work-groups read each position, and `units` run at a time. Two steps take less time than combining
/// splits. A few steps are whole; if there are many, it matters more that all units have work.
fn few_units_span(positions: u32, step: u32, others: u64, units: u64) -> u32 {
    let most = (units / others.max(1)).clamp(1, MAX_SPLITS) as u32;
    if positions <= 2 * step || most == 1 {
        return positions;
    }
    let even = positions.div_ceil(most);
    even.next_multiple_of(if even <= 4 * step { step } else { 32 })
}

/// Chooses a few-row kernel on NVIDIA's matrix units, if activations may be rounded and there is one of the row length.
/// A single query row would leave seven eighths of them idle.
fn few_on_units(c: &Context<'_>, p: &FlashAttnParams, kernels: &Kernels) -> Option<Choice> {
    let able = c.profile.attention_matrix == Matrix::Tensor && c.precision == Precision::Fast;
    let f16 = c.graph.operands(c.node)[1].dtype == DType::F16;
    let rows = u64::from(p.ne[0]) * u64::from(p.ne[1] / p.kv[1]);
    let wanted = able && f16 && (2..=FEW_ON_UNITS).contains(&rows) && suits_units(c, p);
    let size = [64, 128, 256].iter().position(|&size| p.d == [size, size]).filter(|_| wanted)?;
    let of_size = kernels.few_units[size];
    let class = of_size.len().min(rows.div_ceil(8) as usize) - 1;
    let groups = rows.div_ceil(8 * (class as u64 + 1));
    if groups > GROUPS_ON_UNITS {
        return None;
    }
    let heads = u64::from(p.kv[1]) * u64::from(p.ne[2]);
    let step = if size == 0 { 256 } else { 128 };
    let units = Tuning::of(c.profile).units(c.profile);
    let span = few_units_span(p.kv[0], step, groups.saturating_mul(heads), units);
    let splits = p.kv[0].div_ceil(span).into();
    let (kernel, threads) = (of_size[class], UNITS_THREADS);
    Some(Choice { kernel, threads, few: false, splits, groups, span: Some(span) })
}

/// Returns true if only the long-row kernels support the node.
fn is_long(p: &FlashAttnParams) -> bool {
    let [d, dv] = p.d;
    d % 8 == 0 && dv % 8 == 0 && (1..=LONG[0]).contains(&d) && (257..=LONG[1]).contains(&dv)
}

/// Chosen kernel and grid: the kernel and its threads, true if it is a few-row kernel, the number of splits
/// of the positions, the number of groups of query rows, and the positions of a split if it is a parameter.
#[derive(Debug, PartialEq)]
struct Choice {
    kernel: &'static str,
    threads: u32,
    few: bool,
    splits: u64,
    groups: u64,
    span: Option<u32>,
}

/// Chooses the kernel and the grid. Rows that share a work-group read k and v once. If that leaves compute
/// units idle, as with short caches, the time is that of one work-group, so each row gets its own. `rounded`:
/// the kernel for many rows if products may be rounded.
fn choose(
    profile: &Profile,
    p: &FlashAttnParams,
    kernels: &Kernels,
    rounded: Option<Many>,
) -> Result<Choice, Refusal> {
    let [d, dv] = p.d;
    let all = p.kv[0];
    let rows = u64::from(p.ne[0]) * u64::from(p.ne[1] / p.kv[1]);
    if rows > u32::MAX.into() {
        return Err(Refusal(format!("FLASH_ATTN_EXT of {rows} query rows per head: too many for 32 bits")));
    }
    let heads = u64::from(p.kv[1]) * u64::from(p.ne[2]);
    let in_eights = d % 8 == 0 && dv % 8 == 0;
    let long_of_few = in_eights && d > 256 && d <= LONG[0] && (1..=256).contains(&dv) && rows <= FEW;
    let rounded = rounded.filter(|_| rows > LONG_FEW || !is_long(p));
    if long_of_few || is_long(p) && rounded.is_none() {
        let groups = rows.div_ceil(LONG_ROWS);
        let splits = u64::from(p.kv[0].div_ceil(long_span(p.kv[0], groups.saturating_mul(heads))));
        let (kernel, threads) = (kernels.long, span(profile));
        return Ok(Choice { kernel, threads, few: true, splits, groups, span: None });
    }
    let tile = size_class(dv).filter(|_| in_eights).map(|size| Many::tile(profile, kernels.many[size]));
    let many = match rounded.or(tile) {
        Some(many) => many,
        None if dv <= MAX_VALUES => {
            let (kernel, threads) = (kernels.any, THREADS);
            return Ok(Choice { kernel, threads, few: false, splits: 1, groups: rows, span: Some(all) });
        }
        None => {
            return Err(Refusal(format!(
                "FLASH_ATTN_EXT of value rows of {dv}: the HIP kernels support up to {MAX_VALUES}"
            )));
        }
    };
    if let Some(size) = size_class(d.max(dv)).filter(|_| rows <= FEW) {
        let there = &GROUPS[..kernels.groups];
        let mut class = there.iter().position(|&g| rows <= g).unwrap_or(there.len() - 1);
        let splits = u64::from(p.kv[0].div_ceil(span(profile)));
        let enough = Tuning::of(profile).units(profile);
        while class > 0 && rows.div_ceil(GROUPS[class]) * splits * heads < enough {
            class -= 1;
        }
        let groups = rows.div_ceil(GROUPS[class]);
        let kernel = kernels.few[size][class];
        return Ok(Choice { kernel, threads: span(profile), few: true, splits, groups, span: None });
    }
    let groups = rows.div_ceil(many.rows);
    let concurrent = many.resident * Tuning::of(profile).units(profile);
    let span = tile_span(all, groups.saturating_mul(heads), concurrent);
    let splits = all.div_ceil(span).into();
    Ok(Choice { kernel: many.kernel, threads: many.threads, few: false, splits, groups, span: Some(span) })
}

#[cfg(test)]
mod tests;
