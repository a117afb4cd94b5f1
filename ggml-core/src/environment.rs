//! The environment variables that reports record, because the results of a driver depend on them.
//!
//! The lists are exact. A prefix would also record what a user keeps in variables of similar names, such as the
//! key of an account, and reports are made to be sent to others.

use std::ffi::OsString;

/// Variables of this project.
pub const OWN: &[&str] = &[
    "DIPTYCH_CUDA_LIBRARY",
    "DIPTYCH_HIP_BREADCRUMBS",
    "DIPTYCH_HIP_COPIES",
    "DIPTYCH_HIP_GRAPHS",
    "DIPTYCH_HIP_HOST_WEIGHTS",
    "DIPTYCH_HIP_LIBRARY",
    "DIPTYCH_HIP_MATRIX_UNITS",
    "DIPTYCH_HIP_RTC",
    "DIPTYCH_HIP_STREAM",
    "DIPTYCH_ROUTES",
    "DIPTYCH_TUNE",
    "DIPTYCH_VIRTUAL_CARD",
    "DIPTYCH_VIRTUAL_CHECKS",
    "DIPTYCH_VIRTUAL_FAULTS",
    "DIPTYCH_VIRTUAL_ORDER",
    "DIPTYCH_VIRTUAL_SEED",
    "DIPTYCH_VIRTUAL_VULKAN_FAULTS",
    "DIPTYCH_VULKAN_ARCH",
    "DIPTYCH_VULKAN_MATRIX_UNITS",
    "DIPTYCH_VULKAN_MEMORY",
    "DIPTYCH_VULKAN_SHARED_TILES",
    "DIPTYCH_VULKAN_STAGED_WEIGHTS",
];

/// Variables that change the behaviour of a Vulkan loader, layer or driver.
pub const VULKAN: &[&str] = &[
    "ACO_DEBUG",
    "AMD_DEBUG",
    "AMD_VULKAN_ICD",
    "DISABLE_LAYER_AMD_SWITCHABLE_GRAPHICS_1",
    "DRI_PRIME",
    "GALLIVM_DEBUG",
    "GALLIVM_PERF",
    "LP_DEBUG",
    "LP_FORCE_SSE2",
    "LP_NATIVE_VECTOR_WIDTH",
    "LP_NUM_THREADS",
    "LP_PERF",
    "LVP_DEBUG",
    "LVP_POISON_MEMORY",
    "MESA_DEBUG",
    "MESA_GLSL_CACHE_DISABLE",
    "MESA_LOADER_DRIVER_OVERRIDE",
    "MESA_SHADER_CACHE_DIR",
    "MESA_SHADER_CACHE_DISABLE",
    "MESA_SHADER_CACHE_MAX_SIZE",
    "MESA_SPIRV_DEBUG",
    "MESA_VK_ABORT_ON_DEVICE_LOSS",
    "MESA_VK_DEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT_DEBUG",
    "MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE",
    "MESA_VK_ENABLE_SUBMIT_THREAD",
    "MESA_VK_TRACE",
    "MESA_VK_VERSION_OVERRIDE",
    "NIR_DEBUG",
    "NODEVICE_SELECT",
    "RADV_BUILD_ID_OVERRIDE",
    "RADV_CL_BUILD_ID_OVERRIDE",
    "RADV_DEBUG",
    "RADV_FORCE_FAMILY",
    "RADV_PERFTEST",
    "RADV_PROFILE_PSTATE",
    "RADV_TRAP_HANDLER",
    "VK_ADD_DRIVER_FILES",
    "VK_ADD_IMPLICIT_LAYER_PATH",
    "VK_ADD_LAYER_PATH",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_IMPLICIT_LAYER_PATH",
    "VK_INSTANCE_LAYERS",
    "VK_LAYER_PATH",
    "VK_LOADER_DEBUG",
    "VK_LOADER_DEVICE_SELECT",
    "VK_LOADER_DISABLE_INST_EXT_FILTER",
    "VK_LOADER_DISABLE_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_LAYERS_ALLOW",
    "VK_LOADER_LAYERS_DISABLE",
    "VK_LOADER_LAYERS_ENABLE",
    "__NV_PRIME_RENDER_OFFLOAD",
    "__VK_LAYER_NV_optimus",
];

