//! The drivers of prompts and of decode steps, for a model on a card under two drivers.

use serde::{Deserialize, Serialize};

/// Least number of tokens of a batch that runs on the driver of prompts. Smaller batches are bound by the weights that
/// they read, as decode steps are.
const PROMPT: usize = 32;

/// Indices of the drivers of the two phases of generation, in the order of the backend's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// Driver of prompts: batches of many tokens.
    pub prompts: usize,
    /// Driver of decode steps.
    pub steps: usize,
}

impl Phases {
    /// The choice without a measurement, and on emulated cards, which have no speed.
    pub(crate) const DEFAULT: Phases = Phases { prompts: 1, steps: 0 };

    /// Returns the driver of batches of `tokens` tokens.
    pub(super) fn of(self, tokens: usize) -> usize {
        if tokens >= PROMPT { self.prompts } else { self.steps }
    }
}

/// Speed of a driver with a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpeed {
    /// The driver.
    pub backend: String,
    /// Tokens of a prompt per second; `None` if the driver failed.
    pub prompt: Option<f64>,
    /// Decode steps per second; `None` if the driver failed.
    pub steps: Option<f64>,
}

/// Speeds of both drivers of a card with a model, and the choice that follows from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTable {
    /// Both drivers.
    pub speeds: [PhaseSpeed; 2],
    /// The faster driver of each phase.
    pub phases: Phases,
    /// True if the table is of an earlier program.
    #[serde(skip)]
    pub kept: bool,
}

impl PhaseTable {
    /// Chooses the faster driver of each phase.
    pub(crate) fn new(speeds: [PhaseSpeed; 2]) -> PhaseTable {
        let faster = |of: fn(&PhaseSpeed) -> Option<f64>| {
            usize::from(of(&speeds[1]).unwrap_or(0.0) > of(&speeds[0]).unwrap_or(0.0))
        };
        let phases = Phases { prompts: faster(|speed| speed.prompt), steps: faster(|speed| speed.steps) };
        PhaseTable { speeds, phases, kept: false }
    }

    /// True if both drivers computed both phases. Other tables are not kept: a failure may not last.
    pub(crate) fn is_whole(&self) -> bool {
        self.speeds.iter().all(|speed| speed.prompt.is_some() && speed.steps.is_some())
    }
}

impl std::fmt::Display for PhaseTable {
    /// Writes a sentence: "prompts on hip-nvidia:0 (12284 t/s; vulkan:0 5567), decode on vulkan:0 (348 t/s; ...)".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = |name, index: usize, of: fn(&PhaseSpeed) -> Option<f64>| {
            let speed = |i: usize, unit: &str| {
                of(&self.speeds[i]).map_or("failed".to_string(), |speed| format!("{speed:.0}{unit}"))
            };
            let [here, other] = [index, 1 - index].map(|i| &self.speeds[i].backend);
            format!("{name} on {here} ({}; {other} {})", speed(index, " t/s"), speed(1 - index, ""))
        };
        let prompts = phase("prompts", self.phases.prompts, |speed| speed.prompt);
        let steps = phase("decode", self.phases.steps, |speed| speed.steps);
        write!(f, "{prompts}, {steps}{}", if self.kept { ", as measured before" } else { "" })
    }
}
