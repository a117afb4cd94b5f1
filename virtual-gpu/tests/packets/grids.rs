//! Grids that are no multiple of a work-group.

use crate::packets::process::{DATA, Process};
use crate::support::{Arguments, TARGETS, compile};
use virtual_gpu::{Options, Target};

/// Every work-item counts itself at its global id, and notes the size that the packet has, its id in the work-group and
/// the work-items that its work-group counted.
const SOURCE: &str = "
    GLOBAL void ids(u32* out, u32 sx, u32 sy, u32 sz, u32 nx, u32 ny) {
        SHARED static u32 items;
        u32 first = local_x() == 0 && local_y() == 0 && local_z() == 0;
        if (first) items = 0;
        barrier();
        __hip_atomic_fetch_add(&items, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
        barrier();
        u32 x = group_x() * sx + local_x(), y = group_y() * sy + local_y(), z = group_z() * sz + local_z();
        u32* record = out + 4 * ((z * ny + y) * nx + x);
        const __attribute__((address_space(4))) u16* packet =
            (const __attribute__((address_space(4))) u16*)__builtin_amdgcn_dispatch_ptr();
        __hip_atomic_fetch_add(record, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        record[1] = packet[2] | packet[3] << 8 | packet[4] << 16;
        record[2] = local_x() | local_y() << 8 | local_z() << 16;
        record[3] = items;
    }";

fn check(target: Target, level: &str, grid: [u32; 3], threads: [u16; 3]) {
    let object = compile::hip(target, level, &format!("{}\n{SOURCE}", include_str!("../programs/prelude.h")));
    let mut process = Process::new(target, Options::default());
    process.load(&object);
    let size = threads.map(u32::from);
    let arguments =
        Arguments::new().add(DATA).add(size[0]).add(size[1]).add(size[2]).add(grid[0]).add(grid[1]);
    let [lds, scratch] = [0, 1].map(|i| process.descriptor("ids")[i]);
    let dispatch = process.dispatch("ids", &arguments).grid(grid, threads).sizes(lds, scratch);
    let counters = dispatch.launch().unwrap_or_else(|fault| panic!("{} {level}: {fault}", target.name()));
    let count = grid.iter().product::<u32>() as usize;
    let packed = |v: [u32; 3]| v[0] | v[1] << 8 | v[2] << 16;
    let group_of = |at: [u32; 3]| [0, 1, 2].map(|i| at[i] / size[i]);
    let size_of = |group: [u32; 3]| [0, 1, 2].map(|i| size[i].min(grid[i] - group[i] * size[i]));
    let mut waves = 0;
    for (i, record) in process.data.words(0, 4 * count).chunks(4).enumerate() {
        let i = i as u32;
        let at = [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]];
        let local = [0, 1, 2].map(|i| at[i] % size[i]);
        let items = size_of(group_of(at)).iter().product();
        assert_eq!(record, [1, packed(size), packed(local), items], "{} {level} {at:?}", target.name());
        waves += u64::from(local == [0; 3]) * u64::from(items.div_ceil(64));
    }
    assert_eq!(counters.waves, waves);
    // Nothing was written behind the grid.
    assert!(process.data.words(16 * count, 256).iter().all(|&word| word == 0));
}

/// Eight kinds of work-groups: each axis has whole and partial ones.
#[test]
fn partial_groups_along_all_axes() {
    for target in TARGETS {
        for level in ["-O0", "-O3"] {
            check(target, level, [70, 5, 3], [32, 2, 2]);
        }
    }
}

#[test]
fn grids_of_all_sizes() {
    let (target, level) = (Target::Gfx906, "-O1");
    check(target, level, [64, 4, 2], [32, 2, 2]); // no partial work-group
    check(target, level, [70, 4, 2], [32, 2, 2]); // along one axis only
    check(target, level, [3, 1, 1], [256, 1, 1]); // one work-group, less than a wavefront
    check(target, level, [7, 5, 9], [4, 4, 4]);
    check(target, level, [1, 1, 1], [1, 1, 1]);
    check(target, level, [257, 1, 1], [256, 1, 1]); // the last has one work-item
}
