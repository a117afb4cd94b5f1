//! Options from environment variables.

use crate::card::{Card, Model, Options};
use crate::{Checks, Faults, Unavailable};
use virtual_gpu::faults::Functions;

/// Name of the variable with the checks: `all` (default), `none`, which disables [`Options::hazards`] too, or names
/// ([`Checks::parse`]).
pub const CHECKS_VARIABLE: &str = "DIPTYCH_VIRTUAL_CHECKS";

/// Name of the variable with injected faults; see [`Faults::parse`].
pub const FAULTS_VARIABLE: &str = "DIPTYCH_VIRTUAL_VULKAN_FAULTS";

/// Name of the variable with the seed of [`Options::order`].
pub const ORDER_VARIABLE: &str = "DIPTYCH_VIRTUAL_ORDER";

/// Name of the variable with [`Options::seed`].
pub const SEED_VARIABLE: &str = "DIPTYCH_VIRTUAL_SEED";

/// Name of the variable with the card's model, unless the program chooses it.
const CARD_VARIABLE: &str = "DIPTYCH_VIRTUAL_CARD";

fn set(variable: &str) -> Option<String> {
    let value = std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
    value.filter(|value| !value.is_empty())
}

/// Returns the card for an instance being created: that of [`Card::entry`], or one configured by the
/// environment.
pub(crate) fn next_card() -> Result<Card, Unavailable> {
    match Card::take_next() {
        Some(card) => Ok(card),
        None => Card::new(options().map_err(Unavailable::Options)?),
    }
}

/// Returns the options set in the environment.
fn options() -> Result<Options, String> {
    let model = match set(CARD_VARIABLE) {
        None => Model::default(),
        Some(name) => Model::parse(&name).ok_or_else(|| format!("{CARD_VARIABLE}: '{name}' is no card"))?,
    };
    Options::from_environment(model)
}

impl Options {
    /// Returns [`Options::new`] with checks, order, seed and faults from the environment.
    ///
    /// # Errors Text that quotes the invalid value and its variable.
    pub fn from_environment(model: Model) -> Result<Options, String> {
        let mut options = Options::new(model);
        match set(CHECKS_VARIABLE).as_deref() {
            None | Some("all") => {}
            Some("none") => (options.checks, options.hazards) = (Checks::NONE, false),
            Some(names) => {
                let wrong =
                    || format!("{CHECKS_VARIABLE}: '{names}' is neither all nor none, nor names of checks");
                options.checks = Checks::parse(names).ok_or_else(wrong)?;
            }
        }
        if let Some(text) = set(ORDER_VARIABLE) {
            let seed = text.parse().map_err(|_| format!("{ORDER_VARIABLE}: '{text}' is no number"))?;
            options.order = Some(seed);
        }
        if let Some(text) = set(SEED_VARIABLE) {
            options.seed = text.parse().map_err(|_| format!("{SEED_VARIABLE}: '{text}' is no number"))?;
        }
        if let Some(text) = set(FAULTS_VARIABLE) {
            let functions = Functions { has: &crate::counted::can_fail, queued: &crate::counted::CAN_STALL };
            options.faults = Faults::parse(&text, &functions)
                .map_err(|(found, expected)| format!("{FAULTS_VARIABLE} is {found}; {expected} is wanted"))?;
        }
        Ok(options)
    }
}