/// Variables of the HIP runtime, of CUDA and of the layers below them that change the device or its behaviour.
pub const HIP: &[&str] = &[
    "HSA_OVERRIDE_GFX_VERSION",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_ENABLE_SDMA",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_ENABLE_INTERRUPT",
    "HSA_XNACK",
    "HSA_MAX_QUEUES",
    "HSA_ENABLE_MWAITX",
    "HSA_SCRATCH_SINGLE_LIMIT",
    "HSA_NO_SCRATCH_RECLAIM",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR",
    "GPU_MAX_HW_QUEUES",
    "GPU_MAX_HEAP_SIZE",
    "GPU_SINGLE_ALLOC_PERCENT",
    "GPU_ENABLE_WGP_MODE",
    "GPU_ENABLE_WAVE32_MODE",
    "GPU_STAGING_BUFFER_SIZE",
    "GPU_PINNED_MIN_XFER_SIZE",
    "GPU_FORCE_BLIT_COPY_SIZE",
    "DEBUG_HIP_DYNAMIC_QUEUES",
    "HIP_HIDDEN_FREE_MEM",
    "HIP_HOST_COHERENT",
    "HIP_FORCE_DEV_KERNARG",
    "HIP_LAUNCH_BLOCKING",
    "AMD_SERIALIZE_KERNEL",
    "AMD_SERIALIZE_COPY",
    "AMD_DIRECT_DISPATCH",
    "AMD_LOG_LEVEL",
    "AMD_COMGR_CACHE",
    "HIPRTC_COMPILE_OPTIONS_APPEND",
    "CUDA_DEVICE_ORDER",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "ROCM_PATH",
    "HIP_PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    // Of ROCr (core/util/flag.h) and of the library below it (libhsakmt).
    "HSA_ALLOCATE_QUEUE_DEV_MEM",
    "HSA_CHECK_FLAT_SCRATCH",
    "HSA_CHECK_USERPTR",
    "HSA_COOP_CU_COUNT",
    "HSA_COUNTED_QUEUE_SIZE",
    "HSA_CO_DMACOPY_SIZE",
    "HSA_CU_MASK",
    "HSA_CU_MASK_SKIP_INIT",
    "HSA_DISABLE_CACHE",
    "HSA_DISABLE_IMAGE",
    "HSA_DISCOVER_COPY_AGENTS",
    "HSA_ENABLE_DEBUG",
    "HSA_ENABLE_DTIF",
    "HSA_ENABLE_DXG_DETECTION",
    "HSA_ENABLE_IPC_MODE_LEGACY",
    "HSA_ENABLE_QUEUE_FAULT_MESSAGE",
    "HSA_ENABLE_SCRATCH_ALT",
    "HSA_ENABLE_SCRATCH_ASYNC_RECLAIM",
    "HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE",
    "HSA_ENABLE_SDMA_GANG",
    "HSA_ENABLE_SDMA_HDP_FLUSH",
    "HSA_ENABLE_SDMA_RECOMMENDED_ENG",
    "HSA_ENABLE_SRAMECC",
    "HSA_ENABLE_VM_FAULT_MESSAGE",
    "HSA_FORCE_FINE_GRAIN_PCIE",
    "HSA_FORCE_SDMA_SIZE",
    "HSA_IGNORE_SRAMECC_MISREPORT",
    "HSA_LOADER_ENABLE_MMAP_URI",
    "HSA_NO_SCRATCH_THREAD_LIMITER",
    "HSA_OVERRIDE_CPU_AFFINITY_DEBUG",
    "HSA_RESERVE_SVM",
    "HSA_REV_COPY_DIR",
    "HSA_RUNNING_UNDER_VALGRIND",
    "HSA_SCRATCH_MEM",
    "HSA_SCRATCH_SINGLE_LIMIT_ASYNC",
    "HSA_SDMA_WAIT_IDLE",
    "HSA_SIGNAL_WAIT_ABORT_TIMEOUT",
    "HSA_SVM_GUARD_PAGES",
    "HSA_SVM_PROFILE",
    "HSA_TOOLS_LIB",
    "HSA_USERPTR_FOR_PAGED_MEM",
    "HSA_WAIT_ANY_DEBUG",
    "HSAKMT_DEBUG_LEVEL",
    // Of HIP's common layer (rocclr/utils/flags.hpp).
    "AMD_CPU_AFFINITY",
    "AMD_GPU_FORCE_SINGLE_FP_DENORM",
    "AMD_LOG_LEVEL_FILE",
    "AMD_LOG_MASK",
    "AMD_OPT_FLUSH",
    "AMD_THREAD_TRACE_ENABLE",
    "CQ_THREAD_STACK_SIZE",
    "DISABLE_DEFERRED_ALLOC",
    "GPU_BLIT_ENGINE_TYPE",
    "GPU_ENABLE_COOP_GROUPS",
    "GPU_ENABLE_LARGE_ALLOCATION",
    "GPU_FLUSH_ON_EXECUTION",
    "GPU_FORCE_QUEUE_PROFILING",
    "GPU_MAX_COMMAND_BUFFERS",
    "GPU_MAX_COMMAND_QUEUES",
    "GPU_MAX_REMOTE_MEM_SIZE",
    "GPU_MAX_SUBALLOC_SIZE",
    "GPU_MAX_WORKGROUP_SIZE",
    "GPU_NUM_MEM_DEPENDENCY",
    "GPU_PINNED_XFER_SIZE",
    "GPU_RESOURCE_CACHE_SIZE",
    "GPU_STREAMOPS_CP_WAIT",
    "GPU_WAVES_PER_SIMD",
    "GPU_WAVE_LIMIT_ENABLE",
    "GPU_XFER_BUFFER_SIZE",
    "HIP_MEM_POOL_SUPPORT",
    "HSA_ENABLE_COARSE_GRAIN_SVM",
    "HSA_KERNARG_POOL_SIZE",
    "HSA_LOCAL_MEMORY_ENABLE",
    "REMOTE_ALLOC",
    "ROC_ACTIVE_WAIT_TIMEOUT",
    "ROC_AQL_QUEUE_SIZE",
    "ROC_CPU_WAIT_FOR_SIGNAL",
    "ROC_ENABLE_LARGE_BAR",
    "ROC_ENABLE_PRE_VEGA",
    "ROC_GLOBAL_CU_MASK",
    "ROC_HMM_FLAGS",
    "ROC_P2P_SDMA_SIZE",
    "ROC_SIGNAL_POOL_SIZE",
    "ROC_SKIP_COPY_SYNC",
    "ROC_SKIP_KERNEL_ARG_COPY",
    "ROC_SYSTEM_SCOPE_SIGNAL",
    "ROC_USE_FGS_KERNARG",
];

