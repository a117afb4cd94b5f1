//! Names of SPIR-V capabilities.

/// Returns the name of a capability, if it is one that compute shaders commonly declare.
pub fn capability_name(value: u32) -> Option<&'static str> {
    let index = NAMES.binary_search_by_key(&value, |(value, _)| *value).ok()?;
    Some(NAMES[index].1)
}

const NAMES: &[(u32, &str)] = &[
    (0, "Matrix"),
    (1, "Shader"),
    (4, "Addresses"),
    (5, "Linkage"),
    (9, "Float16"),
    (10, "Float64"),
    (11, "Int64"),
    (12, "Int64Atomics"),
    (22, "Int16"),
    (30, "StorageBufferArrayDynamicIndexing"),
    (39, "Int8"),
    (50, "ImageQuery"),
    (56, "StorageImageWriteWithoutFormat"),
    (61, "GroupNonUniform"),
    (62, "GroupNonUniformVote"),
    (63, "GroupNonUniformArithmetic"),
    (64, "GroupNonUniformBallot"),
    (65, "GroupNonUniformShuffle"),
    (66, "GroupNonUniformShuffleRelative"),
    (67, "GroupNonUniformClustered"),
    (68, "GroupNonUniformQuad"),
    (4428, "WorkgroupMemoryExplicitLayoutKHR"),
    (4429, "WorkgroupMemoryExplicitLayout8BitAccessKHR"),
    (4430, "WorkgroupMemoryExplicitLayout16BitAccessKHR"),
    (4433, "StorageBuffer16BitAccess"),
    (4434, "UniformAndStorageBuffer16BitAccess"),
    (4435, "StoragePushConstant16"),
    (4436, "StorageInputOutput16"),
    (4437, "DeviceGroup"),
    (4448, "StorageBuffer8BitAccess"),
    (4449, "UniformAndStorageBuffer8BitAccess"),
    (4450, "StoragePushConstant8"),
    (4464, "DenormPreserve"),
    (4465, "DenormFlushToZero"),
    (4466, "SignedZeroInfNanPreserve"),
    (4467, "RoundingModeRTE"),
    (4468, "RoundingModeRTZ"),
    (5055, "ShaderClockKHR"),
    (5116, "BFloat16TypeKHR"),
    (5117, "BFloat16DotProductKHR"),
    (5118, "BFloat16CooperativeMatrixKHR"),
    (5301, "ShaderNonUniform"),
    (5302, "RuntimeDescriptorArray"),
    (5345, "VulkanMemoryModel"),
    (5346, "VulkanMemoryModelDeviceScope"),
    (5347, "PhysicalStorageBufferAddresses"),
    (5357, "CooperativeMatrixNV"),
    (5430, "CooperativeMatrixReductionsNV"),
    (5431, "CooperativeMatrixConversionsNV"),
    (5432, "CooperativeMatrixPerElementOperationsNV"),
    (5433, "CooperativeMatrixTensorAddressingNV"),
    (5434, "CooperativeMatrixBlockLoadsNV"),
    (5439, "TensorAddressingNV"),
    (5582, "FunctionPointersINTEL"),
    (5612, "AtomicFloat32MinMaxEXT"),
    (5613, "AtomicFloat64MinMaxEXT"),
    (5616, "AtomicFloat16MinMaxEXT"),
    (5629, "ExpectAssumeKHR"),
    (6016, "DotProductInputAll"),
    (6017, "DotProductInput4x8Bit"),
    (6018, "DotProductInput4x8BitPacked"),
    (6019, "DotProduct"),
    (6022, "CooperativeMatrixKHR"),
    (6026, "GroupNonUniformRotateKHR"),
    (6029, "FloatControls2"),
    (6033, "AtomicFloat32AddEXT"),
    (6034, "AtomicFloat64AddEXT"),
    (6095, "AtomicFloat16AddEXT"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(capability_name(63), Some("GroupNonUniformArithmetic"));
        assert_eq!(capability_name(u32::MAX), None);
    }
}
