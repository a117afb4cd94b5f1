//! The lane probe: checks subgroup operations on the device.
//!
//! A tiny shader runs when a device is opened. Each invocation records its results, and the host recomputes
//! every value with plain integers. Kernels use a subgroup operation only if the driver reports it and all of
//! its recorded results are correct. (A driver can be wrong: lavapipe with a forced vector width of 64 lanes
//! reports 64 and computes different sums.)

use crate::arch::SubgroupOps;
use crate::raw::buffer::Buffer;
use crate::raw::commands::CommandPool;
use crate::raw::descriptors::{DescriptorPool, Window};
use crate::raw::device::Device;
use crate::raw::heaps::Side;
use crate::raw::memory::MemoryPool;
use crate::raw::pipeline::{Capture, Layout, Pipeline, Recipe};
use ggml_core::Deadline;
use ggml_core::{Error, Missing, Result};
use shaders::ShaderId;
use std::sync::Arc;

/// Words of one invocation's record.
const WORDS: usize = 16;

/// Invocations of the probe's single work-group: several subgroups of any size up to 64.
const INVOCATIONS: u32 = 128;

/// The record of one invocation, in the order of `lane_probe.comp`.
#[derive(Clone, Copy, Debug)]
struct Record {
    size: u32,
    lane: u32,
    subgroup: u32,
    value: u32,
    shared_sum: u32,
    subgroup_sum: u32,
    shuffled: u32,
    ballot: [u32; 4],
    ballot_count: u32,
    exclusive_count: u32,
    branch_sum: u32,
    broadcast: u32,
}

impl Record {
    fn new(w: &[u32; WORDS]) -> Record {
        Record {
            size: w[0],
            lane: w[1],
            subgroup: w[2],
            value: w[4],
            shared_sum: w[5],
            subgroup_sum: w[6],
            shuffled: w[7],
            ballot: [w[8], w[9], w[10], w[11]],
            ballot_count: w[12],
            exclusive_count: w[13],
            branch_sum: w[14],
            broadcast: w[15],
        }
    }

    fn odd(&self) -> bool {
        self.value & 1 != 0
    }
}

/// Result of one run of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Finding {
    /// The subgroup size, if all invocations agree on it and their lanes are consistent with it.
    size: Option<u32>,
    /// True if sums in workgroup-shared memory are correct.
    shared: bool,
    /// Operations whose records are all correct.
    ops: SubgroupOps,
}

/// Result of the probe at open.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneReport {
    /// Operations that kernels may use.
    pub(crate) ops: SubgroupOps,
    /// Subgroup sizes as pairs of required and observed size: first the pipeline that requires none, then
    /// those that do.
    sizes: Vec<(Option<u32>, Option<u32>)>,
    agrees: bool,
}

impl LaneReport {
    /// Returns a summary for reports.
    pub(crate) fn summary(&self) -> String {
        let show = |(asked, seen): &(Option<u32>, Option<u32>)| {
            let seen = seen.map_or("inconsistent".into(), |s| s.to_string());
            asked.map_or(seen.clone(), |a| format!("{a}: {seen}"))
        };
        let sizes: Vec<String> = self.sizes.iter().map(show).collect();
        format!("{}, lanes {}", if self.agrees { "agrees" } else { "disagrees" }, sizes.join("; "))
    }
}

/// Runs the probe on a device.
///
/// # Errors
/// [`Error::Unavailable`] if even sums in workgroup-shared memory are wrong, and errors of the driver calls.
pub(crate) fn run(device: &Arc<Device>, pool: &Arc<MemoryPool>, deadline: &Deadline) -> Result<LaneReport> {
    let caps = &device.facts.caps;
    let reported = caps.subgroup;
    let full = reported.arithmetic && reported.shuffle && reported.ballot;
    let variant = if full { "full" } else { "basic" };
    let mut report =
        LaneReport { ops: if full { reported } else { Default::default() }, sizes: vec![], agrees: true };
    let sizes = (0..8).map(|i| 1 << i).filter(|s| (caps.subgroup_min..=caps.subgroup_max).contains(s));
    let required = sizes.filter(|_| caps.subgroup_control).map(Some);
    for asked in std::iter::once(None).chain(required) {
        let finding = once(device, pool, variant, asked, deadline)?;
        if !finding.shared {
            return Err(Error::Unavailable {
                backend: device.name.clone(),
                phase: deadline.phase(),
                missing: Missing::Feature,
                reason: format!("{} computes wrong sums in workgroup-shared memory", device.facts.name),
            });
        }
        let agrees = finding.size == Some(asked.unwrap_or(caps.subgroup_default));
        let found = if agrees { finding.ops } else { SubgroupOps::default() };
        report.agrees &= agrees && (!full || found == reported);
        report.ops.arithmetic &= found.arithmetic;
        report.ops.shuffle &= found.shuffle;
        report.ops.ballot &= found.ballot;
        report.sizes.push((asked, finding.size));
    }
    if !report.agrees {
        tracing::warn!(backend = %device.name, probe = report.summary(), "subgroup operations differ from the driver's report");
    }
    Ok(report)
}

