//! Programs of a driver whose memory another driver uses too.

use super::Card;
use crate::backend::{Program, Timing};
use crate::error::Result;
use crate::exact::Sample;
use crate::tensor::TensorId;
use std::sync::Arc;

/// Program of one driver of a pair.
pub(super) struct PairProgram {
    pub(super) card: Arc<Card>,
    pub(super) index: usize,
    pub(super) program: Box<dyn Program>,
}

impl PairProgram {
    /// Uses the program in a turn of its driver.
    fn turn<T>(&mut self, act: impl FnOnce(&mut dyn Program) -> Result<T>) -> Result<T> {
        let _turn = self.card.order.enter(&self.card.drivers, self.index)?;
        act(self.program.as_mut())
    }
}

impl Program for PairProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.turn(|program| program.write(tensor, data))
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        self.turn(|program| program.read(tensor, out))
    }

    fn run(&mut self) -> Result<Timing> {
        self.turn(|program| program.run())
    }

    fn begin(&mut self) -> Result<()> {
        self.turn(|program| program.begin())
    }

    /// Only waits, so it needs no turn.
    fn finish(&mut self) -> Result<Timing> {
        self.program.finish()
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        self.turn(|program| program.run_step(step))
    }

    fn set_rounding(&mut self, sample: Option<Sample>) -> Result<()> {
        self.program.set_rounding(sample)
    }
}
