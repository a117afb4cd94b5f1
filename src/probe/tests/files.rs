//! Sizes of memory, and AMD's own files.

use super::*;

/// Sizes of memory and AMD's own files for the card, which are not this library's code for it.
#[test]
fn memory_and_amds_own_files() {
    let library = "opt/rocm-6.4.4/lib/rocblas/library";
    let files = [
        ("sys/class/drm/card0/device/mem_info_vram_total", "8573157376\n"),
        ("sys/class/drm/card0/device/mem_info_gtt_total", "33554432000\n"),
        ("lib/firmware/amdgpu/vega10_mec.bin.zst", ""),
        ("lib/firmware/amdgpu/vega10_sdma.bin.zst", ""),
        ("lib/firmware/amdgpu/vega20_mec.bin.zst", ""),
        (&format!("{library}/TensileLibrary_Type_HH_gfx906.co"), ""),
        (&format!("{library}/TensileLibrary_Type_HH_gfx1100.co"), ""),
        ("opt/rocm-6.4.4/share/miopen/db/gfx900_56.HIP.fdb.txt", ""),
    ];
    let root = system(Some(&VEGA56), "6.12.9\n", &files, &rocm("6.4.4"));
    let (device, text) = probe_one(&root);
    let mut states = states(&device);
    assert_eq!(states.remove(1), "card hardware allows", "memory has a line of its own");
    let but = ["card firmware allows", "hip AMD's files blocks", "hip support blocks"];
    assert_eq!(states, expected(&but));
    says(
        &text,
        &[
            "VRAM 8.0 GiB (on an APU the carve-out), GTT 31.2 GiB (host memory that it may map)",
            "firmware files in /lib/firmware/amdgpu: 2 vega10_*",
            "for gfx900, rocBLAS: 0 of 2 files in /opt/rocm-6.4.4/lib/rocblas/library; MIOpen: 1 of 1 files",
            "programs that use rocBLAS fail on this card; Diptych uses none of these",
            "hip has code for the card yes: code objects for gfx900 are built in",
        ],
    );
    let executes = executes(&device, AccessPath::Hip);
    assert_eq!(executes, (None, "nothing was run; no gate blocks without an override"), "not a gate of ours");
    write(root.path(), &format!("{library}/Kernels.so-000-gfx900.hsaco"), "");
    says(&probe_one(&root).1, &["for gfx900, rocBLAS: 1 of 3 files"]);
    // The libraries choose by the processor that the runtime reports.
    write(root.path(), "proc/self/environ", "HSA_OVERRIDE_GFX_VERSION=11.0.0\0");
    says(&probe_one(&root).1, &["for gfx1100, rocBLAS: 1 of 3 files", "2 vega10_*"]);
}
