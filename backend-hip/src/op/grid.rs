//! Work-groups: their number, and launches with them.

use super::{Context, Launch, Operand, Refusal};
use crate::arch::{Family, Profile};
use bytemuck::{NoUninit, bytes_of};
use ggml_core::{DType, TensorId};

/// Threads of a work-group of the kernels that process rows.
pub(super) const ROW_THREADS: u32 = 256;

/// Returns the work-groups of a kernel whose work-groups of [`ROW_THREADS`] cover rectangles. The width is a
/// power of two of threads, just enough for the chunks of a row; the height is the number of rows that the
/// remaining threads cover. The rule is that of `index.h`.
pub(super) fn row_groups(chunks: u32, rows: u64) -> u64 {
    let log2 = chunks.max(1).next_power_of_two().ilog2().min(8);
    u64::from(chunks.div_ceil(1 << log2)) * rows.div_ceil(256 >> log2)
}

/// Returns the rows of a tensor with these extents. Kernels count them in 32 bits.
pub(super) fn rows_of(ne: [u32; 4]) -> Result<u64, Refusal> {
    let rows = ne[1..].iter().try_fold(1u32, |n, &e| n.checked_mul(e));
    rows.map(u64::from).ok_or_else(|| Refusal(format!("{ne:?} has 2^32 rows or more")))
}

/// Checks a grid against the device's limits: the threads of a dimension are counted in 32 bits, and NVIDIA
/// limits the second and third dimension to 65535.
fn checked(profile: &Profile, groups: [u64; 3], threads: u32) -> Result<[u32; 3], Refusal> {
    let most = match profile.family {
        Family::Nvidia => [i32::MAX as u64, 65535, 65535],
        _ => [u64::from(u32::MAX / threads), u64::from(u32::MAX), u64::from(u32::MAX)],
    };
    if groups.iter().zip(&most).any(|(n, most)| n > most) {
        return Err(Refusal(format!(
            "needs {groups:?} work-groups of {threads} threads, too many for one launch"
        )));
    }
    Ok(groups.map(|n| n.max(1) as u32))
}

/// Returns a launch of a kernel whose last operand is the result.
pub(super) fn launch<P: NoUninit>(
    c: &Context<'_>,
    (module, kernel): (&'static str, &'static str),
    operands: Vec<Operand>,
    params: &P,
    groups: [u64; 3],
    threads: u32,
) -> Result<Launch, Refusal> {
    Ok(Launch {
        module,
        kernel,
        operands,
        written: 1,
        params: bytes_of(params).to_vec(),
        grid: checked(c.profile, groups, threads)?,
        block: [threads, 1, 1],
        lds_bytes: 0,
    })
}

/// Returns a launch of a kernel in which a thread computes `chunk` adjacent elements of a row.
pub(super) fn by_rows<P: NoUninit>(
    c: &Context<'_>,
    kernel: (&'static str, &'static str),
    operands: Vec<Operand>,
    params: &P,
    ne: [u32; 4],
    chunk: u32,
) -> Result<Vec<Launch>, Refusal> {
    let groups = row_groups(ne[0].div_ceil(chunk), rows_of(ne)?);
    Ok(vec![launch(c, kernel, operands, params, [groups, 1, 1], ROW_THREADS)?])
}

/// Returns a launch of one of two kernels: with a wavefront per row, or a work-group per row.
pub(super) fn row_by_row<P: NoUninit>(
    c: &Context<'_>,
    module: &'static str,
    [wave, group]: [&'static str; 2],
    operands: Vec<Operand>,
    params: &P,
    ne: [u32; 4],
) -> Result<Vec<Launch>, Refusal> {
    let rows = rows_of(ne)?;
    let (kernel, groups) = match crate::tuning::row_by_wave(c.profile, ne[0], rows) {
        true => (wave, rows.div_ceil(u64::from(ROW_THREADS / c.profile.wave))),
        false => (group, rows),
    };
    Ok(vec![launch(c, (module, kernel), operands, params, [groups, 1, 1], ROW_THREADS)?])
}

/// Returns scratch operands for arrays of (count, bytes per element), each aligned to 256 bytes.
pub(super) fn scratch<const N: usize>(
    c: &Context<'_>,
    arrays: [(u64, u64); N],
) -> Result<[Operand; N], Refusal> {
    let mut end = 0usize;
    let mut operands = [Operand::Scratch(0, 0); N];
    for (operand, (count, each)) in operands.iter_mut().zip(arrays) {
        let bytes = count.checked_mul(each).and_then(|n| usize::try_from(n).ok());
        let bytes = bytes.filter(|&n| n <= isize::MAX as usize / 2 - end).ok_or_else(|| {
            let name = c.graph.tensor(c.node).op().map_or("LEAF", |op| op.name());
            Refusal(format!("{name} needs more scratch than can be addressed"))
        })?;
        *operand = Operand::Scratch(end, bytes);
        end = (end + bytes).next_multiple_of(256);
    }
    Ok(operands)
}

/// Returns whole tensors as operands.
pub(super) fn tensors(ids: &[TensorId]) -> Vec<Operand> {
    ids.iter().map(|&id| Operand::Tensor(id)).collect()
}

/// Returns the refusal of a type without kernel.
pub(super) fn no_kernel(c: &Context<'_>, dtype: DType) -> Refusal {
    let name = c.graph.tensor(c.node).op().map_or("LEAF", |op| op.name());
    Refusal(format!("{name} has no HIP kernel for {dtype}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;

    #[test]
    fn rectangles_cover_all_rows() {
        // One chunk per row: 256 rows in a work-group.
        assert_eq!((row_groups(1, 1), row_groups(1, 256), row_groups(1, 257)), (1, 1, 2));
        // 65 chunks: 128 threads wide, two rows high.
        assert_eq!((row_groups(65, 3), row_groups(64, 8), row_groups(64, 9)), (2, 2, 3));
        // Rows longer than a work-group: several work-groups per row.
        assert_eq!((row_groups(256, 3), row_groups(257, 3), row_groups(1000, 1)), (3, 6, 4));
        assert!(rows_of([1, 1 << 16, 1 << 16, 1]).is_err());
    }

    #[test]
    fn grids_have_limits() {
        let profile = |name: &str| Profile::of(&Target::parse(name).unwrap()).unwrap();
        let amd = profile("gfx906");
        assert_eq!(checked(&amd, [7, 0, 70000], 256).unwrap(), [7, 1, 70000]);
        assert!(checked(&amd, [1 << 24, 1, 1], 256).is_err());
        assert!(checked(&profile("sm_90"), [1 << 24, 65535, 1], 256).is_ok());
        assert!(checked(&profile("sm_90"), [1, 65536, 1], 256).is_err());
    }
}