/// Name of the variable that may be followed by the number of a device.
const OF_DEVICE: &str = "HSA_OVERRIDE_GFX_VERSION_";

/// Parts of names of variables that contain secrets. They are never recorded, whatever the lists say.
const SECRETS: &[&str] = &["TOKEN", "KEY", "SECRET", "PASS"];

/// True if a variable of this name is in one of the lists and is recorded.
pub fn is_recorded(name: &str, lists: &[&[&str]]) -> bool {
    let device = name.strip_prefix(OF_DEVICE).filter(|_| lists.iter().any(|list| list.contains(&HIP[0])));
    let listed = lists.iter().any(|list| list.contains(&name))
        || device.is_some_and(|device| !device.is_empty() && device.bytes().all(|b| b.is_ascii_digit()));
    listed && !SECRETS.iter().any(|secret| name.to_ascii_uppercase().contains(secret))
}

/// Returns those of the variables that are in one of the lists, as text, sorted by name.
pub fn recorded(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    lists: &[&[&str]],
) -> Vec<(String, String)> {
    let text = |s: OsString| s.to_string_lossy().into_owned();
    let all = variables.into_iter().map(|(name, value)| (text(name), text(value)));
    let mut all: Vec<(String, String)> = all.filter(|(name, _)| is_recorded(name, lists)).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_similar_names_are_not_recorded() {
        let set = |name: &str| (OsString::from(name), OsString::from("value"));
        let names = ["VK_ACCESS_TOKEN", "AMD_API_KEY", "RADV_DEBUG", "DIPTYCH_PASSWORD", "HIP_PATH", "PATH"];
        let names = names.into_iter().chain(["HSA_OVERRIDE_GFX_VERSION_1", "HSA_OVERRIDE_GFX_VERSION_KEY"]);
        let all: Vec<_> = names.map(set).collect();
        let found = recorded(all.clone(), &[OWN, VULKAN, HIP]);
        let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["HIP_PATH", "HSA_OVERRIDE_GFX_VERSION_1", "RADV_DEBUG"]);
        assert_eq!(recorded(all, &[VULKAN]).len(), 1);
        for name in [OWN, VULKAN, HIP].concat() {
            assert!(is_recorded(name, &[OWN, VULKAN, HIP]), "{name} looks like a secret");
            let all = [OWN, VULKAN, HIP].concat();
            assert_eq!(all.iter().filter(|other| **other == name).count(), 1, "{name} is listed twice");
        }
        assert!(!is_recorded("VK_LOADER_KEY", &[&["VK_LOADER_KEY"]]), "a mistake in a list");
    }
}
