//! The reason of a choice in words.

use super::Tried;

/// Formats the reason: "hip:0 (name): 1.2 ms a step, the fastest of 2 (cpu 4.0 ms); vulkan:0 not used: why".
pub(super) fn reason(tried: &[Tried]) -> String {
    let mut text = best(tried);
    for t in tried {
        if let Some(why) = &t.why_not {
            text += &format!("; {} not used: {why}", t.backend);
        }
    }
    text
}

/// Formats the reason in one sentence, which only names the backends that are not used. `chosen` is the backend that
/// was opened.
pub(super) fn sentence(tried: &[Tried], chosen: &str) -> String {
    let first = tried.first().filter(|t| t.step_s.is_some() && t.backend != chosen);
    let text = match first {
        Some(first) => format!("{chosen}, since {} does not open now", first.backend),
        None => best(tried),
    };
    let unused: Vec<&str> =
        tried.iter().filter(|t| t.why_not.is_some()).map(|t| t.backend.as_str()).collect();
    if unused.is_empty() { text } else { format!("{text}; not used: {} (probe says why)", unused.join(", ")) }
}

/// Describes the fastest backend.
fn best(tried: &[Tried]) -> String {
    let ms = |t: &Tried, step: &str, prompt: &str| {
        let of = |s: Option<f64>| format!("{:.2} ms", s.unwrap_or(f64::NAN) * 1e3);
        format!("{}{step} and {}{prompt}", of(t.step_s), of(t.prompt_s))
    };
    let working: Vec<&Tried> = tried.iter().filter(|t| t.step_s.is_some()).collect();
    match working.split_first() {
        None => "no backend works here".to_string(),
        Some((best, [])) => format!("{} ({}) is the only backend that works here", best.backend, best.device),
        Some((best, others)) => {
            let others: Vec<String> =
                others.iter().map(|t| format!("{} {}", t.backend, ms(t, "", ""))).collect();
            let time = ms(best, " a step", " a prompt of 128 tokens");
            format!(
                "{} ({}): {time}, the fastest of {} ({})",
                best.backend,
                best.device,
                working.len(),
                others.join(", ")
            )
        }
    }
}
