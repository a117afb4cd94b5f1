//! Recurrences with a state, computed by chunks of tokens (`chunks.glsl`) in two dispatches: first the
//! effects of the tokens of each chunk on each other, then the state from chunk to chunk.

use super::recurrent::States;
use super::{Context, Dispatch, Operand, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use bytemuck::NoUninit;
use ggml_core::kernel::chunks::{Chunks, MAX_COLUMN};

/// Invocations of a work-group, and columns of the state per work-group of the second dispatch.
const WORKGROUP: u32 = 256;
const COLUMNS: u32 = 16;
/// Maximum workgroup-shared memory of the two kernels in bytes.
const SHARED_BYTES: u32 = 32 << 10;
/// Maximum elements of a column in the two variants.
const ROOMS: [u32; 2] = [64, MAX_COLUMN];

/// The shaders of an operation.
pub(super) struct Family {
    /// The shaders of the first and the second dispatch.
    pub(super) shaders: [&'static str; 2],
    /// Operands read by the first dispatch, which then writes scratch memory.
    pub(super) first: [usize; 5],
    /// Operands read by the second dispatch, followed by scratch memory.
    pub(super) second: [usize; 5],
}

/// Returns true if the device can execute the kernels.
fn able(profile: &Profile) -> bool {
    profile.workgroup(WORKGROUP) == WORKGROUP && profile.caps.shared_bytes >= SHARED_BYTES
}

fn spec(shader: &'static str, room: u32, aligned: bool) -> PipelineSpec {
    pipeline(shader, "default", &[WORKGROUP, room, aligned.into()])
}

/// Returns the dispatches of a node. `offsets_and_strides`: offsets and strides of keys and queries. `None` if the device
/// cannot execute them, or its limits on grids or windows are too low.
pub(super) fn plan(
    c: &Context<'_>,
    family: &Family,
    p: &impl NoUninit,
    chunks: Chunks,
    states: &States,
    offsets_and_strides: [[u32; 3]; 2],
) -> Option<Vec<Dispatch>> {
    let room = *ROOMS.iter().find(|&&room| states.length <= room && able(c.profile))?;
    let aligned =
        offsets_and_strides.as_flattened().iter().chain([&states.length]).all(|n| n.is_multiple_of(4));
    let bytes = usize::try_from(chunks.bytes).ok().filter(|&bytes| bytes <= c.window_limit())?;
    let [chunk, walk] = family.shaders;
    let of = |shader, read: [usize; 5], more: &[Operand], grid| {
        let mut dispatch = dispatch(spec(shader, room, aligned), read.map(|i| c.src(i)), p, grid);
        dispatch.operands.extend(more);
        dispatch
    };
    let (between, result) = (Operand::Scratch(bytes), Operand::Tensor(c.node));
    let both = vec![
        of(chunk, family.first, &[between], [chunks.count, states.heads, 1]),
        of(
            walk,
            family.second,
            &[between, result],
            [states.columns.div_ceil(COLUMNS), states.heads, states.slots],
        ),
    ];
    let limits = c.profile.caps.max_workgroups;
    both.iter().all(|dispatch| (0..3).all(|i| dispatch.grid[i] <= limits[i])).then_some(both)
}

/// Returns the pipelines of an operation.
pub(super) fn pipelines(profile: &Profile, family: &Family) -> Vec<PipelineSpec> {
    let rooms = ROOMS.iter().filter(|_| able(profile));
    let specs = rooms.flat_map(|&room| [false, true].map(|aligned| (room, aligned)));
    specs.flat_map(|(room, aligned)| family.shaders.map(|shader| spec(shader, room, aligned))).collect()
}
