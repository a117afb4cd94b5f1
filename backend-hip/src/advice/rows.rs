//! The rows of the table.
//!
//! A row is about the chip unless its `subject` says otherwise: hangs of engines, firmware, save areas, clocks and
//! idle loads belong to the hardware, and were reported of chips, often with an override set (ROCm issue 2781 is a
//! gfx90c that pretends to be a gfx900).

use super::{Advice, Circumstance, Stack, Subject, Symptom};
use ggml_core::Phase;

const ROW: Advice = Advice {
    stack: Stack::Hip,
    symptom: Symptom::Hang,
    blocks: false,
    phases: &[],
    targets: &["gfx*"],
    subject: Subject::Chip,
    from: None,
    before: None,
    when: Circumstance::Always,
    advice: "",
    cure: "",
    source: "",
};

/// A hang that other programs ran into; what helps depends on what is set already.
const SMALL_ALLOCATIONS: Advice = Advice {
    phases: &[Phase::Allocate],
    targets: &["gfx1100"],
    from: Some((7, 1, 0)),
    source: "report of an RX 7900 XT with ROCm 7.1, which cites ROCm issues 5590 and 5581",
    ..ROW
};

const COMPUTE: &[Phase] = &[Phase::FirstCompute, Phase::Compute];
/// Graphs are code of the runtime, which chooses by the processor that it reports where arguments lie and how they
/// are flushed. The reports do not say whether the chip or that code is at fault.
const GRAPHS: Subject = Subject::ChipOrReported;
const TRANSFER: &[Phase] = &[Phase::Upload, Phase::Readback];

