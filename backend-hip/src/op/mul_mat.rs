//! MUL_MAT: mat-vec for few columns, tiles for more.

use super::grid::{launch, no_kernel, tensors};
use super::{Context, Launch, Refusal};
use crate::arch::Profile;
use crate::tuning::{TILES, Tuning};
use ggml_core::DType;
use ggml_core::kernel::MulMatParams;

/// Threads of a mat-vec work-group.
const VEC_THREADS: u32 = 128;

/// The kernels of a type: mat-vec for one column with 1, 2, 4 rows of a wavefront; for one column with the row split
/// over a work-group; for 2, 4 and 8 columns; and one for each of [`TILES`].
struct Kernels {
    one_column: [&'static str; 3],
    split: &'static str,
    columns: [&'static str; 3],
    tiles: [&'static str; 4],
}

/// Rows of a wavefront of `one_column`, columns and rows of `columns`.
const ONE_COLUMN: [u32; 3] = [1, 2, 4];
const COLUMNS: [(u32, u32); 3] = [(2, 2), (4, 4), (8, 2)];

macro_rules! kernels {
    ($t:literal) => {
        Kernels {
            one_column: [
                concat!("mat_vec_", $t, "_n1_r1"),
                concat!("mat_vec_", $t, "_n1_r2"),
                concat!("mat_vec_", $t, "_n1_r4"),
            ],
            split: concat!("mat_vec_", $t, "_split"),
            columns: [
                concat!("mat_vec_", $t, "_n2_r2"),
                concat!("mat_vec_", $t, "_n4_r4"),
                concat!("mat_vec_", $t, "_n8_r2"),
            ],
            tiles: [
                concat!("mat_tile_", $t, "_64x32"),
                concat!("mat_tile_", $t, "_64x64"),
                concat!("mat_tile_", $t, "_128x64"),
                concat!("mat_tile_", $t, "_128x128"),
            ],
        }
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    Some(match dtype {
        DType::F32 => kernels!("f32"),
        DType::F16 => kernels!("f16"),
        DType::BF16 => kernels!("bf16"),
        DType::Q8_0 => kernels!("q8_0"),
        DType::Q4_0 => kernels!("q4_0"),
        DType::Q6_K => kernels!("q6_k"),
        _ => return None,
    })
}

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = MulMatParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let dtype = c.graph.tensor(src[0]).dtype;
    let kernels = kernels(dtype).ok_or_else(|| no_kernel(c, dtype))?;
    if p.k >= 1 << 29 {
        return Err(Refusal(format!(
            "MUL_MAT of rows of {} elements: a lane's offset in a row has 32 bits",
            p.k
        )));
    }
    let (kernel, groups, threads) = choose(c.profile, &kernels, &p);
    Ok(vec![launch(c, ("mul_mat", kernel), tensors(&[src[0], src[1], c.node]), &p, groups, threads)?])
}

/// Kernel, work-groups, threads of a work-group.
fn choose(profile: &Profile, kernels: &Kernels, p: &MulMatParams) -> (&'static str, [u64; 3], u32) {
    let tuning = Tuning::of(profile);
    let (m, n, batch) = (u64::from(p.m), u64::from(p.n), u64::from(p.ne2) * u64::from(p.ne3));
    if p.n >= tuning.tile_from {
        let (i, [x, y]) = choose_tile(profile, &tuning, p);
        return (kernels.tiles[i], [x, y, batch], TILES[i].threads);
    }
    let waves = u64::from(VEC_THREADS / profile.wave);
    if p.n == 1 {
        let simds = 4 * tuning.units(profile);
        let stretch = 8 * profile.wave;
        // A row is split where rows do not fill the device and every wavefront of its work-group has something to do.
        if m * batch < simds && u64::from(p.k) >= 2 * waves * u64::from(stretch) {
            return (kernels.split, [m, 1, batch], VEC_THREADS);
        }
        let fills = |rows: u32| m.div_ceil(rows.into()) * batch >= simds * u64::from(tuning.vec_waves);
        let i = (0..3).rev().find(|&i| ONE_COLUMN[i] <= tuning.vec_rows && fills(ONE_COLUMN[i])).unwrap_or(0);
        return (
            kernels.one_column[i],
            [m.div_ceil(waves * u64::from(ONE_COLUMN[i])), 1, batch],
            VEC_THREADS,
        );
    }
    let columns = n.min(tuning.vec_columns.into());
    let i = COLUMNS.iter().position(|&(of, _)| u64::from(of) >= columns).unwrap_or(COLUMNS.len() - 1);
    let (columns, rows) = COLUMNS[i];
    let groups = [m.div_ceil(waves * u64::from(rows)), n.div_ceil(columns.into()), batch];
    (kernels.columns[i], groups, VEC_THREADS)
}

/// The largest tile that is not mostly empty and leaves enough work-groups; the smallest if there is none. Its number
/// and the work-groups across and down.
fn choose_tile(profile: &Profile, tuning: &Tuning, p: &MulMatParams) -> (usize, [u64; 2]) {
    let groups = |i: usize| [p.m.div_ceil(TILES[i].rows), p.n.div_ceil(TILES[i].columns)].map(u64::from);
    let fits = |i: &usize| {
        let [x, y] = groups(*i);
        let enough = u64::from(tuning.tile_groups) * tuning.units(profile);
        let full = p.n * 2 > TILES[*i].columns && p.m * 2 > TILES[*i].rows;
        full && x * y * u64::from(p.ne2) * u64::from(p.ne3) >= enough
    };
    // With few columns a wider tile is empty; then even too few work-groups are better than that.
    let i = (0..=tuning.largest_tile).rev().find(fits).unwrap_or(if p.n <= 32 { 0 } else { 1 });
    (i, groups(i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;

    fn chosen(target: &str, m: u32, n: u32, k: u32) -> (&'static str, [u64; 3]) {
        let mut profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        profile.compute_units = 60;
        let p = MulMatParams { m, n, k, ne2: 1, ne3: 1, ..MulMatParams::default() };
        let (kernel, groups, _) = choose(&profile, &kernels!("q8_0"), &p);
        (kernel, groups)
    }

    #[test]
    fn kernels_suit_the_shape() {
        assert_eq!(chosen("gfx906", 4096, 1, 4096), ("mat_vec_q8_0_n1_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx906", 896, 1, 896), ("mat_vec_q8_0_n1_r1", [448, 1, 1]));
        assert_eq!(chosen("gfx906", 128, 1, 4096), ("mat_vec_q8_0_split", [128, 1, 1]));
        assert_eq!(chosen("gfx906", 4096, 3, 4096), ("mat_vec_q8_0_n4_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx803", 4096, 7, 4096), ("mat_vec_q8_0_n4_r4", [512, 2, 1]));
        assert_eq!(chosen("gfx906", 4096, 512, 4096), ("mat_tile_q8_0_128x128", [32, 4, 1]));
        assert_eq!(chosen("gfx906", 1024, 512, 1024), ("mat_tile_q8_0_64x64", [16, 8, 1]));
        assert_eq!(chosen("gfx906", 4096, 9, 4096), ("mat_tile_q8_0_64x32", [64, 1, 1]));
    }
}
