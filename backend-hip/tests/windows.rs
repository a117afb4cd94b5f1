//! Each launch keeps to its operands: a pointer that is off by one row is reported by the emulated device, although there
//! is memory of the same arena.

use backend_hip::HipOptions;
use backend_hip::virtual_gpu::{Target, VirtualOptions, open_with};
use ggml_core::backend::{Backend, Bindings, PrepareOptions};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source};

/// Bytes of a row.
const ROW: u64 = 64 * 4;

/// Report of an access to no operand.
const STRAY: &str = "outside the operands of the launch";

/// Changes the arguments of a launch of a kernel.
type Change = fn(&str, &mut [u8]);

/// Runs a chain of nodes in one arena, with changed arguments.
fn run(change: Option<Change>) -> Result<()> {
    let device = VirtualOptions { change_arguments: change, ..VirtualOptions::new(Target::Gfx906) };
    let backend = open_with(device, HipOptions::default())?;
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 8, 1, 1], Source::Input)?;
    let scaled = g.scale(x, 2.0, 1.0)?;
    g.name(scaled, "scaled")?;
    let normed = g.rms_norm(scaled, 1e-5)?;
    g.name(normed, "normed")?;
    g.output(normed)?;
    let plan = Plan::debug(&g, backend.device().limits.alignment, Precision::Exact)?;
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default())?;
    program.write(x, &[0; 64 * 8 * 4])?;
    program.run()?;
    Ok(())
}

/// Adds bytes to the `n`th pointer of launches of kernels whose name contains `part`.
fn shift(kernel: &str, arguments: &mut [u8], part: &str, n: usize, by: u64) {
    if let (true, Some(pointer)) = (kernel.contains(part), arguments.get_mut(8 * n..8 * n + 8)) {
        let address = pointer.iter().rev().fold(0, |address, &byte| address << 8 | u64::from(byte));
        pointer.copy_from_slice(&u64::wrapping_add(address, by).to_le_bytes());
    }
}

#[test]
fn a_pointer_one_row_off_is_reported() {
    if !hip_kernels::targets().contains(&"gfx906") {
        eprintln!("skipped: no code objects for gfx906 were built in");
        return;
    }
    run(None).expect("nothing is changed");
    let plants: [(&str, &str, &str, Change); 3] = [
        // The last row of that is the first one of the result, which the launch may access: but another work-group
        // writes it.
        ("an operand further on", "read", "race with the", |kernel, arguments| {
            shift(kernel, arguments, "norm", 0, ROW)
        }),
        ("an operand before", "read", STRAY, |kernel, arguments| {
            shift(kernel, arguments, "norm", 0, ROW.wrapping_neg())
        }),
        ("the result further on", "write", STRAY, |kernel, arguments| {
            shift(kernel, arguments, "unary", 4, ROW)
        }),
    ];
    for (name, access, report, plant) in plants {
        let error = run(Some(plant)).expect_err(name);
        let text = error.to_string();
        assert!(matches!(error, Error::DeviceLost { .. } | Error::Driver { .. }), "{name}: {text}");
        assert!(text.contains(report), "{name}: {text}");
        assert!(
            text.contains(access) && text.contains("(kernel ") && text.contains("seed 1"),
            "{name}: {text}"
        );
    }
}
