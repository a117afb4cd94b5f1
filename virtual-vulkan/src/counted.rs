//! Functions of Vulkan's that fail, hang or stall on request.

/// Functions that count their calls, and can fail or hang.
const COUNTED: [&str; 30] = [
    "vkAllocateCommandBuffers",
    "vkAllocateDescriptorSets",
    "vkAllocateMemory",
    "vkBindBufferMemory",
    "vkBindBufferMemory2",
    "vkCmdPipelineBarrier",
    "vkCreateBuffer",
    "vkCreateCommandPool",
    "vkCreateComputePipelines",
    "vkCreateDescriptorPool",
    "vkCreateDescriptorSetLayout",
    "vkCreateDevice",
    "vkCreateFence",
    "vkCreateInstance",
    "vkCreatePipelineLayout",
    "vkCreateQueryPool",
    "vkCreateSemaphore",
    "vkDeviceWaitIdle",
    "vkEnumeratePhysicalDevices",
    "vkFreeMemory",
    "vkGetFenceStatus",
    "vkGetQueryPoolResults",
    "vkGetSemaphoreCounterValue",
    "vkMapMemory",
    "vkQueueSubmit",
    "vkResetFences",
    "vkSignalSemaphore",
    "vkUpdateDescriptorSets",
    "vkWaitForFences",
    "vkWaitSemaphores",
];

/// Calls that stall on request: a submission that never completes, a barrier that is forgotten.
pub(crate) const CAN_STALL: [&str; 2] = ["vkQueueSubmit", "vkCmdPipelineBarrier"];

/// Whether a function of this name can fail on request.
pub(crate) fn can_fail(name: &str) -> bool {
    COUNTED.contains(&name)
}