fn once(
    device: &Arc<Device>,
    pool: &Arc<MemoryPool>,
    variant: &str,
    subgroup: Option<u32>,
    deadline: &Deadline,
) -> Result<Finding> {
    let shader = ShaderId::find("lane_probe", variant).ok_or_else(|| {
        Error::argument(format!("shader lane_probe/{variant}"), "none", "a shader of the table")
    })?;
    let layout = Layout::new(device, &[1], 4)?;
    let recipe = Recipe {
        shader,
        specialization: &[INVOCATIONS],
        subgroup,
        has_subgroups: true,
        capture: Capture::Nothing,
        name: "lane probe",
    };
    let pipeline = Arc::new(Pipeline::new(&layout, None, recipe)?);
    let bytes = INVOCATIONS as usize * WORDS * 4;
    let buffer = Buffer::new(pool, bytes as u64, Side::Host, "lane probe")?;
    let window = Window { buffer: buffer.clone(), offset: 0, bytes: bytes as u64 };
    let set = DescriptorPool::new(device, 1, 1)?.set(&layout, &[window])?;
    let commands = CommandPool::new(device, deadline.phase())?;
    let mut recorder = commands.record(deadline.phase())?;
    let seed = 0x5eed_0000 | INVOCATIONS;
    recorder.dispatch(&pipeline, &set, &seed.to_le_bytes(), [0; 3], [1; 3])?;
    let mut recorded = recorder.finish()?;
    let value = recorded.submit(deadline)?;
    device.wait(value, deadline)?;
    let mut words = vec![[0u32; WORDS]; INVOCATIONS as usize];
    buffer.read(0, bytemuck::cast_slice_mut(&mut words))?;
    let records: Vec<Record> = words.iter().map(Record::new).collect();
    Ok(judge(&records, seed))
}

/// Returns the value that an invocation contributes; same as `lane_value` in the shader.
fn lane_value(seed: u32, index: u32) -> u32 {
    let mut x = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9));
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

fn judge(records: &[Record], seed: u32) -> Finding {
    let values = records.iter().zip(0..).all(|(r, i)| r.value == lane_value(seed, i));
    let total = records.iter().fold(0u32, |sum, r| sum.wrapping_add(r.value));
    let shared = values && records.iter().all(|r| r.shared_sum == total);
    let size = records.first().map_or(0, |r| r.size);
    let mut finding = Finding { size: None, shared, ops: SubgroupOps::default() };
    let Some(groups) = groups(records, size) else { return finding };
    finding.size = Some(size);
    finding.ops = SubgroupOps {
        arithmetic: values && groups.iter().all(|g| arithmetic(g)),
        shuffle: values && groups.iter().all(|g| shuffle(g)),
        ballot: values && groups.iter().all(|g| ballot(g)),
    };
    finding
}

/// Groups the records by subgroup, sorted by lane; `None` if they are inconsistent.
fn groups(records: &[Record], size: u32) -> Option<Vec<Vec<Record>>> {
    let mut groups: Vec<Vec<Record>> = Vec::new();
    for (record, place) in records.iter().zip(0u64..) {
        let index = record.subgroup as usize;
        if record.size != size || record.lane >= size || index >= records.len() {
            return None;
        }
        // Kernels divide work by the index of an invocation and by that of its subgroup.
        if u64::from(record.subgroup) * u64::from(size) + u64::from(record.lane) != place {
            return None;
        }
        if groups.len() <= index {
            groups.resize(index + 1, Vec::new());
        }
        groups[index].push(*record);
    }
    for group in &mut groups {
        group.sort_by_key(|r| r.lane);
        let distinct = group.windows(2).all(|pair| pair[0].lane != pair[1].lane);
        if !distinct || group.is_empty() {
            return None;
        }
    }
    // If the work-group is a multiple of the subgroup size, every subgroup must be full.
    let full = !records.len().is_multiple_of(size.max(1) as usize)
        || groups.iter().all(|g| g.len() == size as usize);
    full.then_some(groups)
}

