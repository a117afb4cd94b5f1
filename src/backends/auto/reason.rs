//! The reason of a choice in words.

use super::Tried;

/// Formats the reason: "hip:0 (name): 1.2 ms a step, the fastest of 2 (cpu 4.0 ms); vulkan:0 not used: why".
pub(super) fn reason(tried: &[Tried]) -> String {
    let ms = |t: &Tried| t.step_s.map(|s| format!("{:.2} ms", s * 1e3));
    let working: Vec<&Tried> = tried.iter().filter(|t| t.step_s.is_some()).collect();
    let mut text = match working.split_first() {
        None => "no backend works here".to_string(),
        Some((best, [])) => format!("{} ({}) is the only backend that works here", best.backend, best.device),
        Some((best, others)) => {
            let others: Vec<String> =
                others.iter().map(|t| format!("{} {}", t.backend, ms(t).unwrap_or_default())).collect();
            let time = ms(best).unwrap_or_default();
            format!(
                "{} ({}): {time} a step, the fastest of {} ({})",
                best.backend,
                best.device,
                working.len(),
                others.join(", ")
            )
        }
    };
    for t in tried {
        if let Some(why) = &t.why_not {
            text += &format!("; {} not used: {why}", t.backend);
        }
    }
    text
}
