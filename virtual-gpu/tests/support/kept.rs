//! Results of compilers and disassemblers for the same input, kept in the store of compiled kernels: most time of these
//! tests would be theirs.

#[path = "../../../hip-kernels/build/store.rs"]
mod store;

use std::hash::Hash;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use store::Store;

/// Returns the output of a program for an input that `of` determines, with the version of the program.
pub(crate) fn kept(name: &str, of: &impl Hash, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    static STORE: OnceLock<Store> = OnceLock::new();
    let open = || Store::open(store::user_cache().as_deref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let store = STORE.get_or_init(open);
    store.get_or_make(&Store::name(name, of), || Ok(make())).expect("it is made, or panics")
}

/// Returns a hash of texts in their order.
pub(crate) fn hash_of<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    texts.for_each(|text| text.hash(&mut hasher));
    hasher.finish()
}

/// Returns the first of some programs that runs, and its version.
pub(crate) fn first_program(names: impl Iterator<Item = String>) -> Option<(String, Vec<u8>)> {
    names.into_iter().find_map(|name| {
        let output = Command::new(&name).arg("--version").output().ok()?;
        output.status.success().then_some((name, output.stdout))
    })
}