/// The table.
pub const ADVICE: &[Advice] = &[
    Advice {
        blocks: true,
        phases: &[Phase::FirstCompute, Phase::Compute, Phase::Upload, Phase::Readback],
        targets: &["gfx1151"],
        when: Circumstance::SavedWaves { kernel: (6, 18), hip: (7, 2, 53211) },
        advice: "the memory area in which the kernel saves waves is too small for this processor: boot with amdgpu.cwsr_enable=0, or \
                 use a kernel from 6.18 and ROCm from 7.2.1 on",
        cure: "boot with amdgpu.cwsr_enable=0",
        source: "ROCm issues 5590, 5151; TheRock 1413; rocm-systems 1807, 2200, 2324, 2811",
        ..ROW
    },
    Advice {
        symptom: Symptom::Fault,
        blocks: true,
        phases: COMPUTE,
        targets: &["gfx1150", "gfx1151"],
        when: Circumstance::Mes(0x83),
        advice: "MES firmware 0x83 is broken: install a linux-firmware that has 0x80, or 0x84 and later, and remove the \
                 files of amdgpu-dkms-firmware",
        cure: "install a linux-firmware that has MES 0x80, or 0x84 and later",
        source: "ROCm issues 5724, 5991",
        ..ROW
    },
    Advice {
        phases: TRANSFER,
        targets: &["gfx902", "gfx90c"],
        before: Some((6, 1, 0)),
        when: Circumstance::DmaCopies,
        advice: "copies by the DMA engines hang on these processors: set DIPTYCH_HIP_COPIES=kernel or HSA_ENABLE_SDMA=0, \
                 or use ROCm from 6.1 on",
        source: "ROCm issue 2781",
        ..ROW
    },
    Advice {
        phases: TRANSFER,
        targets: &["gfx1151"],
        when: Circumstance::DmaCopies,
        advice: "uploads of large models stall in the DMA engines: set DIPTYCH_HIP_COPIES=kernel",
        source: "ROCm issues 6182, 6582",
        ..ROW
    },
    Advice {
        phases: COMPUTE,
        targets: &["gfx90c"],
        when: Circumstance::Unset("HSA_XNACK"),
        advice: "kernels may hang on this processor: set HSA_XNACK=0",
        source: "TheRock issue 6513",
        ..ROW
    },
    Advice {
        targets: &["gfx1201"],
        phases: COMPUTE,
        from: Some((7, 14, 0)),
        advice: "the scheduler fails to remove a queue, and the reset that follows fails too: reboot; the Vulkan \
                 backend works on this card",
        source: "ROCm issue 6630",
        ..ROW
    },
    Advice {
        phases: COMPUTE,
        from: Some((6, 2, 0)),
        before: Some((6, 2, 41134)),
        when: Circumstance::Set("AMD_SERIALIZE_KERNEL"),
        advice: "AMD_SERIALIZE_KERNEL hangs in ROCm 6.2.0: unset it, or use 6.2.1",
        source: "ROCm 6.2.1 release notes",
        ..ROW
    },
    Advice {
        symptom: Symptom::Fault,
        phases: COMPUTE,
        when: Circumstance::Overridden,
        advice: "HSA_OVERRIDE_GFX_VERSION makes the runtime treat this processor as another one, whose code may use \
                 instructions or registers that this one lacks: unset it; kernels are built for each processor",
        source: "ROCm issue 2781 and reports of gfx1103 as 11.0.0, gfx1010 as 10.3.0",
        ..ROW
    },
    Advice {
        symptom: Symptom::Refusal,
        before: Some((5, 3, 0)),
        advice: "this runtime loads code objects of versions up to 4: those of this library are version 4; for other \
                 programs build with -mcode-object-version=4, or use ROCm from 5.7 on, which loads version 5",
        source: "HIP 5.2.3 returns 303 for version 5, HIP 5.7.1 loads it; names of comgr from ROCm 5.3.0 on",
        ..ROW
    },
    Advice {
        symptom: Symptom::Refusal,
        from: Some((5, 3, 0)),
        before: Some((6, 0, 0)),
        advice: "this runtime loads code objects of versions up to 5: those of this library are version 4; for other \
                 programs build with -mcode-object-version=5, or use ROCm from 6.4 on, which loads version 6",
        source: "HIP 5.7.1 returns 303 for version 6, HIP 6.4.3 and 7.2.4 load it",
        ..ROW
    },
    Advice {
        symptom: Symptom::Fault,
        blocks: true,
        phases: &[Phase::Enumerate],
        targets: &["gfx906"],
        when: Circumstance::KfdBefore((1, 4), "HSA_IGNORE_SRAMECC_MISREPORT"),
        advice: "the kernel's compute driver (KFD) is older than 1.4 and does not tell whether this card corrects memory \
                 errors, so AMD's runtime disables the card (\"Incompatible kernel and userspace, ... disabled. Upgrade \
                 amdgpu.\"): use Linux 6.1 or later, or a newer amdgpu-dkms",
        cure: "use Linux 6.1 or later, or a newer amdgpu-dkms",
        source: "ROCr, runtime/amd_topology.cpp; ROCm 4.1 release notes; seen with HIP 5.2.3 to 7.2.4",
        ..ROW
    },
    Advice {
        symptom: Symptom::Fault,
        blocks: true,
        phases: &[Phase::OpenDevice],
        from: Some((5, 7, 0)),
        when: Circumstance::KfdBefore((1, 9), ""),
        advice: "the kernel's compute driver (KFD) is older than 1.9 and cannot tell how much memory is free, so this \
                 runtime ends the process when it creates a stream (\"hsaKmtAvailableMemory failed\"): use Linux 6.1 or \
                 later, a newer amdgpu-dkms, or ROCm 5.2",
        cure: "use Linux 6.1 or later, a newer amdgpu-dkms, or ROCm 5.2",
        source: "ROCr, GpuAgent::ReserveScratch; seen with HIP 5.7.1, 6.4.3 and 7.2.4",
        ..ROW
    },
    Advice {
        symptom: Symptom::OutOfMemory,
        phases: &[Phase::Allocate],
        before: Some((7, 0, 0)),
        when: Circumstance::Unset("GPU_SINGLE_ALLOC_PERCENT"),
        advice: "a single allocation is limited to 85 % of the memory: set GPU_SINGLE_ALLOC_PERCENT=100",
        source: "clr, rocclr/utils/flags.hpp",
        ..ROW
    },
    Advice {
        symptom: Symptom::WrongResult,
        phases: TRANSFER,
        targets: &["gfx1034"],
        before: Some((6, 0, 0)),
        when: Circumstance::Unset("AMD_SERIALIZE_COPY"),
        advice: "a copy to the device and a copy back may be reordered: if results are zero, set AMD_SERIALIZE_COPY=2",
        source: "HIP issue 3314",
        ..ROW
    },
    Advice {
        symptom: Symptom::WrongResult,
        phases: COMPUTE,
        targets: &["gfx942", "gfx950"],
        subject: GRAPHS,
        from: Some((7, 2, 0)),
        before: Some((7, 13, 0)),
        when: Circumstance::Graphs,
        advice: "graphs may read inputs of an earlier step or compute wrong results: unset DIPTYCH_HIP_GRAPHS or set it to off",
        source: "ROCm/clr issue 279; HIP issue 3902",
        ..ROW
    },
    Advice {
        symptom: Symptom::WrongResult,
        phases: COMPUTE,
        targets: &["gfx12*"],
        subject: GRAPHS,
        from: Some((7, 2, 0)),
        when: Circumstance::Graphs,
        advice: "graphs may read inputs of an earlier step: unset DIPTYCH_HIP_GRAPHS or set it to off",
        source: "HIP issue 3887",
        ..ROW
    },
    Advice {
        phases: COMPUTE,
        from: Some((7, 2, 0)),
        before: Some((7, 2, 53211)),
        when: Circumstance::Graphs,
        advice: "a graph of several launches may hang, because the runtime announces only its first packet: unset \
                 DIPTYCH_HIP_GRAPHS or set it to off, or use ROCm from 7.2.1 on; for other programs \
                 GGML_CUDA_DISABLE_GRAPHS=1",
        source: "HIP 7.2.1 release notes; rocm-systems 3196",
        ..ROW
    },
    Advice {
        symptom: Symptom::WrongResult,
        phases: COMPUTE,
        from: Some((6, 4, 0)),
        before: Some((7, 2, 53211)),
        when: Circumstance::Branches,
        advice: "a graph that is captured from several streams may lose the order of its launches: DIPTYCH_HIP_GRAPHS=on \
                 captures from several, so unset it, or use ROCm from 7.2.1 on",
        source: "kokkos issue 8359",
        ..ROW
    },
    Advice {
        symptom: Symptom::Refusal,
        // Not where this library loads its code.
        phases: &[Phase::FirstCompute],
        targets: &["gfx115*"],
        advice: "a program that ends at its first kernel with \"invalid device function\" has no code for this \
                 processor (built with GPU_TARGETS where AMDGPU_TARGETS was read, for example): `probe --of ITS_FOLDER` \
                 lists the targets in it",
        source: "ROCm issue 5534; llama.cpp issue 19949",
        ..ROW
    },
    Advice {
        symptom: Symptom::Slow,
        from: Some((7, 14, 0)),
        when: Circumstance::Unset("HIP_VISIBLE_DEVICES"),
        advice: "a thread of this runtime polls after the first kernel and keeps a core busy while nothing runs: this \
                 library requests waits that block, which helps as long as one device is listed; with several, show the \
                 runtime only one (HIP_VISIBLE_DEVICES=0)",
        source: "TheRock issue 7051; ROCm issue 6634",
        ..ROW
    },
    Advice {
        symptom: Symptom::Slow,
        targets: &["gfx11*", "gfx12*"],
        when: Circumstance::Unset("GPU_MAX_HW_QUEUES"),
        advice: "if the card stays at full load when idle, set GPU_MAX_HW_QUEUES=1",
        source: "llama.cpp issue 3929; ROCm issues 2777, 5706",
        ..ROW
    },
    Advice {
        symptom: Symptom::Slow,
        targets: &["gfx1151"],
        when: Circumstance::KernelBefore(6, 15),
        advice: "if clocks stay near 900 MHz, use kernel 6.15 or later",
        source: "ROCm issue 5750",
        ..ROW
    },
    Advice {
        blocks: true,
        targets: &["gfx902", "gfx90c"],
        when: Circumstance::Set("HSA_XNACK"),
        advice: "HSA_XNACK=1 freezes the machine on these processors: unset it or set it to 0",
        cure: "unset HSA_XNACK",
        source: "amd-vega-rocm-vulkan-llm-toolkit, TROUBLESHOOTING.md",
        ..ROW
    },
    Advice {
        symptom: Symptom::Fault,
        targets: &["gfx902", "gfx90c"],
        when: Circumstance::UnsavedWaves,
        advice: "amdgpu.cwsr_enable=0, which helps gfx1151, is reported to break loading on these processors: boot \
                 without it",
        source: "amd-vega-rocm-vulkan-llm-toolkit",
        ..ROW
    },
    Advice {
        when: Circumstance::MaySaveWaves,
        advice: "many small allocations of a few thousand bytes are reported to hang: this library makes a few large ones; \
                 for other programs, amdgpu.cwsr_enable=0 or ROCm 6.4.4 helped",
        ..SMALL_ALLOCATIONS
    },
    Advice {
        when: Circumstance::UnsavedWaves,
        advice: "many small allocations of a few thousand bytes are reported to hang: this library makes a few large ones; \
                 for other programs, ROCm 6.4.4 helped",
        ..SMALL_ALLOCATIONS
    },
    Advice {
        stack: Stack::Vulkan,
        symptom: Symptom::Fault,
        phases: COMPUTE,
        targets: &["gfx12*"],
        when: Circumstance::MesaBefore((25, 3, 2)),
        advice: "Mesa before 25.3.2 merges accesses of 8 and 16 bits incorrectly on these processors, which causes random hangs: use \
                 25.3.2 or later",
        source: "Mesa 25.3.2 release notes",
        ..ROW
    },
    Advice {
        stack: Stack::Vulkan,
        symptom: Symptom::Fault,
        phases: COMPUTE,
        when: Circumstance::KernelFrom(7, 0),
        advice: "kernels from 7.0 on reset a ring after 2 s: if a device is lost in a long run, boot with \
                 amdgpu.lockup_timeout=10000,60000,10000,10000",
        source: "llama.cpp issues 25664, 21724",
        ..ROW
    },
];
