//! `is_last_group` (device.h) in machine code. Work-groups leave partial results in memory and count up; the
//! last one reads all of them.
//!
//! Every wavefront must wait until its stores have reached the device, before the barrier in front of the
//! counter. The wavefront that counts waits only for its own stores, and on gfx90a, gfx942 and gfx10 in CU mode
//! a barrier waits for none.

use crate::code_object::{metadata, words};

/// Encodings of a family of processors. Source: LLVM's tests of the assembler.
struct Code {
    /// First word of the atomic increment that returns the old value: mask and value.
    count: (u32, u32),
    barrier: u32,
    /// True for instructions that only wait.
    is_wait: fn(u32) -> bool,
    /// True for those that wait for all stores.
    waits_for_stores: fn(u32) -> bool,
    /// Instruction that must precede this wait, because it writes caches back to the device; empty if there is
    /// none.
    write_back: &'static [u32],
}

/// `global_wb` with the scope of the device on gfx12, and with that of a work-group.
const WRITE_BACK_12: [&[u32]; 2] = [&[0xee0b_007c, 0x8_0000, 0], &[0xee0b_007c, 0x4_0000, 0]];

impl Code {
    fn of(target: &str) -> Code {
        let gfx9 = |count, write_back| Code {
            count: (u32::MAX, count),
            barrier: 0xbf8a_0000,
            is_wait: |word| word >> 16 == 0xbf8c,
            // vmcnt(0), whose bits are apart.
            waits_for_stores: |word| word & 0xffff_c00f == 0xbf8c_0000,
            write_back,
        };
        match target.split(':').next().unwrap_or(target) {
            "gfx803" => gfx9(0xdd2d_0000, &[]),
            // buffer_wbl2 sc1.
            "gfx942" | "gfx950" => gfx9(0xdd2d_8000, &[0xe0a0_8000, 0]),
            name if name.len() == 6 => gfx9(0xdd2d_8000, &[]),
            // s_waitcnt_vscnt null, 0.
            name if name.starts_with("gfx10") => {
                Code { waits_for_stores: |word| word == 0xbbfd_0000, ..gfx9(0xdcf1_8000, &[]) }
            }
            name if name.starts_with("gfx11") => Code {
                barrier: 0xbfbd_0000,
                is_wait: |word| word >> 16 == 0xbf89,
                waits_for_stores: |word| word == 0xbc7c_0000,
                ..gfx9(0xdcfe_4000, &[])
            },
            // s_barrier_signal -1, s_wait_*cnt, s_wait_storecnt 0.
            _ => Code {
                count: (0xffff_ff80, 0xee0f_c000),
                barrier: 0xbe80_4ec1,
                is_wait: |word| word >> 20 == 0xbfc,
                waits_for_stores: |word| word == 0xbfc1_0000,
                write_back: WRITE_BACK_12[0],
            },
        }
    }

    /// Checks the barrier in front of each counter. Returns the number of counters.
    fn counters(&self, words: &[u32]) -> Result<usize, String> {
        let is_count = |word: &u32| word & self.count.0 == self.count.1;
        let counters = (0..words.len()).filter(|&at| is_count(&words[at]));
        counters.map(|at| self.check(&words[..at])).sum::<Result<usize, _>>()
    }

    /// Checks the last barrier of code that ends in front of a counter. Returns 1.
    fn check(&self, words: &[u32]) -> Result<usize, String> {
        let barrier = words.iter().rposition(|&word| word == self.barrier);
        let barrier = barrier.ok_or("no barrier in front of the counter")?;
        let wrong = |what| Err(format!("{what} in front of the barrier at word {barrier}"));
        let mut before = self.without_waits(&words[..barrier], self.waits_for_stores);
        match before.split_last() {
            Some((&word, rest)) if (self.waits_for_stores)(word) => before = rest,
            _ => return wrong("no wait for stores"),
        }
        if !self.without_waits(before, |_| false).ends_with(self.write_back) {
            return wrong("caches are not written back");
        }
        Ok(1)
    }

    /// Leaves out waits at the end of the code, up to the last one for which `stop` is true.
    fn without_waits<'a>(&self, mut words: &'a [u32], stop: fn(u32) -> bool) -> &'a [u32] {
        while let Some((&last, rest)) = words.split_last() {
            match words.strip_suffix(WRITE_BACK_12[1]) {
                Some(rest) => words = rest,
                None if (self.is_wait)(last) && !stop(last) => words = rest,
                None => break,
            }
        }
        words
    }
}

/// Returns a description of each kernel of a code object whose stores may be late, or that counts unexpectedly or
/// not at all.
fn wrong_kernels(target: &str, image: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    for kernel in metadata(image).list("amdhsa.kernels") {
        let name = kernel.text(".name");
        let counts = ["gate", "best"].contains(&name) || name.starts_with("flash_attn_split_");
        match Code::of(target).counters(&words(image, name)) {
            Ok(found) if (found > 0) == counts => {}
            Ok(found) => wrong.push(format!("{target} {name}: {found} counters")),
            Err(reason) => wrong.push(format!("{target} {name}: {reason}")),
        }
    }
    wrong
}

#[test]
fn stores_arrive_before_the_work_group_counts() {
    let mut wrong = Vec::new();
    for target in hip_kernels::targets().iter().filter(|t| t.starts_with("gfx")) {
        for stem in hip_kernels::stems() {
            wrong.extend(wrong_kernels(target, hip_kernels::code_object(target, stem).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same for targets whose barriers do not wait, whatever targets are embedded. Run-time compilation may use
/// CU mode.
#[cfg(unix)]
#[test]
fn stores_arrive_where_barriers_do_not_wait() {
    use crate::build::script::compiler::{Compiler, options};
    let Some(compiler) = Compiler::find() else {
        println!("no clang 19 or later: nothing to check");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object");
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for (target, mode) in
        [("gfx90a", None), ("gfx942", None), ("gfx1030", Some("-mcumode")), ("gfx1201", None)]
    {
        for stem in ["gate", "top_k"] {
            let mut command = std::process::Command::new(&compiler.path);
            command.args(options(target)).args(mode).arg(sources.join(stem).with_extension("hip"));
            assert!(command.arg("-o").arg(&object).status().unwrap().success(), "{stem}.hip for {target}");
            wrong.extend(wrong_kernels(target, &std::fs::read(&object).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Code of the kernel `gate`: a store, the barrier, the counter; on gfx942 also of one that waits without
/// writing back.
#[test]
fn late_stores_are_found() {
    let (store, barrier, counter) = ([0xdc7c_8000, 0x7f_0c14], 0xbf8a_0000, 0xdd2d_8000);
    let (wait, wait_for_lds, write_back) = (0xbf8c_0f70, 0xbf8c_c07f, [0xe0a0_8000, 0]);
    let code = |middle: &[u32]| [&store, middle, &[counter, 0x206_0201]].concat();
    let found = |target: &str, middle: &[u32]| Code::of(target).counters(&code(middle));
    assert!(found("gfx90a", &[barrier, wait]).unwrap_err().contains("no wait for stores"));
    assert!(found("gfx90a", &[wait_for_lds, barrier]).unwrap_err().contains("no wait for stores"));
    assert_eq!(found("gfx90a", &[wait, wait_for_lds, barrier]), Ok(1));
    assert!(found("gfx942", &[wait, barrier]).unwrap_err().contains("not written back"));
    let [first, second] = write_back;
    assert_eq!(found("gfx942", &[first, second, wait, barrier]), Ok(1));
    assert!(found("gfx90a", &[]).unwrap_err().contains("no barrier"));
}
