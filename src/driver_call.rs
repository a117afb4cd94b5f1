//! Kinds of calls into drivers, which tell what a hang waits for.

/// Effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// It begins work.
    Work,
    /// It orders work and does none.
    Order,
    /// It waits for the work of earlier calls.
    Wait,
}

/// Returns the kind of a call by its name.
pub(crate) fn kind(name: &str) -> CallKind {
    match name {
        "hipEventRecord" | "hipStreamWaitEvent" => CallKind::Order,
        "hipEventQuery" | "vkWaitSemaphores" => CallKind::Wait,
        _ => CallKind::Work,
    }
}
