//! Vulkan functions with injectable failures, hangs or stalls.

/// Functions that count their calls and can fail or hang.
const COUNTED: [&str; 31] = [
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
    "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
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

/// Functions that can stall: a submission never completes, a barrier is dropped.
pub(crate) const CAN_STALL: [&str; 2] = ["vkQueueSubmit", "vkCmdPipelineBarrier"];

/// Returns true if a function of this name can fail by injection.
pub(crate) fn can_fail(name: &str) -> bool {
    COUNTED.contains(&name)
}
