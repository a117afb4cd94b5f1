/// Alignment of a code object in bytes: HIP maps code objects by the page.
pub(crate) const PAGE: usize = 4096;

/// Returns the next multiple of a page.
pub(crate) const fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}
