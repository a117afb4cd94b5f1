//! Resources that the embedded code objects need from a device, and checks of their contents.
//!
//! RESOURCES.md lists every kernel of every target.

use crate::code_object;

use code_object::{Value, metadata, words};
use ggml_core::kernel::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Prefix of a kernel's name; number of pointer arguments; bytes of the parameter structure.
const ARGUMENTS: &[(&str, u64, usize)] = &[
    ("binary", 3, size_of::<BinaryParams>()),
    ("unary", 5, size_of::<UnaryParams>()),
    ("glu", 3, size_of::<GluParams>()),
    ("norm_", 6, size_of::<NormParams>()),
    ("heads", 12, size_of::<HeadsParams>()),
    ("rope", 5, size_of::<RopeParams>()),
    ("soft_max_", 3, size_of::<SoftMaxParams>()),
    ("copy_", 2, size_of::<CopyParams>()),
    ("gather_words", 5, size_of::<[[u32; 4]; 2]>()),
    ("get_rows_", 3, size_of::<GetRowsParams>()),
    ("set_rows_", 3, size_of::<SetRowsParams>()),
    ("quantize_int8", 3, size_of::<MulMatParams>()),
    ("normalize_f32", 3, size_of::<ProductsParams>()),
    ("normalize_int8", 4, size_of::<ProductsParams>()),
    ("mat_vec_", 14, size_of::<ProductsParams>() + size_of::<MatVecParams>()),
    ("round_half", 3, size_of::<MulMatParams>()),
    ("mat_tile_int8_", 4, size_of::<MulMatParams>()),
    ("mat_tile_half_", 4, size_of::<MulMatParams>()),
    ("mat_tile_packed_", 4, size_of::<MulMatParams>()),
    ("expert_sum_plain", 3, size_of::<ExpertSumParams>()),
    ("expert_sum_residual", 4, size_of::<ExpertSumParams>()),
    ("gather_pairs", 3, size_of::<MulMatIdParams>()),
    ("mat_tile_id_half_", 6, size_of::<MulMatIdParams>()),
    ("mat_tile_id_packed_", 6, size_of::<MulMatIdParams>()),
    ("mat_tile_id_int8_", 6, size_of::<MulMatIdParams>()),
    ("mat_tile_id_", 5, size_of::<MulMatIdParams>()),
    ("mat_", 3, size_of::<MulMatParams>()),
    // Plus the positions of a work-group.
    ("flash_attn_combine", 3, size_of::<FlashAttnParams>() + 4),
    ("flash_attn_split_half_", 9, size_of::<FlashAttnParams>() + 4),
    ("flash_attn_split_", 9, size_of::<FlashAttnParams>()),
    ("flash_attn_", 7, size_of::<FlashAttnParams>() + 4),
    ("cache_mask", 3, size_of::<CacheMaskParams>()),
    ("top_k", 3, size_of::<TopKParams>()),
    ("best", 7, size_of::<BestParams>()),
    ("gate", 10, size_of::<GateParams>()),
    ("ssm_conv", 5, size_of::<SsmConvParams>()),
    ("conv", 6, size_of::<ConvParams>()),
    ("delta_chunk_", 6, size_of::<DeltaNetParams>()),
    ("delta_walk_", 7, size_of::<DeltaNetParams>()),
    ("delta_net_", 10, size_of::<DeltaNetParams>()),
    ("scan_chunk_", 6, size_of::<SsmScanParams>()),
    ("scan_walk_", 7, size_of::<SsmScanParams>()),
    ("ssm_scan_", 8, size_of::<SsmScanParams>()),
];

/// Returns every embedded code object for an AMD processor: target, stem, metadata.
fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let mut objects = Vec::new();
    for &target in hip_kernels::targets().iter().filter(|t| t.starts_with("gfx")) {
        for &stem in hip_kernels::stems() {
            let image = hip_kernels::code_object(target, stem).expect("a target has every family");
            assert_eq!(image.as_ptr() as usize % 4096, 0, "{target} {stem}: aligned to a page");
            objects.push((target, stem, metadata(image)));
        }
    }
    if objects.is_empty() {
        eprintln!("skipped: no code objects are embedded");
    }
    objects
}

/// Target that the oldest suitable compiler does not support, and the first release of clang that does.
const NEWER: (&str, u32) = ("gfx1153", 20);

