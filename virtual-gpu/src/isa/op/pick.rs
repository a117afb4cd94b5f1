//! A choice without a branch.

/// Returns `a` or `b` without a branch: where a formula has branches, the host's compiler makes no vectors of it.
#[inline(always)]
pub(crate) fn pick<T>(condition: bool, a: T, b: T) -> T {
    std::hint::select_unpredictable(condition, a, b)
}
