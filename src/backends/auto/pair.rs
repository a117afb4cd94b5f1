//! Two drivers of one card, where each is the faster one in a phase.

use super::{PAIR_GAIN, Tried};
use crate::backend_name::BackendName;
use crate::view::View;

/// Returns the names of the two drivers of a card that can share its memory: the exporter and the importer.
pub(super) fn names(views: &[View]) -> Option<[String; 2]> {
    let find = |kinds: &[&str]| {
        let of = |view: &&View| kinds.contains(&view.backend.split(':').next().unwrap_or_default());
        views.iter().find(of).map(|view| view.backend.clone())
    };
    Some([find(&["vulkan"])?, find(&["hip", "hip-nvidia"])?])
}

/// Returns a pair of drivers and its speed, if one is faster in decode steps and the other one in prompts by
/// [`PAIR_GAIN`].
pub(super) fn worth(names: &[String; 2], tried: &[Tried]) -> Option<(BackendName, Tried)> {
    let of = |name: &String| tried.iter().find(|t| t.backend == *name);
    let (first, second) = (of(&names[0])?, of(&names[1])?);
    let (steps, prompts) = ([first.step_s?, second.step_s?], [first.prompt_s?, second.prompt_s?]);
    let of_steps = usize::from(steps[1] < steps[0]);
    let gain = prompts[of_steps] / prompts[1 - of_steps];
    let name: BackendName = names.join("+").parse().ok()?;
    let pair = Tried {
        backend: name.to_string(),
        device: first.device.clone(),
        step_s: Some(steps[of_steps]),
        prompt_s: Some(prompts[1 - of_steps]),
        why_not: None,
    };
    (gain >= PAIR_GAIN).then_some((name, pair))
}
