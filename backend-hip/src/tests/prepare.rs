//! Preparation without a device: launches, addresses and layout from given properties.

use super::fake_kernels::FakeKernels;
use crate::arch::{Profile, Target};
use crate::code::kernels::Kernels;
use crate::driver::Address;
use crate::program::prepare::{Draft, Host};
use ggml_core::backend::{Bindings, Buffer, DeviceMemory, Slice, Usage};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source};
use std::any::Any;
use std::sync::Arc;

/// Memory that has an address but does not exist.
#[derive(Debug)]
struct At(Address);

impl DeviceMemory for At {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn address(buffer: &Buffer) -> Result<Address> {
    let at = buffer.downcast::<At>().map(|at| at.0);
    at.ok_or_else(|| Error::argument("buffer", "of another device", ""))
}

fn buffer(at: Address, bytes: usize) -> Buffer {
    Buffer::new(Arc::new(At(at)), bytes, Usage::Compute)
}

#[test]
fn operands_have_the_addresses_of_their_tensors() {
    let target = Target::parse("gfx906").unwrap();
    let kernels = Kernels::new(Arc::new(FakeKernels::default()), &target);
    let host = Host { backend: "none", kernels: &kernels, profile: &Profile::of(&target).unwrap() };
    let mut g = Graph::new();
    let w = g.leaf("w", DType::F32, [64, 1, 1, 1], Source::Weight).unwrap();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let sum = g.add(x, w).unwrap();
    let norm = g.rms_norm(sum, 0.0).unwrap();
    g.output(norm).unwrap();
    let plan = Plan::debug(&g, 256, Precision::Exact).unwrap();
    let mut bindings = Bindings::default();
    bindings.leaves.insert(w, Slice { buffer: buffer(0x1_0000, 1024), offset: 260 });

    let draft = Draft::new(host, &g, &plan, &bindings).unwrap();
    // The norm of these kernels uses 256 bytes of scratch after 256 unused ones.
    assert_eq!(draft.bytes(), plan.arena_bytes() + 512);
    let own = buffer(0x8_0000, draft.bytes());
    let (storage, launches) = draft.place(&bindings, Some(&own), &address, false).unwrap();
    let at = |id| 0x8_0000 + storage[&id].offset as u64;
    let scratch = 0x8_0000 + plan.arena_bytes() as u64 + 256;
    let found: Vec<(usize, &str, Vec<u64>)> = launches
        .iter()
        .map(|l| (l.step, l.launch.kernel, l.pointers.iter().map(|p| p.address).collect()))
        .collect();
    let wanted = [
        (0, "add", vec![at(x), 0x1_0000 + 260, at(sum)]),
        (1, "double", vec![at(sum), scratch]),
        (1, "halve", vec![scratch, at(norm)]),
    ];
    assert_eq!(found, wanted);

    // Errors in placement are reported before any call of a device.
    let place = |bindings: &Bindings, own: &Buffer| {
        let draft = Draft::new(host, &g, &plan, bindings).unwrap();
        draft.place(bindings, Some(own), &address, false).unwrap_err().to_string()
    };
    assert!(place(&Bindings::default(), &own).contains("'w': no storage"));
    assert!(place(&bindings, &buffer(0x8_0000, 256)).contains("bytes"));
    let mut odd = bindings.clone();
    odd.leaves.insert(w, Slice { buffer: buffer(0x1_0000, 1024), offset: 2 });
    assert_eq!(place(&odd, &own), "binding of 'w': begins at byte 2; expected a multiple of 4");
}
