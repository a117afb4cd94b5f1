//! Instances, which wrap RADV's.

use crate::card::Card;
use crate::reply::{Reply, unknown};
use crate::table::Table;
use ash::vk;
use ash::vk::Handle as _;
use std::sync::{Arc, LazyLock};

/// Instances by handle, which is RADV's handle.
pub(crate) static INSTANCES: LazyLock<Table<Instance>> = LazyLock::new(Table::default);

/// The instance of each physical device.
pub(crate) static PHYSICAL: LazyLock<Table<Arc<Instance>>> = LazyLock::new(Table::default);

/// An instance.
pub(crate) struct Instance {
    pub(crate) card: Card,
    pub(crate) radv: ash::Instance,
    pub(crate) physical: Vec<vk::PhysicalDevice>,
}

impl Instance {
    /// Returns the instance of a physical device.
    pub(crate) fn of(physical: vk::PhysicalDevice) -> Reply<Arc<Instance>> {
        let found = PHYSICAL.get(physical.as_raw());
        found.map(|i| i.as_ref().clone()).ok_or_else(|| unknown("VkPhysicalDevice", physical.as_raw()))
    }
}
