//! Pairs of instructions that are executed at once (VOPD).

use super::vector::Unit;
use super::wave::Wave;
use crate::fault::FaultKind;
use crate::isa::inst::{Body, Pair};

impl Unit {
    /// Executes two instructions at once: the second one reads what was before the first.
    pub(super) fn execute_pair(&mut self, wave: &mut Wave, pair: &Pair) -> Result<(), FaultKind> {
        let [first, second] = &pair.halves;
        let (Body::Vector(_, x), Body::Vector(_, y)) = (&first.body, &second.body) else {
            return Ok(());
        };
        if pair.conflict {
            let names = format!("{} and {} with sources in one bank of registers", first.name, second.name);
            return Err(FaultKind::Unimplemented(names));
        }
        let n = usize::from(first.dst & 255);
        let mut other = wave.vgpr[n];
        self.execute(wave, first, x)?;
        std::mem::swap(&mut wave.vgpr[n], &mut other);
        self.execute(wave, second, y)?;
        // The destinations differ: one number is even.
        wave.vgpr[n] = other;
        Ok(())
    }
}
