/// What a code object is aligned to: HIP maps code objects by the page.
pub(crate) const PAGE: usize = 4096;

/// The next multiple of a page.
pub(crate) const fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}
