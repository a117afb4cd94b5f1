//! Pipelines: RADV's compiled shader, and its code on the GPU.

use crate::record::Binary;
use crate::table::lock;
use std::sync::Mutex;
use virtual_gpu::{Bare, BareKernel, Gpu};

/// A compute pipeline.
pub(crate) struct Pipeline {
    pub(crate) binary: Binary,
    name: Mutex<String>,
    kernel: Mutex<Option<BareKernel>>,
}

impl Pipeline {
    /// Returns the name set by the program.
    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    pub(crate) fn new(binary: Binary, name: String) -> Pipeline {
        Pipeline { binary, name: Mutex::new(name), kernel: Mutex::default() }
    }

    pub(crate) fn set_name(&self, name: String) {
        *lock(&self.name) = name;
    }

    /// Unloads the code from the GPU.
    pub(crate) fn unload(&self, gpu: &Gpu) {
        if let Some(kernel) = lock(&self.kernel).take() {
            let _ = gpu.unload_bare(&kernel);
        }
    }

    /// Returns the code, loaded on first use.
    pub(crate) fn kernel(
        &self,
        gpu: &Gpu,
        rewrite: Option<fn(&str, &mut [u32])>,
    ) -> virtual_gpu::Result<BareKernel> {
        let mut kernel = lock(&self.kernel);
        if let Some(kernel) = &*kernel {
            return Ok(kernel.clone());
        }
        let (name, b) = (self.name(), &self.binary);
        let mut code = b.code.clone();
        if let Some(rewrite) = rewrite {
            rewrite(&name, &mut code);
        }
        let loaded = gpu.load_bare(&Bare {
            name: &name,
            code: bytemuck::cast_slice(&code),
            rsrc1: b.rsrc1,
            rsrc2: b.rsrc2,
            threads: b.threads,
            lds_bytes: b.lds_bytes,
            wave32: b.wave32,
        })?;
        *kernel = Some(loaded.clone());
        Ok(loaded)
    }
}