fn sum<'a>(records: impl Iterator<Item = &'a Record>) -> u32 {
    records.fold(0, |sum, r| sum.wrapping_add(r.value))
}

fn arithmetic(group: &[Record]) -> bool {
    let (all, odd) = (sum(group.iter()), sum(group.iter().filter(|r| r.odd())));
    group.iter().all(|r| r.subgroup_sum == all && r.branch_sum == if r.odd() { odd } else { 0 })
}

fn shuffle(group: &[Record]) -> bool {
    let partner = |r: &Record| group.iter().find(|p| p.lane == r.lane ^ 1);
    group.iter().all(|r| partner(r).is_none_or(|p| r.shuffled == p.value))
}

fn ballot(group: &[Record]) -> bool {
    let mut bits = 0u128;
    for r in group.iter().filter(|r| r.odd()) {
        bits |= 1 << r.lane.min(127);
    }
    let words: [u32; 4] = std::array::from_fn(|i| (bits >> (32 * i)) as u32);
    let first = group.first().map_or(0, |r| r.value);
    group.iter().all(|r| {
        let below = bits & ((1u128 << r.lane.min(127)) - 1);
        r.ballot == words
            && r.ballot_count == bits.count_ones()
            && r.exclusive_count == below.count_ones()
            && r.broadcast == first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the records of a device that computes everything correctly.
    fn device(size: u32) -> Vec<Record> {
        let seed = 7;
        let total = (0..INVOCATIONS).fold(0u32, |s, i| s.wrapping_add(lane_value(seed, i)));
        let mut records = Vec::new();
        for index in 0..INVOCATIONS {
            let first = index / size * size;
            let members: Vec<u32> = (first..first + size).map(|i| lane_value(seed, i)).collect();
            let add = |odd: bool| {
                members.iter().filter(|v| !odd || *v & 1 == 1).fold(0u32, |s, v| s.wrapping_add(*v))
            };
            let bits = members.iter().zip(0..).fold(0u128, |b, (v, i)| b | u128::from(v & 1) << i);
            let (lane, value) = (index - first, lane_value(seed, index));
            records.push(Record {
                size,
                lane,
                subgroup: index / size,
                value,
                shared_sum: total,
                subgroup_sum: add(false),
                shuffled: members[(lane ^ 1) as usize],
                ballot: std::array::from_fn(|i| (bits >> (32 * i)) as u32),
                ballot_count: bits.count_ones(),
                exclusive_count: (bits & ((1 << lane) - 1)).count_ones(),
                branch_sum: if value & 1 == 1 { add(true) } else { 0 },
                broadcast: members[0],
            });
        }
        records
    }

    #[test]
    fn each_wrong_operation_is_found() {
        let all = SubgroupOps { arithmetic: true, shuffle: true, ballot: true };
        for size in [4, 8, 32, 64, 128] {
            assert_eq!(judge(&device(size), 7), Finding { size: Some(size), shared: true, ops: all });
        }
        let spoilt = |change: fn(&mut Record)| {
            let mut records = device(32);
            change(&mut records[77]);
            judge(&records, 7)
        };
        assert!(!spoilt(|r| r.shared_sum += 1).shared);
        assert!(!spoilt(|r| r.subgroup_sum += 1).ops.arithmetic);
        assert!(!spoilt(|r| r.branch_sum ^= 1).ops.arithmetic);
        assert!(!spoilt(|r| r.shuffled ^= 1).ops.shuffle);
        assert!(!spoilt(|r| r.ballot[1] = 1).ops.ballot);
        assert!(!spoilt(|r| r.exclusive_count += 1).ops.ballot);
        assert_eq!(spoilt(|r| r.size = 64).size, None);
        assert_eq!(spoilt(|r| r.lane = 0).size, None);
        assert_eq!(spoilt(|r| r.subgroup = 999).size, None);
        assert!(!spoilt(|r| r.value ^= 1).shared);
        // Full and consistent subgroups in another order.
        let mut permuted = device(32);
        for record in &mut permuted {
            record.subgroup ^= 1;
        }
        assert_eq!(judge(&permuted, 7).size, None);
    }
}
