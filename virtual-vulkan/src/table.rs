//! Handles: integers that identify objects. Unknown handles are detected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Locks a mutex, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a handle that has not been used before.
pub(crate) fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Target of a dispatchable handle, as the loader requires: a word that the loader may overwrite.
#[derive(Debug)]
pub(crate) struct Dispatchable(Box<AtomicUsize>);

impl Dispatchable {
    /// `ICD_LOADER_MAGIC` of the loader's interface.
    const MAGIC: usize = 0x01CD_C0DE;

    pub(crate) fn new() -> Dispatchable {
        Dispatchable(Box::new(AtomicUsize::new(Dispatchable::MAGIC)))
    }

    pub(crate) fn handle(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// Objects by their handles.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<HashMap<u64, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(RwLock::default())
    }
}

impl<T> Table<T> {
    /// Adds an object with a given handle.
    pub(crate) fn put(&self, handle: u64, object: T) -> Arc<T> {
        let object = Arc::new(object);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object.clone());
        object
    }

    /// Adds an object and returns its handle.
    pub(crate) fn add(&self, object: T) -> u64 {
        let handle = fresh();
        self.put(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    pub(crate) fn take(&self, handle: u64) -> Option<Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}