#[test]
fn nothing_was_refused() {
    let release = |compiler: &str| compiler.split("clang version ").nth(1)?.split('.').next()?.parse().ok();
    let releases = hip_kernels::targets().iter().filter_map(|target| release(hip_kernels::compiler(target)?));
    let old = releases.max().is_some_and(|release: u32| release < NEWER.1);
    // Without a compiler there is nothing to reject them.
    let rejected = |r: &&hip_kernels::Refused| r.reason.starts_with("the compiler rejected");
    let refused = hip_kernels::refused().iter().filter(rejected);
    let refused = refused.filter(|r| !(old && r.target == NEWER.0));
    let refused: Vec<String> = refused.map(|r| format!("{}: {}", r.target, r.reason)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn objects_are_what_was_asked_for() {
    for (target, stem, root) in objects() {
        let image = hip_kernels::code_object(target, stem).unwrap();
        assert_eq!(image[8], 2, "{target} {stem}: code object version 4");
        assert!(root.text("amdhsa.target").ends_with(&format!("--{target}")), "{target} {stem}");
    }
}

/// Returns the versions of the compilers of targets.
fn compilers(targets: &[&str]) -> String {
    let mut all: Vec<&str> = targets.iter().filter_map(|target| hip_kernels::compiler(target)).collect();
    all.sort();
    all.dedup();
    all.join(" and ")
}

/// Returns true if a kernel may leave only one wavefront on a SIMD. These are attention of many query rows
/// with values longer than 128, because of their sums; on gfx803, whose loads have their addresses in vector
/// registers, also attention with values of 128 that decodes blocks, and mat-vec kernels of eight columns,
/// which the host does not launch there.
fn may_be_alone(target: &str, name: &str) -> bool {
    let blocks = name.ends_with("_d128") && (name.contains("_q8_0_") || name.contains("_q4_0_"));
    name.starts_with("flash_attn_tile_") && (name.ends_with("_d256") || target == "gfx803" && blocks)
        || target == "gfx803" && name.starts_with("mat_vec_") && name.contains("_n8_")
}

/// Returns the maximum LDS of a work-group in bytes: half of a compute unit's, so that two fit. On RDNA3's
/// matrix units the queries of long rows are in LDS too, because of the size of their operands (and two
/// compute units of its processors share 128 KiB).
fn most_lds(target: &str, name: &str) -> u64 {
    if target.starts_with("gfx11") && name == "flash_attn_matrix_f16_long" { 40 << 10 } else { 32 << 10 }
}

/// No kernel spills or has a stack, none needs more LDS than the limit, and none needs so many registers or
/// so much LDS that a SIMD holds only one wavefront.
#[test]
fn no_kernel_spills() {
    let mut wrong = Vec::new();
    for (target, _, root) in objects() {
        for kernel in root.list("amdhsa.kernels") {
            let of = |key: &str| kernel.number(key);
            let spills = of(".vgpr_spill_count") + of(".sgpr_spill_count");
            let dynamic = matches!(kernel.get(".uses_dynamic_stack"), Some(Value::Bool(true)));
            let fine = spills == 0
                && of(".private_segment_fixed_size") == 0
                && !dynamic
                && of(".group_segment_fixed_size") <= most_lds(target, kernel.text(".name"))
                && of(".wavefront_size") == Processor::of(target).wave
                && (waves(target, kernel) >= 2 || may_be_alone(target, kernel.text(".name")));
            if !fine {
                wrong.push(format!(
                    "{target} {}: {} waves, {spills} spills",
                    kernel.text(".name"),
                    waves(target, kernel)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Limits that determine how many wavefronts a SIMD holds.
struct Processor {
    /// Threads of a wavefront.
    wave: u64,
    /// Vector registers of a lane on a SIMD, and the unit of their allocation.
    registers: [u64; 2],
    /// Maximum number of wavefronts of a SIMD.
    waves: u64,
    /// Number of SIMDs that share 64 KiB of LDS.
    simds: u64,
}

impl Processor {
    /// Returns the limits of a target. Source: LLVM's occupancy, as clang's resource remarks print it.
    fn of(target: &str) -> Processor {
        let gcn = |registers, waves| Processor { wave: 64, registers, waves, simds: 4 };
        let rdna = |registers, waves| Processor { wave: 32, registers, waves, simds: 2 };
        match target.split(':').next().unwrap_or(target) {
            "gfx90a" | "gfx942" | "gfx950" => gcn([512, 8], 8),
            name if name.len() == 6 => gcn([256, 4], 10),
            "gfx1100" | "gfx1101" | "gfx1151" | "gfx1200" | "gfx1201" => rdna([1536, 24], 16),
            name if name.starts_with("gfx101") => rdna([1024, 8], 20),
            _ => rdna([1024, 16], 16),
        }
    }
}

/// Returns the wavefronts of a kernel that a SIMD holds, by registers and LDS.
fn waves(target: &str, kernel: &Value) -> u64 {
    let p = Processor::of(target);
    let [all, unit] = p.registers;
    let by_registers = all / kernel.number(".vgpr_count").max(1).next_multiple_of(unit);
    let of_group = kernel.number(".max_flat_workgroup_size").div_ceil(p.wave);
    let by_lds = (64 << 10) / kernel.number(".group_segment_fixed_size").max(1) * of_group / p.simds;
    by_registers.min(by_lds).min(p.waves)
}

/// Targets in RESOURCES.md: one for each group of processors with equal compute units.
const LISTED: [&str; 12] = [
    "gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1151",
    "gfx1200", "gfx1201",
];

/// Kernel in RESOURCES.md.
#[derive(Default)]
struct Row {
    threads: u64,
    /// LDS for each wavefront size.
    lds: BTreeSet<u64>,
    /// One entry per target.
    cells: Vec<String>,
}

/// Returns the text of RESOURCES.md.
fn resources() -> String {
    let targets: Vec<&str> = hip_kernels::targets().iter().copied().filter(|t| LISTED.contains(t)).collect();
    // By stem and name.
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for (target, stem, root) in objects() {
        let Some(column) = targets.iter().position(|t| *t == target) else { continue };
        for kernel in root.list("amdhsa.kernels") {
            let row = rows.entry((stem.into(), kernel.text(".name").into())).or_default();
            row.threads = kernel.number(".max_flat_workgroup_size");
            row.lds.insert(kernel.number(".group_segment_fixed_size"));
            row.cells.resize(targets.len(), "-".into());
            let (vgprs, sgprs) = (kernel.number(".vgpr_count"), kernel.number(".sgpr_count"));
            row.cells[column] = format!("{vgprs} {sgprs} **{}**", waves(target, kernel));
        }
    }
    let mut text = format!(
        "# Resources of the kernels\n\nCompiled by {}.\n\n\
         In a cell: vector registers, scalar registers, **wavefronts that a SIMD holds** by its registers and LDS \
         (at the most 10 on gfx8 and gfx9, 8 on gfx90a and gfx942, 20 on gfx101x, 16 on later processors). A dash: \
         not compiled for the target, which does not launch it. LDS in bytes, where it depends on the width of a \
         wavefront both. No kernel spills, has a stack or uses scratch memory.\n\n\
         Written and compared by `cargo test -p hip-kernels resources`.\n\n\
         | kernel | threads | LDS | {} |\n| --- | --- | --- |{}\n",
        compilers(&targets),
        targets.join(" | "),
        " --- |".repeat(targets.len()),
    );
    for ((_, name), Row { threads, lds, cells }) in rows {
        let lds: Vec<String> = lds.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "| {name} | {threads} | {} | {} |", lds.join(" / "), cells.join(" | "));
    }
    text
}

/// RESOURCES.md matches the compiled code, if that was compiled by the compiler named in it and for all its
/// targets. `DIPTYCH_WRITE_RESOURCES=1` writes it.
#[test]
fn resources_are_as_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESOURCES.md");
    let now = resources();
    if std::env::var_os("DIPTYCH_WRITE_RESOURCES").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap();
    let head = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|l| l.starts_with("Compiled by") || l.starts_with("| kernel"))
            .map(String::from)
            .collect()
    };
    if head(&documented) != head(&now) {
        eprintln!("skipped: RESOURCES.md is of another compiler or other targets");
        return;
    }
    let differences: Vec<(&str, &str)> =
        documented.lines().zip(now.lines()).filter(|(old, new)| old != new).take(10).collect();
    assert!(
        differences.is_empty() && documented == now,
        "RESOURCES.md is not up to date; DIPTYCH_WRITE_RESOURCES=1 writes it: {differences:#?}"
    );
}

/// The arguments of each kernel are its pointers, then the parameter structure of ggml-core by value, and
/// nothing else: no argument that a runtime would have to fill in.
#[test]
fn arguments_are_pointers_and_the_shared_structure() {
    for (target, _, root) in objects() {
        for kernel in root.list("amdhsa.kernels") {
            let name = kernel.text(".name");
            let (_, pointers, params) = ARGUMENTS
                .iter()
                .find(|(prefix, _, _)| name.starts_with(prefix))
                .expect("a row for each kernel");
            let found: Vec<(u64, u64, &str)> = kernel
                .list(".args")
                .iter()
                .map(|a| (a.number(".offset"), a.number(".size"), a.text(".value_kind")))
                .collect();
            let mut wanted: Vec<(u64, u64, &str)> =
                (0..*pointers).map(|i| (8 * i, 8, "global_buffer")).collect();
            wanted.push((8 * pointers, *params as u64, "by_value"));
            assert_eq!(found, wanted, "{target} {name}");
            assert_eq!(
                kernel.number(".kernarg_segment_size"),
                8 * pointers + *params as u64,
                "{target} {name}"
            );
        }
    }
}

/// Every target has the same kernels, except for products of bytes and of F16 and attention on matrix units:
/// a target has all of these, some, or none, depending on its instructions.
#[test]
fn targets_have_the_same_kernels() {
    let mut all: BTreeMap<&str, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (target, stem, root) in objects() {
        let mut names: Vec<String> =
            root.list("amdhsa.kernels").iter().map(|k| k.text(".name").into()).collect();
        names.sort();
        assert!(
            !names.is_empty() || ["mul_mat_int8_", "mul_mat_half"].iter().any(|s| stem.starts_with(s)),
            "{target} {stem} has no kernels"
        );
        all.entry(stem).or_default().insert(names);
    }
    for (stem, sets) in all {
        let most = match stem {
            "mul_mat_half" => 4,
            stem if stem.starts_with("mul_mat_id_") => 4,
            "flash_attn" => 3,
            stem if stem.starts_with("mul_mat_half_") => 3,
            "mul_mat_id" | "flash_attn_blocks" => 2,
            stem if stem.starts_with("mul_mat_int8_") => 2,
            _ => 1,
        };
        assert!(sets.len() <= most, "{stem}: {sets:#?}");
    }
}

/// Returns the matrix instruction of tiles on a target: the upper half of its word, and the number of
/// multiplications that it executes for a wavefront. Encodings: LLVM's tests of the assembler.
fn matrix_instruction(target: &str) -> Option<(u32, usize)> {
    match target {
        // `v_wmma_f32_16x16x16_f16` with register operands, `v_mfma_f32_16x16x16_f16`.
        name if name.starts_with("gfx11") || name.starts_with("gfx12") => Some((0xcc40, 16 * 16 * 16)),
        "gfx908" | "gfx90a" | "gfx942" => Some((0xd3cd, 16 * 16 * 16)),
        _ => None,
    }
}

/// Returns true for `v_dot4_i32_i8`, `v_dot4_i32_iu8`, and the short form `v_dot4c_i32_i8` of CDNA, gfx101x
/// and gfx103x.
fn is_dot4(target: &str, word: u32) -> bool {
    match target {
        name if name.len() == 6 => word >> 16 == 0xd3a8 || word >> 25 == 0x39,
        name if name.starts_with("gfx10") => word >> 16 == 0xcc16 || word >> 25 == 0x0d,
        _ => word >> 16 == 0xcc16,
    }
}

/// Returns the number of `v_dot2_f32_f16` of a kernel, also in the short form of CDNA, RDNA2 and RDNA3.
fn dots_of_pairs(image: &[u8], name: &str) -> usize {
    let is_dot2 = |word: &&u32| matches!(*word >> 16, 0xd3a3 | 0xcc13) || matches!(*word >> 25, 0x37 | 0x02);
    words(image, name).iter().filter(is_dot2).count()
}

/// Returns the number of `v_pk_fma_f16` and `v_pk_mul_f16` of a kernel, on GFX9 and RDNA.
fn packed_products(image: &[u8], name: &str) -> usize {
    let is_packed = |word: &&u32| matches!(*word >> 16, 0xd38e | 0xd390 | 0xcc0e | 0xcc10);
    words(image, name).iter().filter(is_packed).count()
}

/// Returns the products of pairs in attention with rows of up to `row` elements: for scores of 64 elements of k, for
/// a piece of v, and twice (in the plain and in the careful pass) for sums of weights.
fn pairs_of_attention(row: usize) -> usize {
    let rows = if row == 256 { 2 } else { 4 };
    let scores = rows * 4 * 64 / 2;
    let values = rows * row / 16 * (2048 / row);
    2 * scores + values + 2 * rows * 2
}

/// Tiles and attention multiply with matrix units if a target has them, bytes with dot4, packed halves in pairs. Each instruction of
/// a step occurs once in the loop: as many as the tile's products of 32 elements need.
#[test]
fn tiles_use_the_units_of_their_target() {
    for (target, stem, root) in objects() {
        let image = hip_kernels::code_object(target, stem).unwrap();
        let mut attention = 0;
        for kernel in root.list("amdhsa.kernels") {
            let (name, threads) = (kernel.text(".name"), kernel.number(".max_flat_workgroup_size") as usize);
            let size = name.rsplit_once('_').and_then(|(_, size)| size.split_once('x'));
            let size = size.and_then(|(rows, columns)| Some((rows.parse().ok()?, columns.parse().ok()?)));
            let (rows, columns): (usize, usize) = size.unwrap_or((64, 32));
            let products = rows * columns * 32;
            if let Some((upper, each)) =
                matrix_instruction(target).filter(|_| name.starts_with("mat_tile") && name.contains("_half_"))
            {
                let count = words(image, name).iter().filter(|&word| word >> 16 == upper).count();
                let waves = threads / kernel.number(".wavefront_size") as usize;
                assert_eq!(count * waves * each, products, "{target} {name}: {count} matrix instructions");
            }
            // Attention, with rows of this length: scores of 16 rows and 32 positions, then their values. The
            // weights are sums of two F16 values; in blocks the values are too, without the product of both
            // remainders.
            if let Some((_, row)) = name.strip_prefix("flash_attn_matrix_").and_then(|n| n.rsplit_once('_')) {
                // With long rows, a wavefront computes a quarter.
                let row = row.strip_prefix('d').map(|row| row.parse::<usize>().unwrap());
                let (keys, values) = row.map_or((576 / 4, 512 / 4), |row| (row, row));
                let (upper, each) = matrix_instruction(target).expect(target);
                let count = words(image, name).iter().filter(|&word| word >> 16 == upper).count();
                let of_values = if stem == "flash_attn" { 2 } else { 3 };
                assert_eq!(
                    count * each,
                    16 * 32 * (keys + of_values * values),
                    "{target} {name}: {count} matrix instructions"
                );
                attention += 1;
            }
            if let Some(row) = name.strip_prefix("flash_attn_half_f16_d") {
                // From RDNA3 on an instruction may hold two.
                let each = if target.starts_with("gfx10") || target.len() == 6 { 1 } else { 2 };
                let expected = pairs_of_attention(row.parse().unwrap()) / each;
                let count = dots_of_pairs(image, name);
                assert!(count >= expected, "{target} {name}: {count} products of pairs");
            }
            if ["mat_tile_int8", "mat_tile_id_int8"].iter().any(|s| name.starts_with(s)) {
                let count = words(image, name).iter().filter(|&&word| is_dot4(target, word)).count();
                assert!(count * threads * 4 >= products, "{target} {name}: {count} dot4");
            }
            if ["mat_tile_packed", "mat_tile_id_packed"].iter().any(|s| name.starts_with(s)) {
                let count = packed_products(image, name);
                assert!(count * threads * 2 >= products, "{target} {name}: {count} products of pairs");
            }
        }
        // Two lengths of rows of each type, and long ones.
        let expected = match stem {
            "flash_attn" => 3,
            "flash_attn_blocks" => 4,
            _ => 0,
        };
        let expected = if matrix_instruction(target).is_some() { expected } else { 0 };
        assert_eq!(attention, expected, "{target} {stem}");
    }
}
