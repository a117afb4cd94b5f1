//! Code objects: metadata, disassembly, loading and a launch give a result or a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtual_gpu::{Gpu, Launch, Options, Target, metadata};

fuzz_target!(|image: &[u8]| {
    let _ = metadata::read(image);
    for target in [Target::Gfx900, Target::Gfx906] {
        let gpu = Gpu::new(target, Options { max_instructions: 2000, ..Options::default() });
        let Ok(module) = gpu.load(image) else { continue };
        let names: Vec<String> = module.kernels().take(4).map(str::to_string).collect();
        let Ok(buffer) = gpu.allocate(4096) else { continue };
        for kernel in names.iter().filter_map(|name| module.kernel(name)) {
            let bytes = kernel.argument_bytes().min(4096) as usize;
            let arguments: Vec<u8> = buffer.to_le_bytes().into_iter().cycle().take(bytes).collect();
            let launch =
                Launch { groups: [2, 1, 1], threads: [64, 1, 1], dynamic_lds: 0, arguments: &arguments, windows: None };
            let _ = gpu.launch(&kernel, &launch);
        }
    }
});
