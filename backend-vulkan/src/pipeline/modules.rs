//! Shader modules: bindings, required capabilities, and checks against a device.

use super::spec::PipelineSpec;
use crate::arch::Caps;
use crate::raw::physical::ShaderSupport;
use ash::vk::SubgroupFeatureFlags as SubgroupFlags;
use ggml_core::sync::lock;
use shaders::ShaderId;
use shaders::reflect::{Interface, capability_name, reflect};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A reflected shader module.
#[derive(Debug)]
pub(crate) struct Module {
    /// The shader.
    pub(crate) id: ShaderId,
    interface: Interface,
    /// A capability that the device lacks.
    lacking: Option<String>,
}

/// The modules reflected so far for a device.
pub(crate) struct Modules {
    support: ShaderSupport,
    caps: Caps,
    known: Mutex<HashMap<(&'static str, &'static str), Arc<Module>>>,
}

impl Modules {
    /// Creates an empty set for a device with these features and limits.
    pub(crate) fn new(support: ShaderSupport, caps: Caps) -> Modules {
        Modules { support, caps, known: Mutex::default() }
    }

    /// Returns the module of a pipeline, or the reason why the pipeline cannot be created or run on this
    /// device.
    pub(crate) fn check(&self, spec: &PipelineSpec) -> Result<Arc<Module>, String> {
        let module = self.get(spec)?;
        if let Some(lacking) = &module.lacking {
            return Err(format!("shader {} needs {lacking}, which the device lacks", module.id));
        }
        let caps = &self.caps;
        if module.bindings() > caps.max_storage_buffers {
            let (buffers, most) = (module.bindings(), caps.max_storage_buffers);
            return Err(format!("shader {} binds {buffers} buffers; the device allows {most}", module.id));
        }
        let constants: Vec<(u32, u32)> = (0..).zip(spec.specialization.iter().copied()).collect();
        let size = module.interface.local_size(&constants);
        let invocations = size.iter().fold(1u64, |product, &n| product.saturating_mul(u64::from(n)));
        let small = (0..3).all(|d| size[d] > 0 && size[d] <= caps.max_workgroup_size[d]);
        if !small || invocations > u64::from(caps.max_invocations) {
            return Err(format!("{spec}: work-groups of {size:?} are too large for the device"));
        }
        let shared = module.interface.shared_bytes(&constants).map_err(|e| e.to_string())?;
        if shared > u64::from(caps.shared_bytes) {
            return Err(format!(
                "{spec}: {shared} bytes of shared memory; the device has {}",
                caps.shared_bytes
            ));
        }
        Ok(module)
    }

    /// Returns a module, whether or not the device can run it.
    pub(crate) fn get(&self, spec: &PipelineSpec) -> Result<Arc<Module>, String> {
        let key = (spec.shader, spec.variant);
        if let Some(known) = lock(&self.known).get(&key) {
            return Ok(known.clone());
        }
        let id = ShaderId::find(spec.shader, spec.variant)
            .ok_or_else(|| format!("shader {}/{} is not in the table", spec.shader, spec.variant))?;
        let words = id.words().ok_or_else(|| format!("shader {id} has no committed SPIR-V"))?;
        let interface = reflect(words).map_err(|e| format!("shader {id}: {e}"))?;
        let lacking = lacking(&interface, &self.support);
        let module = Arc::new(Module { id, interface, lacking });
        lock(&self.known).insert(key, module.clone());
        Ok(module)
    }
}

impl Module {
    /// Returns the number of buffers that the module binds.
    pub(crate) fn bindings(&self) -> u32 {
        self.counts().iter().sum()
    }

    /// Returns the number of buffers at each binding.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.interface.buffers.iter().map(|buffer| buffer.count).collect()
    }

    /// Returns the axes along which the grid of a dispatch may be split. In a portion (vkCmdDispatchBase)
    /// work-group IDs continue, but the number of work-groups that a shader can read is the portion's.
    pub(crate) fn divisible(&self) -> [bool; 3] {
        self.interface.reads_group_counts.map(|reads| !reads)
    }

    /// True if the module has subgroup operations, or reads its place in a subgroup.
    pub(crate) fn has_subgroups(&self) -> bool {
        let of_subgroups =
            |name: &str| name.starts_with("GroupNonUniform") || name.starts_with("CooperativeMatrix");
        self.interface.capabilities.iter().filter_map(|&value| capability_name(value)).any(of_subgroups)
    }

    /// Returns the bytes of push constants.
    pub(crate) fn push_bytes(&self) -> u32 {
        self.interface.push_constants.as_ref().map_or(0, |b| b.size)
    }
}

/// Returns the first capability or version of a module that the device lacks. A capability missing from this
/// list counts as lacking, because no feature was enabled for it.
fn lacking(interface: &Interface, support: &ShaderSupport) -> Option<String> {
    if interface.version >= (1, 6) && support.api < ash::vk::API_VERSION_1_3 {
        return Some("SPIR-V 1.6".into());
    }
    let (f, sub, float) = (&support.features, &support.subgroup_operations, &support.float_controls);
    let has = |name: &str| match name {
        "Matrix" | "Shader" | "GroupNonUniform" => true,
        "Float16" => f.float16,
        "Int8" => f.int8,
        "Int16" => f.int16,
        "Int64" => f.int64,
        "StorageBufferArrayDynamicIndexing" => f.buffer_arrays,
        "StorageBuffer16BitAccess" => f.storage16,
        "StorageBuffer8BitAccess" => f.storage8,
        "VulkanMemoryModel" => f.memory_model,
        "CooperativeMatrixKHR" => f.matrices,
        "CooperativeMatrixReductionsNV"
        | "CooperativeMatrixConversionsNV"
        | "CooperativeMatrixPerElementOperationsNV" => f.matrix_rows,
        "WorkgroupMemoryExplicitLayoutKHR" | "WorkgroupMemoryExplicitLayout16BitAccessKHR" => f.shared_views,
        "DotProduct" | "DotProductInputAll" | "DotProductInput4x8Bit" | "DotProductInput4x8BitPacked" => {
            f.int_dot
        }
        "GroupNonUniformVote" => sub.contains(SubgroupFlags::VOTE),
        "GroupNonUniformArithmetic" => sub.contains(SubgroupFlags::ARITHMETIC),
        "GroupNonUniformBallot" => sub.contains(SubgroupFlags::BALLOT),
        "GroupNonUniformShuffle" => sub.contains(SubgroupFlags::SHUFFLE),
        "GroupNonUniformShuffleRelative" => sub.contains(SubgroupFlags::SHUFFLE_RELATIVE),
        "GroupNonUniformClustered" => sub.contains(SubgroupFlags::CLUSTERED),
        "RoundingModeRTE" => float.round_even,
        "DenormPreserve" => float.keep_denormals,
        "SignedZeroInfNanPreserve" => float.keep_special,
        _ => false,
    };
    let name =
        |&value: &u32| capability_name(value).map_or_else(|| format!("capability {value}"), str::to_string);
    interface.capabilities.iter().map(name).find(|name| !has(name))
}
